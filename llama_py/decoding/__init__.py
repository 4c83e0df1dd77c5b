"""Continuation of sequences: tokens in memory, drafts, prefix cache, context shift."""
