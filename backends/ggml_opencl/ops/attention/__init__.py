"""OpenCL launchers of the ops in ggml_py/ops/attention.py."""
