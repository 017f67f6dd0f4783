"""What any database needs, whatever it holds: SQL kept as SQL, files and servers opened with care, errors that say what
to do. It knows no graph, no queue and no session."""
