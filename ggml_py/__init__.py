"""A tensor-graph IR: tensors, ops, graphs, and the plans that backends run."""

import sys
from typing import TYPE_CHECKING

from ggml_py._moved import MOVED, STABLE, Finder

if TYPE_CHECKING:
    from ggml_py.machine import host as host

sys.meta_path.insert(0, Finder("ggml_py", STABLE | MOVED, STABLE))
