"""Messages name a source from which an extra can be installed."""

from __future__ import annotations

import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import pytest

from ggml_py.machine.extras import install_hint

ROOT = Path(__file__).parents[2]
FOLDERS = ("ggml_py", "llama_py", "backends", "apps", "dev", "docs", "examples", "tests")
INDEX = re.compile(r"install .{0,3}llama-py(-numba)?\b|['\"`]llama-py(-numba)?\[")
SHA = "0" * 40


def install(folder: Path, record: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a distribution without a record, and behind it one with this record, the only ones."""
    for name, text in (("egg", None), ("dist", json.dumps(record) if record else None)):
        info = folder / name / "llama_py_numba-0.1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text("Name: llama-py-numba\nVersion: 0.1.0\n")
        if text is not None:
            (info / "direct_url.json").write_text(text)
    found = importlib.metadata.distributions
    path = [str(folder / "egg"), str(folder / "dist")]
    monkeypatch.setattr(
        importlib.metadata, "distributions", lambda **query: found(path=path, **query)
    )


@pytest.mark.parametrize(
    "record, command",
    [
        (None, 'pip install ".[server]" in a checkout of llama-py'),
        ([1], 'pip install ".[server]" in a checkout of llama-py'),
        (
            {"url": "file:///nowhere", "dir_info": {}},
            'pip install ".[server]" in a checkout of llama-py',
        ),
        (
            {"url": "https://host/x.git", "vcs_info": {"vcs": "git", "commit_id": SHA}},
            f'pip install "llama-py-numba[server] @ git+https://host/x.git@{SHA}"',
        ),
        (
            {"url": "https://host/x.whl", "archive_info": {}},
            'pip install "llama-py-numba[server] @ https://host/x.whl"',
        ),
    ],
)
def test_command_names_the_recorded_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: Any, command: str
) -> None:
    install(tmp_path, record, monkeypatch)
    assert install_hint("server") == command


@pytest.mark.parametrize("editable", [False, True])
def test_command_names_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editable: bool
) -> None:
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    record = {"url": checkout.as_uri(), "dir_info": {"editable": True} if editable else {}}
    install(tmp_path, record, monkeypatch)
    flag = "-e " if editable else ""
    assert install_hint("server") == f'pip install {flag}"{checkout}[server]"'


def test_no_text_names_a_package_of_an_index() -> None:
    paths = [ROOT / "README.md", *(p for name in FOLDERS for p in (ROOT / name).rglob("*"))]
    named = [
        f"{path}:{i}"
        for path in paths
        if path.suffix in (".py", ".md", ".ipynb", ".html") and path != Path(__file__)
        for i, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if INDEX.search(line)
    ]
    assert not named, "use ggml_py.machine.extras.install_hint, or '.[extra]' in documents"
