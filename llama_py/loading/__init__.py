"""From a file to a model in memory."""
