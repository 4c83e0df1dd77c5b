"""Backslash escapes in prompts, as llama.cpp's programs read them."""

from __future__ import annotations

from llama_py_tools.command.escapes import unescape


def test_escapes() -> None:
    assert unescape(r"a\nb\t\\\"\'\q\x41\x4g\x") == "a\nb\t\\\"'\\qA\\x4g\\x"
    assert unescape("\\xc3\\xa9\\") == "é\\"
    assert unescape("\\xff\udcfe") == "\udcff\udcfe"
    assert unescape("\\x4") == "\\x4"
