"""Models of a server: their list, their memory, and their options."""
