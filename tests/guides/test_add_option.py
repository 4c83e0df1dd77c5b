"""llama_py/params/README.md: one more field is one more option, wherever its class is taken."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

import pytest

import llama_py
from ggml_py.errors import ContextError
from llama_py.params import ContextParams
from llama_py.params.option import option
from llama_py.params.rules import integers
from llama_py_tools import cli, debug, option_table, session
from tests.commands import DEMO

graph = import_module("llama_py_tools.graph.main")  # its package gives that name a function


@dataclass(frozen=True, kw_only=True)
class MoreParams(ContextParams):
    n_pages: int = option(7, "-np --n-pages", "pages of it", check=integers(1, 9))


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the field stood in ContextParams."""
    assert "n_pages" not in {f.name for f in fields(ContextParams)}
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("LLAMA_ARG_N_PAGES", raising=False)
    for module in (cli, debug, graph, session):
        monkeypatch.setattr(module, "ContextParams", MoreParams)


@pytest.mark.parametrize(
    ("module", "command"), [(cli, []), (debug, []), (graph, ["dump"]), (graph, ["diff"])]
)
def test_commands_have_it(
    module: Any, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        module.main([*command, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "-np N, --n-pages N pages of it (default: 7) [LLAMA_ARG_N_PAGES]" in shown
    with pytest.raises(SystemExit, match="2"):
        module.main([*command, "-np", "10"])
    told = capsys.readouterr().err
    assert "argument -np/--n-pages: must be an integer in [1, 9], got 10" in told


@pytest.mark.parametrize(
    ("variable", "flags", "expected"), [("", [], 7), ("8", [], 8), ("8", ["-np", "9"], 9)]
)
def test_contexts_get_it(
    variable: str, flags: list[str], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setitem(os.environ, "LLAMA_ARG_N_PAGES", variable)
    args = debug.parser().parse_args(["-dev", "null", *flags])
    model = llama_py.load(DEMO, "null")
    given: dict[str, Any] = {}
    monkeypatch.setattr(model, "context", lambda **options: given.update(options))
    session.open_context(args, model, n_batch=3)
    assert (given["n_pages"], given["n_batch"], given["n_ubatch"]) == (expected, 3, 512)


def test_python_has_it() -> None:
    assert "pages of it" in str(MoreParams.__doc__)
    with pytest.raises(ContextError, match=r"n_pages is 0; it must be an integer in \[1, 9\]"):
        MoreParams(n_pages=0)


def test_the_table_has_it() -> None:
    row = "| `-np`, `--n-pages` | `LLAMA_ARG_N_PAGES` | `7` | pages of it | cli, debug, graph dump,"
    assert row in option_table.table()
