"""Prints what pip is told for the oldest Numba that pyproject.toml allows: `numba==0.60.*`."""

import re
from pathlib import Path

TEXT = (Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8")


def requirement(text: str = TEXT) -> str:
    """Of the first bound, its first two numbers."""
    found = re.search(r'^ +"numba>=(\d+\.\d+)', text, re.MULTILINE)
    if found is None:
        raise SystemExit("pyproject.toml has no dependency numba>=..")
    return f"numba=={found[1]}.*"


if __name__ == "__main__":
    print(requirement())  # noqa: T201
