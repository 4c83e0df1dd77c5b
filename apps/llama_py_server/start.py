"""Entry point of the console script; it imports nothing else, so that Ctrl-C ends it quietly from
the start."""

from __future__ import annotations

from llama_py_tools.start import Start

server = Start("serve")
