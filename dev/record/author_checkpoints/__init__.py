"""Tiny checkpoints in the layout of their authors, which transformers does not write:
configurations and names of tensors.

    python -m dev.record.author_checkpoints OUT [NAME ...]
    python -m dev.record.record_checkpoints LLAMA_CPP OUT NAME ...

The first command writes the folders OUT/NAME. Their model_type is unknown to transformers, so
llama.cpp's converter reads config.json without changes.
"""
