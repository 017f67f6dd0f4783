"""Turns on other machines: work items with leases, and the queues that carry them."""
