"""A graph to look at: what a page, and Google's Model Explorer, show of it."""
