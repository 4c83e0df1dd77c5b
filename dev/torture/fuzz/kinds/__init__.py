"""Kinds of input, one file per kind."""
