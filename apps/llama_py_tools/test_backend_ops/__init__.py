"""test-backend-ops: every op on every backend, compared with the reference.

To add an op: one function in `cases/<family>.py` with the decorator `@case`.
"""

from llama_py_tools.test_backend_ops.main import main, parser

__all__ = ["main", "parser"]
