"""The command line and its settings: wires the rooms together."""
