"""Quantization of a model when it is loaded, tensor by tensor."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from ggml_py.errors import GGUFError
from ggml_py.machine.folder import cache_root
from ggml_py.machine.host import logical_cpus
from ggml_py.machine.release import VERSION
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.file_types import file_type
from llama_py.gguf.tensor_info import Bytes, ComputedTensor
from llama_py.gguf.write import content, n_bytes
from llama_py.quantize.plan import TensorJob, Wishes, jobs, metadata
from llama_py.quantize.rows import RowWorkers
from llama_py.support.whole_file import replace_file

log = logging.getLogger("llama_py")

FOLDER = "quantized"  # in the cache
Progress = Callable[[int, int, str], None]


def quantize_model(file: GGUFFile, type: str) -> GGUFFile:
    """Return an open file with these tensors in other types; reading a tensor quantizes it.

    type  name of a file type, such as Q4_K_M

    Raises GGUFError for an unknown type, for a type that needs an importance matrix, and for
    tensors that are quantized already.
    """
    try:
        wishes = Wishes(type=file_type(type))
    except ValueError as e:
        raise GGUFError(f"quantize: {e}") from None
    work = jobs(file, wishes, None)
    if wanting := next((job for job in work if job.wants_imatrix), None):
        raise GGUFError(
            f"quantize: {wanting.name}: type {wanting.type} needs an importance matrix; write a "
            "file with llama-py-gguf quantize --imatrix FILE, and load that"
        )
    stored = metadata(file, wishes, work, None)
    made = [job.target_info for job in work]
    tensors = {
        t.name: ComputedTensor(t.name, t.type, t.ne, t.nbytes, partial(_quantize, job))
        for t, job in zip(made, work, strict=True)
    }
    return GGUFFile.from_values(file.path, stored, tensors)


def _quantize(job: TensorJob) -> Bytes:
    if job.copies:
        return job.source.data
    with RowWorkers(len(logical_cpus()), None) as rows:
        found = rows.read(job)
    job.source.let_go()
    return found


def keep_quantized(file: GGUFFile, type: str, progress: Progress | None = None) -> GGUFFile:
    """Return the quantized model of the cache, which is written first if it is missing.

    A model with changed files is another one. Without space in the cache, the model is quantized
    as by `quantize_model`, with a warning.
    """
    made = quantize_model(file, type)
    path = kept_path(file, type)
    if path is None or path.is_file():
        return made if path is None else GGUFFile.open(path)
    tensors, stored = list(made.tensors.values()), made.metadata.stored_values
    total = n_bytes(stored, tensors)

    def report() -> Iterator[bytes | memoryview]:
        done = 0
        for piece in content(stored, tensors):
            yield piece
            done += len(piece)
            if progress is not None:
                progress(done, total, f"quantizing to {type}")

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, report())
    except OSError as e:
        log.warning("%s: cannot store the quantized model: %s", path, e)
        return made
    log.info("stored the quantized model: %s", path)
    return GGUFFile.open(path)


def kept_path(file: GGUFFile, type: str) -> Path | None:
    """Return the path of a quantized model in the cache; None without a cache directory."""
    root = cache_root()
    if root is None:
        return None
    digest = hashlib.sha256(VERSION.encode())
    for path in file.paths:
        for one in sorted(path.iterdir()) if path.is_dir() else [path]:
            if one.is_file():
                status = one.stat()
                digest.update(f"{one.resolve()}\0{status.st_size}\0{status.st_mtime_ns}\n".encode())
    name = f"{file.path.stem}-{file_type(type).name}-{digest.hexdigest()[:16]}.gguf"
    return root / FOLDER / name
