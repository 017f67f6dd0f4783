"""The crash campaign: a real `run` is killed at hundreds of instants and started again, and judged from outside."""
