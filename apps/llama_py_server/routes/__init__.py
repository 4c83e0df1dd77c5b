"""The handlers of paths."""
