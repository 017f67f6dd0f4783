"""Benchmarks of the product itself, each against a floor measured in the same run."""
