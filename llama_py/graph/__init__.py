"""Common parts of every architecture's graph: names, inputs, results (llama-graph.h)."""
