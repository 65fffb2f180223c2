"""Real services without Docker, for the tests and for trying things out."""
