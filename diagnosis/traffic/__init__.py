"""From epochs in which queue pairs sent something to communication operators (Pulse 4, 5)."""
