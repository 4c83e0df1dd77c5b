"""llama-py-imatrix: compute the importance matrix of a model from a text, like llama-imatrix.

The text is split into chunks of -c tokens, each with an empty context. The matrix has the sums of
the squared inputs of each weight; `llama-py-gguf quantize --imatrix` and llama-quantize use it. The
command prints the perplexity after each chunk.

Without -f it adds the files of --in-file; --show-statistics prints statistics of a file.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.escapes import ENCODING
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import RUN, CommonParams, FileParams, FormParams, SteeringParams
from llama_py_tools.command.progress import Progress
from llama_py_tools.measure.choices import log_softmax
from llama_py_tools.measure.perplexity import Estimate, check_length
from llama_py_tools.models import session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from llama_py import Context, Model
    from llama_py.quantize.imatrix.collect import Collector


class ImatrixParams(Params):
    """Options of the collected data, and of the output."""

    text: str = option("", "-f --file", "text file to process", metavar="FILE")
    output: str = option(
        "imatrix.gguf", "-o --output --output-file", "output file", metavar="FILE", env=""
    )
    format: str = option(
        "",
        "--output-format",
        "format of the output file (default: gguf); dat is the older format",
        choices=("gguf", "dat", ""),
        metavar="gguf|dat",
        env="",
    )
    in_files: tuple[str, ...] = option(
        (),
        "--in-file",
        "importance matrix to add; may be repeated",
        parse=lambda t: (t,),
        many=True,
        metavar="FILE",
        env="",
    )
    chunks: int = option(
        -1, "--chunks", "maximum number of chunks (-1: all)", check=integers(-1), env=""
    )
    first: int = option(
        0,
        "--chunk --from-chunk",
        "number of chunks to skip at the start",
        check=integers(0),
        env="",
    )
    output_frequency: int = option(
        10,
        "--output-frequency",
        "chunks between saves of the output file",
        check=integers(1),
        env="",
    )
    save_frequency: int = option(
        0,
        "--save-frequency",
        "chunks between copies of the output file, FILE.at_N (0: no copies)",
        check=integers(0),
        env="",
    )
    process_output: bool = option(
        False, "--process-output", "also collect data for output.weight", env=""
    )
    ppl: bool = option(True, "--ppl", "print perplexity", off="--no-ppl", env="")
    parse_special: bool = option(
        False, "--parse-special", "parse special tokens in the text", env=""
    )
    show_statistics: bool = option(
        False, "--show-statistics", "print statistics of --in-file, by tensor and by layer", env=""
    )


class ChunkParams(ContextParams):
    """ContextParams of a context with one chunk."""

    n_ctx: int = option(512, "-c --ctx-size", "tokens per chunk", check=integers(1))


EPILOG = """examples:
  %(prog)s -m model.gguf -f text.txt -o imatrix.gguf
  %(prog)s --in-file a.gguf --in-file b.gguf -o imatrix.gguf   # add two matrices
  %(prog)s --in-file imatrix.gguf --show-statistics
