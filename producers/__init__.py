"""What writes telemetry: simulated clusters, recorded files, live hosts."""
