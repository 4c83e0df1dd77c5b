"""Entry point of the console script; other imports are delayed, so that Ctrl-C is quiet from
the start."""

from __future__ import annotations

from llama_py_tools.start import Start

server = Start("serve")
