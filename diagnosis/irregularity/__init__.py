"""Holmes 3.1 and 4.2: which iterations and which operators last too long."""
