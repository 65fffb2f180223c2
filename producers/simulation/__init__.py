"""A simulated cluster with injected faults."""
