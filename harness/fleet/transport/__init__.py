"""What carries envelopes: adapters of `harness.fleet.ports.Transport`."""
