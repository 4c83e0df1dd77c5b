"""A file a kind of input."""
