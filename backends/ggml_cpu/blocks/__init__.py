"""Parts that types of `ggml_cpu.quants` share: panels, columns, products, rounding, searching."""
