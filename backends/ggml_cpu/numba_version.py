"""The versions of Numba that can be used. Its front end is used from within (frontend.py,
passes.py, helpers.py), which Numba does not promise to keep: these versions were tried."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from ggml_py.errors import BackendError

OLDEST, BEFORE = (0, 62), (0, 69)  # as pyproject.toml has it


def version(package: str) -> str:
    """Return the version of an installed package, which is not imported: by the directory beside
    it, or where that does not tell by importlib.metadata, whose import takes 15 ms.
    ModuleNotFoundError if there is none."""
    spec = find_spec(package)
    if spec is not None and spec.origin:
        folders = list(Path(spec.origin).parent.parent.glob(f"{package}-*.dist-info"))
        if len(folders) == 1:
            return folders[0].name.removesuffix(".dist-info").partition("-")[2]
    from importlib import metadata

    return metadata.version(package)


@cache
def numba_version() -> str:
    """Return the installed version, found without importing Numba; BackendError for any other."""
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
    """Return `0.68.1` and `0.69.0rc1` as (0, 68) and (0, 69)."""
    parts = text.split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in parts)


def _text(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))
