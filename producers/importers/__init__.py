"""Recorded telemetry: files in, one ``Recording`` out. A module a format; ``formats`` knows them all."""
