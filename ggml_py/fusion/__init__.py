"""Fusion of several nodes into one step: the language of patterns, and their matches in a graph."""

from ggml_py.fusion.fusion import Fused, Fusions, apart, f32_rows, in_place

__all__ = ["Fused", "Fusions", "apart", "f32_rows", "in_place"]
