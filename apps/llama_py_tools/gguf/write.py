"""Safe writing of files: atomic, and over an existing file only on request."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ggml_py.errors import GGUFError
from llama_py.gguf.file import TensorInfo
from llama_py.gguf.write import content, n_bytes
from llama_py.support.whole_file import replace_file
from llama_py_tools.command.progress import Progress
from llama_py_tools.gguf.sizes import show_size
from llama_py_tools.models import session


def check_free(path: str | Path, force: bool) -> Path:
    """Return the path; GGUFError if the file exists, unless `force`."""
    path = Path(path)
    if path.exists() and not force:
        raise GGUFError(f"{path}: file already exists; use another name, or --force")
    return path


def write(path: Path, stored: Mapping[str, bytes], tensors: Iterable[TensorInfo]) -> None:
    tensors = list(tensors)
    total, progress = n_bytes(stored, tensors), Progress(f"writing {path.name}")

    def report_progress() -> Iterator[bytes | memoryview]:
        done = 0
        for piece in content(stored, tensors):
            yield piece
            done += len(piece)
            progress(done, total, show_size(done))

    try:
        replace_file(path, report_progress())
    finally:
        progress.close()
    session.tell(f"{path}: {len(tensors)} tensors, {show_size(total)}")
