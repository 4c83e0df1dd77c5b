"""Cases, one file a family of ops, named as the files of ggml_py/ops. Every file here is found by itself."""
