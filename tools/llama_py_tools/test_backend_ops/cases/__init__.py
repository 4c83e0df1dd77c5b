"""Cases, one file a family of ops, named as in ggml_py/ops. A new file here is found by itself."""
