"""What reads a live host beside the operator log: NIC epoch dumps, port counters, calls of the libraries."""
