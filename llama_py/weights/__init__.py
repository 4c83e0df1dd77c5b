"""Tensors that blocks declare, and the devices that hold them."""

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from llama_py.weights.weights import Bias, Sections, Weights, format_shape

__all__ = ["Bias", "Sections", "Weights", "format_shape"]

if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, shown="format_shape")
