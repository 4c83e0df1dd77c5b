"""History of typed lines between runs: a file that only its user can read."""

from __future__ import annotations

import os
from pathlib import Path

MAX_BYTES = 1 << 20  # a longer file is cut to its last half


def path() -> Path:
    """Return the path in the user's data directory."""
    from platformdirs import user_data_path

    return user_data_path("llama-py", appauthor=False) / "chat_history"


def open_history() -> Path | None:
    """Return the file, created if needed; None if it cannot be written."""
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600))
        file.chmod(0o600)
        _shorten(file)
    except OSError:
        return None
    return file


def _shorten(file: Path) -> None:
    """Cut the file at an entry of prompt_toolkit's history, which begins with a blank line."""
    if file.stat().st_size <= MAX_BYTES:
        return
    data = file.read_bytes()[-MAX_BYTES // 2 :]
    start = data.find(b"\n\n# ")
    file.write_bytes(data[start + 1 :] if start >= 0 else b"")
