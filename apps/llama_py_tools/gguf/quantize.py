"""Command `llama-py-gguf quantize`: converts a file to other types, like llama-quantize."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ggml_py.errors import GGUFError
from llama_py.checkpoint.shards import SplitLimits, list_shards
from llama_py.gguf.file import GGUFFile, TensorInfo
from llama_py.gguf.metadata import printable
from llama_py.gguf.write import encode, head, read_alignment
from llama_py.loading.open import open_model
from llama_py.quantize.imatrix.file import Imatrix, read_imatrix
from llama_py.quantize.plan import TensorJob, Wishes, check_imatrix, jobs, metadata, out_path
from llama_py.quantize.rows import RowWorkers
from llama_py.support.whole_file import replace_file
from llama_py_tools.command.progress import Progress
from llama_py_tools.gguf.show import shape
from llama_py_tools.gguf.sizes import show_size
from llama_py_tools.gguf.write import check_free
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py_tools.gguf.sensitivity import Budget


def quantize(
    path: str,
    output: str,
    wishes: Wishes,
    imatrix_path: str,
    include: Sequence[str],
    exclude: Sequence[str],
    dry_run: bool,
    force: bool,
    n_threads: int,
    budget: Budget | None = None,
) -> None:
    """Write the file, or only print the planned changes."""
    imatrix = find_imatrix(imatrix_path, include, exclude)
    with open_model(path) as file:
        if wishes.overrides:
            file.override(wishes.overrides)
        if budget is not None:
            if not dry_run and not wishes.keep_split:  # before minutes of measuring
                _check_other(file.paths, Path(output))
                check_free(output, force)
            wishes = budget.choose(file, wishes, imatrix)
        quantize_file(file, Path(output), wishes, imatrix, dry_run, force, n_threads)


def quantize_file(
    file: GGUFFile,
    output: Path,
    wishes: Wishes,
    imatrix: Imatrix | None,
    dry_run: bool,
    force: bool,
    n_threads: int,
    limits: SplitLimits | None = None,
) -> None:
    """Write an open file, or only print the planned changes; limits: of shards."""
    work = jobs(file, wishes, imatrix)
    if dry_run:
        for line in lines(work, imatrix):
            session.write(line + "\n")
        return
    check_imatrix(work, imatrix)
    stored = metadata(file, wishes, work, imatrix)
    if limits is None:
        shards = _list_files(output, stored, work, wishes.keep_split, len(file.paths))
    else:
        shards = list_shards(output, stored, work, limits)
    for out, *_ in shards:
        _check_other(file.paths, out)
        check_free(out, force)
    with RowWorkers(n_threads, imatrix) as rows:
        _write(shards, rows)
    for line in summary(work):
        session.tell(line)


def find_imatrix(path: str, include: Sequence[str], exclude: Sequence[str]) -> Imatrix | None:
    """Return the selected entries of an importance matrix; None without a path, or entries."""
    if not path:
        return None
    found = read_imatrix(path)
    session.tell(f"{path}: {len(found.entries)} tensors, {found.n_chunks} chunks")
    found = found.select_entries(include, exclude)
    return found if found.entries else None


def _check_other(paths: Sequence[Path], out: Path) -> None:
    if any(out.exists() and out.samefile(path) for path in paths):
        raise GGUFError(f"{out}: output must not be the input file; use another name")


Shard = tuple[Path, dict[str, bytes], list[TensorJob]]


def _list_files(
    out: Path, stored: dict[str, bytes], work: list[TensorJob], keep_split: bool, n_parts: int
) -> list[Shard]:
    """Return path, keys and tensors of the file, or of a shard for each of the source."""
    n = 1 + max((job.part for job in work), default=0)
    if not keep_split:
        return [(out, stored, work)]
    keys = {"split.count": encode("u16", n_parts), "split.tensors.count": encode("i32", len(work))}
    return [
        (
            out_path(out, i, n),
            (stored if i == 0 else {}) | ({"split.no": encode("u16", i)} | keys if n > 1 else {}),
            [job for job in work if job.part == i],
        )
        for i in range(n)
    ]


def _write(shards: Sequence[Shard], rows: RowWorkers) -> None:
    """Write each file atomically."""
    total = sum(job.source.nbytes for *_, work in shards for job in work)
    progress, done = Progress("quantizing"), [0]
    try:
        for out, stored, work in shards:
            replace_file(out, _pieces(stored, work, rows, progress, done, total))
            made = [job.target_info for job in work]
            session.tell(f"{out}: {len(made)} tensors, {show_size(sum(t.nbytes for t in made))}")
    finally:
        progress.close()


def _pieces(
    stored: Mapping[str, bytes],
    work: Sequence[TensorJob],
    rows: RowWorkers,
    progress: Progress,
    done: list[int],
    total: int,
) -> Iterator[bytes | memoryview]:
    made: list[TensorInfo] = [job.target_info for job in work]
    alignment = read_alignment(stored)
    yield head(stored, made, alignment)
    for job, t in zip(work, made, strict=True):
        what = f"{t.name} {job.source.type} -> {t.type}"
        for piece, n_read in rows.convert(job):
            yield piece
            done[0] += n_read
            progress(done[0], total, what)
        job.source.let_go()
        yield bytes(-t.nbytes % alignment)


def lines(work: Sequence[TensorJob], imatrix: Imatrix | None) -> Iterator[str]:
    """Yield a line for each tensor with its conversion."""
    for i, job in enumerate(work, 1):
        t, made = job.source, job.target_info
        ne = ", ".join(map(str, shape(t)))
        size = f"size = {t.nbytes / 2**20:.3f} MiB"
        if not job.copies:
            size += f" -> {made.nbytes / 2**20:.3f} MiB ({made.type})"
        yield f"[{i:4}/{len(work):4}] {printable(job.name):36} - [{ne}], type = {t.type}, {size}"
    yield from summary(work)
    wanting = [job for job in work if job.wants_imatrix]
    if wanting and imatrix is None:
        yield (
            f"{len(wanting)} tensors need an importance matrix; the first is {wanting[0].name}; "
            "set --imatrix FILE"
        )


def summary(work: Sequence[TensorJob]) -> Iterator[str]:
    elements = sum(math.prod(job.source.ne) for job in work)
    sizes = {
        "model": sum(job.source.nbytes for job in work),
        "quant": sum(job.target_info.nbytes for job in work),
    }
    for what, size in sizes.items():
        yield f"{what} size = {size / 2**20:.2f} MiB ({8 * size / elements:.2f} BPW)"
    counts = Counter(job.type.name for job in work)
    yield "types: " + ", ".join(f"{n} {name}" for name, n in counts.most_common())
    fell_back = sum(job.fell_back for job in work)
    if fell_back:
        yield (
            f"{fell_back} of {len(work)} tensors have row lengths that do not fit the chosen type, "
            "so they have a similar type"
        )
