"""Make relative links and pictures of a Markdown file absolute, for pages outside the repository.

    python -m dev.docs.absolute_links README.md

The addresses start with `Repository` of `[project.urls]` in pyproject.toml.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(!?)(\[[^][]*\]|(?<=\)\]))\((?![\w+]+:|#)([^)\s]+)\)")
REPOSITORY = re.compile(r'^Repository = "([^"]+)"', re.MULTILINE)


def make_absolute(text: str, repository: str) -> str:
    """Return the text with links to files of the branch main, and with pictures' raw files."""

    def replace(link: re.Match[str]) -> str:
        view = "raw" if link[1] else "blob"
        return f"{link[1]}{link[2]}({repository}/{view}/main/{link[3]})"

    return LINK.sub(replace, text)


def main(names: Sequence[str]) -> None:
    """Rewrite these files."""
    found = REPOSITORY.search((ROOT / "pyproject.toml").read_text("utf-8"))
    if found is None:
        raise SystemExit("error: pyproject.toml has no [project.urls]; uncomment it and set HOST")
    for path in map(Path, names):
        path.write_text(make_absolute(path.read_text("utf-8"), found[1]), "utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
