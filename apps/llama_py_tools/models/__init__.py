"""Model files: where they come from, and how a command opens them."""
