"""Installation hints for optional dependency groups (extras) of the distribution."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from ggml_py.machine.release import DISTRIBUTION

NAME = "llama-py"  # of the project


def install_hint(extra: str) -> str:
    """Return the command that installs an extra from the source of this installation.

    A package index is not named: a package with this name there may belong to someone else.

    Args:
        extra: Key of `[project.optional-dependencies]`.

    Returns:
        `pip install ".[extra]" in a checkout of llama-py`, with the source's path or URL instead
        if the installer recorded one (`direct_url.json`, PEP 610). In double quotes, for cmd.exe.
    """
    origin = _read_origin()
    url = str(origin.get("url", ""))
    if url.startswith("file:"):
        path = _to_path(url)
        if path.exists():
            flag = "-e " if origin.get("dir_info", {}).get("editable") else ""
            return f'pip install {flag}"{path}[{extra}]"'
    elif url:
        vcs = origin.get("vcs_info", {})
        scheme = f"{vcs['vcs']}+" if "vcs" in vcs else ""
        commit = f"@{vcs['commit_id']}" if "commit_id" in vcs else ""
        return f'pip install "{DISTRIBUTION}[{extra}] @ {scheme}{url}{commit}"'
    return f'pip install ".[{extra}]" in a checkout of {NAME}'


def _read_origin() -> dict[str, Any]:
    """Return the installer's record of the source, or an empty dict without a record."""
    from importlib.metadata import distributions

    # In a checkout, the first distribution may be its egg-info folder without a record.
    for found in distributions(name=DISTRIBUTION):
        with suppress(ValueError, OSError):
            record = json.loads(found.read_text("direct_url.json") or "{}")
            if record and isinstance(record, dict):
                return record
    return {}


def _to_path(url: str) -> Path:
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    return Path(url2pathname(urlsplit(url).path))
