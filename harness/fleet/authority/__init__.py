"""Where WorkItems are kept: adapters of `harness.fleet.ports.WorkItems`."""
