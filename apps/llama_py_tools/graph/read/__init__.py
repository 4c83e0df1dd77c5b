"""Builder code of a model's graph, with the nodes that each line makes."""
