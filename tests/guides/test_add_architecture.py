"""llama_py/models/README.md: its files, and only these, add an architecture, here or elsewhere."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.commands import SCRIPTS, clean_environment
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "llama_py" / "models" / "README.md"
MODEL, TINY = FILES = ("llama_py/models/toy.py", "dev/tiny_models/toy.py")
OTHERS = "my_package/toy.py"

WRITE = """
import sys
from pathlib import Path
from dev import tiny_models as tiny

print(tiny.write("toy", "dense", Path(sys.argv[1])))
"""

RUN = """
import json
import sys

import llama_py
from llama_py.models import architecture

model = llama_py.load(sys.argv[1], "ref")
prompt = [7 * i % 64 for i in range(20)]


def logits(*sizes):
    ctx, rows, start = llama_py.Context(model, n_ctx=64, type_k="f32", type_v="f32"), [], 0
    for size in sizes:
        rows += ctx.decode(prompt[start : start + size], logits="all").tolist()
        start += size
    return rows


found = {
    "home": sys.modules[architecture("toy").__module__].__file__,
    "whole": logits(20),
    "splits": [logits(*sizes) for sizes in ([1] * 20, [13, 7], [1, 18, 1])],
    "text": model.generate(prompt, max_tokens=8, temp=0),
}
print(json.dumps(found))
"""


def blocks() -> dict[str, str]:
    """What the guide says of each file, by its path."""
    return dict(re.findall(r"\n`([\w/.]+)`:\n\n```python\n(.*?)```", GUIDE.read_text(), re.S))


def entry_point() -> tuple[str, str]:
    """The group, and the line of the guide's architecture in it."""
    found = re.search(
        r'```toml\n\[project\.entry-points\."([\w.]+)"\]\n(.*?)\n```', GUIDE.read_text()
    )
    assert found is not None
    return found[1], found[2].replace('"', "")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the files of the guide."""
    folder = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "*.gguf")
    for name in ("llama_py", "dev/tiny_models"):
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    for path, text in blocks().items():
        assert not (folder / path).exists()
        (folder / path).write_text(text)
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installed package with the guide's model and entry point leaves."""
    folder = tmp_path_factory.mktemp("site")
    (folder / OTHERS).parent.mkdir()
    (folder / OTHERS).write_text(blocks()[MODEL])
    info = folder / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[{}]\n{}\n".format(*entry_point()))
    return folder


@pytest.fixture(scope="module")
def file(tree: Path) -> str:
    """The tiny model."""
    return run(tree, sys.executable, "-c", WRITE, str(tree)).strip()


def run(first: Path, *command: str) -> str:
    """What a command prints when a folder comes first where packages are looked for."""
    paths = [str(first), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = clean_environment() | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        command, cwd=first, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_guide_names_these_files() -> None:
    assert tuple(blocks()) == FILES


@pytest.mark.parametrize(("where", "module"), [("tree", MODEL), ("site", OTHERS)])
def test_it_runs(where: str, module: str, file: str, request: pytest.FixtureRequest) -> None:
    folder: Path = request.getfixturevalue(where)
    assert "toy" in run(folder, str(SCRIPTS / "llama-py-cli"), "--list-archs").split()
    found: dict[str, Any] = json.loads(run(folder, sys.executable, "-c", RUN, file))
    assert Path(found["home"]) == folder / module
    whole = np.array(found["whole"])
    assert whole.std(0).min() > 0.1
    for rows in found["splits"]:
        np.testing.assert_allclose(rows, whole, rtol=0, atol=1e-5)
    assert re.fullmatch("[0-9a-f]{8,16}", found["text"])  # the numbers of eight tokens
    assert found["text"].startswith(f"{whole[-1].argmax():x}")


@pytest.mark.parametrize(("path", "error"), [(MODEL, "is not supported"), (TINY, "no tiny model")])
def test_each_file_is_needed(tree: Path, path: str, error: str) -> None:
    text = (tree / path).read_text()
    (tree / path).unlink()
    try:
        with pytest.raises(AssertionError, match=error):
            run(tree, sys.executable, "-c", WRITE, str(tree))
    finally:
        (tree / path).write_text(text)
