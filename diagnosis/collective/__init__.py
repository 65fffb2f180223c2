"""Comparing the ranks of a communicator: who is slow, who stopped, who never came (Pulse 6)."""
