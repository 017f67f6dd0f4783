"""Campaigns and measurements that are run by hand or at night, each a package or module with `--help`."""
