"""A simulated cluster down to what its NICs count, one level below the log of operators."""
