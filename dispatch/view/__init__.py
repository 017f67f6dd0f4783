"""What people see: pure functions from values to renderables. Nothing here writes to a terminal or reads a clock."""
