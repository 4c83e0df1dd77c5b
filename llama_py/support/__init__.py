"""Helpers that know nothing of models."""
