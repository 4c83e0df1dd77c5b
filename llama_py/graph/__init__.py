"""What every architecture's graph is built with: names, inputs, results (llama-graph.h)."""
