"""Hostile input: files that are damaged on purpose, and what the engine does with them: README."""
