"""Which type each tensor of a quantized file gets, and what its metadata say (llama-quant.cpp)."""
