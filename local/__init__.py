"""Real services without Docker, for tests and for trying things out."""
