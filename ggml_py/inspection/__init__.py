"""Graphs and values for observers: dumps, comparisons, checks by a second device."""
