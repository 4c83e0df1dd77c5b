"""What the pages of docs/ show is so: sessions of Python are run, excerpts stand in their files."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
SESSIONS = [page for page in PAGES if ">>> " in page.read_text()]
# A title without a folder is a new file, not an excerpt.
EXCERPT = re.compile(r'^```python title="([^"]+/[^"]+)"\n(.*?)^```$', re.M | re.S)
CASES = [
    pytest.param(path, part, id=f"{page.name}-{path}")
    for page in PAGES
    for path, text in EXCERPT.findall(page.read_text())
    for part in re.split(r"^ *\.\.\.\n", text, flags=re.M)
]


@pytest.mark.parametrize("page", SESSIONS, ids=lambda page: page.name)
def test_sessions(page: Path) -> None:
    text = re.sub(r"^```.*$", "", page.read_text(), flags=re.M)
    session = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert doctest.DocTestRunner().run(session).failed == 0


@pytest.mark.parametrize(("path", "part"), CASES)
def test_excerpts_are_the_code(path: str, part: str) -> None:
    assert part in (ROOT / path).read_text()


def test_there_are_excerpts() -> None:
    assert len(CASES) > 5
