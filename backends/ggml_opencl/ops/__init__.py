"""Launchers, a file a family, named as in ggml_py/ops. Importing a file registers its ops."""
