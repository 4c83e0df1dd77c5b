"""Tensors that blocks declare, and the devices that hold them."""

from llama_py.weights.weights import Bias, Sections, Weights, shown

__all__ = ["Bias", "Sections", "Weights", "shown"]
