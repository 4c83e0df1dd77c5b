"""ggml_cpu: the CPU backend. Kernels are Numba functions on addresses, run natively node by node.

`vocabulary` (the SIMD API) is a lazy module: kernel files import it, but Numba is imported only
when a kernel is compiled. A process that finds all its kernels in the cache never imports Numba.
"""

from __future__ import annotations

import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType


def _lazy(name: str) -> ModuleType:
    """Return the module `name`, which executes on its first attribute access."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ImportError(f"{name} is missing from the installation; run pip install again")
    spec.loader = LazyLoader(spec.loader)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


vocabulary = _lazy(f"{__name__}.vocabulary")
