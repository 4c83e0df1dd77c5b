"""llama-py-graph diff: where two runs part, and which node made it."""
