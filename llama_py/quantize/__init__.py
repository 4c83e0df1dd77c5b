"""Tensor types and metadata of quantized files (llama-quant.cpp)."""
