"""Shared parts of several architectures: graphs, layers and rules."""
