"""Holmes 4.3: the communication-operator graph, its search, and what the search's leaves mean."""
