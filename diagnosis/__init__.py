"""The algorithms. Pure: NumPy and Arrow in, plain results out; no I/O, no clock, no threads."""
