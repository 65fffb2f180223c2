"""What travels and what is stored: one module a topic, the catalogue of topics, the stored tables."""
