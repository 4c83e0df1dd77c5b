"""The one limit of waits: it says that something hangs, and nothing about a machine's speed."""

from __future__ import annotations

import os

SECONDS = int(os.environ.get("LLAMA_PY_TEST_SECONDS", "900"))
