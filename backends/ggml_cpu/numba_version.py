"""The supported (tested) versions of Numba.

The backend uses internal interfaces of Numba's front end (frontend.py, passes.py, helpers.py),
which can change between versions.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ggml_py.errors import BackendError

OLDEST, BEFORE = (0, 62), (0, 69)  # same range as in pyproject.toml


def version(package: str) -> str:
    """Return the version of an installed package without importing it.

    The version is in the name of the dist-info directory next to the package. Otherwise
    importlib.metadata finds it, but importing that takes 15 ms.

    Raises:
        ModuleNotFoundError: The package is not installed.
    """
    spec = find_spec(package)
    if spec is not None and spec.origin:
        folders = list(Path(spec.origin).parent.parent.glob(f"{package}-*.dist-info"))
        if len(folders) == 1:
            return folders[0].name.removesuffix(".dist-info").partition("-")[2]
    from importlib import metadata

    return metadata.version(package)


@cache
def numba_version() -> str:
    """Return Numba's version without importing it; BackendError if missing or unsupported."""
    try:
        found = version("numba")
    except ModuleNotFoundError:
        found = ""
    if found and OLDEST <= _numbers(found) < BEFORE:
        return found
    wanted = f">={_text(OLDEST)},<{_text(BEFORE)}"
    raise BackendError(
        f"the CPU backend needs Numba {wanted}, got {found or 'none'}; install it with: pip "
        f"install 'numba{wanted}'"
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Return major and minor version: (0, 69) for `0.69.0rc1`."""
    parts = text.split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
