"""A quantizer a file, called by its type. `ggml_cpu.quantize.format.QUANTIZERS` has them all."""
