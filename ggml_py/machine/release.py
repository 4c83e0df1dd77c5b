"""Version of this project, and its name on package indexes.

Both are also in pyproject.toml; a test compares them. Constants work without package metadata,
whose import takes 15 ms.
"""

VERSION = "0.1.0"
DISTRIBUTION = "llama-py-numba"  # llama-py is too similar to llamapy, of another author, for PyPI
