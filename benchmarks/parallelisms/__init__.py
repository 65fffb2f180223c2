"""Parts of the benchmark that identifies what communicators serve."""
