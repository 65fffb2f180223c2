"""The stream processors that carry diagnosis over the topics, and their two runners."""
