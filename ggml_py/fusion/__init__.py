"""Fusion of several nodes into one step: the language of patterns, and their matches in a graph."""

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.fusion.fusion import FusedNodes, Fusions, f32_rows, in_place, no_overwrite

__all__ = ["FusedNodes", "Fusions", "f32_rows", "in_place", "no_overwrite"]


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, Fused="FusedNodes", apart="no_overwrite")
