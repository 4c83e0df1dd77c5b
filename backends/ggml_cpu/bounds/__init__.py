"""A sanitizer: LLAMA_PY_CHECK_BOUNDS=1 checks every load and store of a kernel.

Each access must be in the memory of the kernel's step. Checked kernels are compiled and cached
separately; without the variable, kernels contain no checks.

check.py       the check, called before each memory access
instrument.py  inserts the calls into LLVM modules
extents.py     memory that each step may access, and the error for other accesses
"""

from __future__ import annotations

from ggml_cpu.target import CHECKED as CHECKED
