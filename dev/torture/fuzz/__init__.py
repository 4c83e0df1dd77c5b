"""Hostile input: deliberately damaged files, and the engine's reaction: see README."""
