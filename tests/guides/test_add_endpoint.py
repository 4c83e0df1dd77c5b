"""apps/llama_py_server/README.md: its two steps, and only these, add an endpoint."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

from tests.support.commands import clean_environment
from tests.support.limits import SECONDS

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "apps" / "llama_py_server"
POST = "POST: dict[str, Handler] = {\n"

PROGRAM = """
import json
from tests.server.served import served

with served() as (client, _):
    good = client.post("/lengths", json={"texts": ["", "To be"]})
    bad = client.post("/lengths", json={"texts": "To be"})
    other = client.post("/tokenize", json={"content": "To be"})
found = [good.status_code, good.json(), bad.status_code, bad.json()["error"]["message"]]
print(json.dumps([*found, len(other.json()["tokens"])]))
"""


def steps() -> tuple[str, str, str]:
    """The handler's file and text, and the line of the table."""
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    found = re.search(r"`(apps/[\w/]+\.py)`\. .*?```python\n(.*?)\n   ```", text, re.DOTALL)
    line = re.search(r'```python\n   ("/.*?,)\n   ```', text)
    assert found is not None and line is not None
    return found[1], dedent("   " + found[2].lstrip()) + "\n", line[1]


def test_it_answers(tmp_path: Path) -> None:
    path, text, line = steps()
    copy = tmp_path / "llama_py_server"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path / path.removeprefix("apps/")
    assert not target.exists()
    target.write_text(text, encoding="utf-8")
    table = copy / "routes" / "operations.py"
    added = table.read_text(encoding="utf-8").replace(POST, f"{POST}    {line}\n")
    added = added.replace("    hub,\n", "    hub,\n    lengths,\n", 1)
    table.write_text(added, encoding="utf-8")
    paths = [str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=clean_environment() | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    status, body, refused, message, n = json.loads(done.stdout.splitlines()[-1])
    assert (status, refused) == (200, 400)
    assert body == {"lengths": [0, n]} and "'texts' must be an array" in message
