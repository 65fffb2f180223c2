"""Holmes 4.4: how much an operator's slowness explains the iteration's, accumulated on devices."""
