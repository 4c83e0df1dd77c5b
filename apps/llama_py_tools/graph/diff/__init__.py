"""Command llama-py-graph diff: the first node at which two runs differ, and the node that caused
it."""
