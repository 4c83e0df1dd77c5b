"""A sanitizer: with LLAMA_PY_CHECK_BOUNDS=1 every load and store of a kernel is checked against the
memory of its step. Kernels are compiled once more for it (instrument.py), their object code is kept
apart, and nothing else changes: without the variable there is no trace of it in any kernel.

check.py       what a kernel calls before it touches memory
instrument.py  puts the calls in
extents.py     which memory a step may touch, and the error for what it touched besides
"""

from __future__ import annotations

from ggml_cpu.target import CHECKED as CHECKED
