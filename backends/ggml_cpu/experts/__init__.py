"""Cache of experts that are read from a model's file, for models larger than the memory.

A weight of experts is scattered: its data are the addresses of the experts' matrices, each in a
slot of the cache. Before the first MUL_MAT_ID of a layer, a program has the experts loaded that the
router has chosen (program.py). See docs/larger-than-memory.md.
"""
