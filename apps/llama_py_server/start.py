"""Where the console script begins: nothing else is imported here, so that Ctrl-C ends it quietly
from its first moment on."""

from __future__ import annotations

from llama_py_tools.start import Start

server = Start("serve")
