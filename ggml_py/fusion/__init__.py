"""Several nodes run as one step: the language of patterns, and where they fit a graph."""

from ggml_py.fusion.fusion import Fused, Fusions, apart, f32_rows, in_place

__all__ = ["Fused", "Fusions", "apart", "f32_rows", "in_place"]
