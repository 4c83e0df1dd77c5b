"""Code shared by the types of `ggml_cpu.quants`: panels, activations, dot products, rounding."""