"""


def parser() -> OptionParser:
    usage = "%(prog)s -m FILE -f TEXT [-o imatrix.gguf] [options]"
    common = (ImatrixParams, RUN)
    p = OptionParser("llama-py-imatrix", common, usage=usage, description=__doc__, epilog=EPILOG)
    p.add(CommonParams, FileParams, ImatrixParams)
    p.add(ChunkParams, CpuParams, FormParams, SteeringParams, ModelParams, without=("check",))
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    o = read(args, ImatrixParams)
    if o.show_statistics and len(o.in_files) != 1:
        p.error("--show-statistics needs one --in-file FILE")
    if not o.text and not o.in_files:
        p.error("set a text with -f FILE, or files to merge with --in-file FILE")
    return session.run(_statistics if o.show_statistics else _command, args)


def _statistics(args: argparse.Namespace) -> None:
    from llama_py.quantize.imatrix.file import read_imatrix
    from llama_py_tools.measure.imatrix_statistics import lines

    (path,) = read(args, ImatrixParams).in_files
    for line in lines(read_imatrix(path)):
        session.write(line + "\n")


def _command(args: argparse.Namespace) -> None:
    from llama_py.quantize.imatrix.collect import Collector
    from llama_py.quantize.imatrix.file import read_imatrix

    o, n_ctx = read(args, ImatrixParams), read(args, ChunkParams).n_ctx
    before = [read_imatrix(path) for path in o.in_files]
    if not o.text:
        collector = Collector([])
        for found in before:
            collector.add(found, n_ctx)
        _save(o, collector, before[0].chunk_size or n_ctx)
        _tell(o, collector)
        return
    session.loading()
    model = session.open_model(args)
    collector = Collector(list(model.placement.devices), o.process_output)
    for found in before:
        collector.add(found, n_ctx)
    collector.datasets.append(o.text)
    ids = split_chunks(model, o, n_ctx)
    _collect(args, model, collector, ids)
    _save(o, collector, n_ctx)
    _tell(o, collector)


def split_chunks(model: Model, o: ImatrixParams, n_ctx: int) -> npt.NDArray[np.int32]:
    """Return the text in chunks, [n_chunks, n_ctx].

    Raises ContextError for a text that is too short, or a model that wants an end after each.
    """
    import numpy as np

    from ggml_py.errors import ContextError

    if model.tokenizer.add_eos:
        raise ContextError(
            f"{model.arch} adds EOS to every text, so a text cannot be split into chunks; use "
            "another model"
        )
    text = Path(o.text).read_bytes().decode(*ENCODING).removesuffix("\n")
    ids = model.tokenizer.tokenize(text, parse_special=o.parse_special)[o.first * n_ctx :]
    check_length(ids, n_ctx)
    found = np.array(ids[: len(ids) // n_ctx * n_ctx], np.int32).reshape(-1, n_ctx)
    return found[: o.chunks] if o.chunks >= 0 else found


def _collect(
    args: argparse.Namespace, model: Model, collector: Collector, chunks: npt.NDArray[np.int32]
) -> None:
    from llama_py.context.warmup import compile_kernels

    o, p = read(args, ImatrixParams), read(args, ChunkParams)
    n_seqs = max(1, p.n_batch // p.n_ctx)
    n_batch = min(p.n_batch, n_seqs * p.n_ctx)
    ctx = session.open_context(
        args, model, n_ctx=n_seqs * p.n_ctx, n_batch=n_batch, n_seq_max=n_seqs
    )
    compile_kernels(ctx, n_batch)
    estimate, progress = Estimate(), Progress("collecting")
    try:
        with ctx.tap(collector.taps):
            for i, losses in enumerate(score_chunks(ctx, chunks, n_batch, o.ppl), 1):
                if losses is None:
                    progress(i, len(chunks), f"chunk {i} of {len(chunks)}")
                else:
                    estimate.add(losses)
                    session.write(f"[{i}]{estimate.perplexity:.4f},")
                if i % o.output_frequency == 0:
                    _save(o, collector, p.n_ctx)
                if o.save_frequency and i % o.save_frequency == 0:
                    _save(o, collector, p.n_ctx, f".at_{i}")
    finally:
        progress.close()
    if estimate.count > 1:
        session.write(f"\nFinal estimate: {estimate}\n")


def score_chunks(
    ctx: Context, chunks: npt.NDArray[np.int32], n_batch: int, ppl: bool
) -> Iterator[npt.NDArray[np.float64] | None]:
    """Run one batch of chunks at a time; yield -log p of each chunk's second half, or None."""
    import numpy as np

    tokenizer, n_ctx = ctx.model.tokenizer, chunks.shape[1]
    n_seqs = max(1, n_batch // n_ctx)
    for start in range(0, len(chunks), n_seqs):
        group = chunks[start : start + n_seqs]
        fed = group.copy()
        if tokenizer.add_bos and tokenizer.bos is not None:
            fed[:, 0] = tokenizer.bos
        parts = list(_decode_chunks(ctx, fed, min(n_batch, n_ctx)))
        for i, chunk in enumerate(group):
            if not ppl or n_ctx < 4:
                yield None
                continue
            logits = np.concatenate([part[i] for part in parts])
            yield -log_softmax(logits[n_ctx // 2 : -1], chunk[n_ctx // 2 + 1 :])


def _decode_chunks(
    ctx: Context, chunks: npt.NDArray[np.int32], n_batch: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield logits of all tokens, some of each chunk at a time, [n_chunks, n, n_vocab]."""
    import numpy as np

    from llama_py import Batch

    ctx.clear()
    for start in range(0, chunks.shape[1], n_batch):
        tokens = chunks[:, start : start + n_batch]
        seq_ids = [(s,) for s in range(len(chunks)) for _ in range(tokens.shape[1])]
        outputs = np.ones(tokens.size, np.bool_)
        found = ctx.decode(Batch(tokens.ravel(), seq_ids=seq_ids, outputs=outputs))
        yield found.reshape(len(chunks), -1, ctx.n_vocab)


def _save(o: ImatrixParams, collector: Collector, size: int, ending: str = "") -> None:
    from llama_py.quantize.imatrix.file import Imatrix, write_imatrix, write_old

    write: Callable[[str, Imatrix], None] = write_old if o.format == "dat" else write_imatrix
    path = o.output + ending
    found = collector.result(path, size)
    write(path, found)


def _tell(o: ImatrixParams, collector: Collector) -> None:
    partial = [name for name, e in collector.entries.items() if not e.counts.all()]
    session.tell(f"{o.output}: {len(collector.entries)} tensors")
    if partial:
        session.tell(
            f"{len(partial)} tensors have experts that received no token, such as {partial[0]}; "
            "use more text"
        )
