"""Measurements of accuracy, throughput and latency."""
