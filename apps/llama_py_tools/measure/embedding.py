"""llama-py-embedding: compute embeddings of texts, or a reranker's scores, like llama-embedding.

Texts are in -p or in a file, one per line (--embd-separator), and run in batches. With --pooling
rank, each line has a query and a document, separated by a tab (--cls-separator).
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ATTENTION, POOLING, ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py.params.rules import integers
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.escapes import ENCODING, unescape
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import RUN, CommonParams, FileParams, FormParams, SteeringParams
from llama_py_tools.command.ranks import HostsParams
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Model
    from llama_py.batch import F32

FORMATS = ("", "array", "json", "json+", "raw")
FIRST, AROUND = 16, 3  # values shown of a text's row, and at both ends of a token's row

log = logging.getLogger("llama_py")


class EmbeddingParams(Params):
    """Options of the texts, and of their rows' format."""

    prompt: str | None = option(
        None, "-p --prompt", "texts to embed, one per line", metavar="TEXT", env=""
    )
    file: str = option(
        "", "-f --file", "file with texts to embed, one per line", metavar="FILE", env=""
    )
    escape: bool = option(
        True,
        "-e --escape",
        r"process the escapes \n, \t, \\ and \x41 in texts",
        off="--no-escape",
        env="",
    )
    separator: str = option(
        "\n",
        "--embd-separator",
        "separator between texts (default: newline)",
        metavar="TEXT",
        env="",
    )
    cls_separator: str = option(
        "\t",
        "--cls-separator",
        "separator between query and document (default: tab)",
        metavar="TEXT",
        env="",
    )
    normalize: int = option(
        2,
        "--embd-normalize",
        "normalization of embeddings; -1: off, 0: maximum 32760, 1: sum 1, 2: length 1, N:"
        " p-norm 1; scores are unchanged",
        check=integers(-1),
        env="",
    )
    output_format: str = option(
        "",
        "--embd-output-format",
        "output format (default: readable text); array: [[...],...]; json: like OpenAI's API;"
        " json+: with similarities; raw: one embedding per line",
        choices=FORMATS,
        metavar="FORMAT",
        env="",
    )


class ReadingParams(ContextParams):
    """ContextParams for processing whole texts."""

    pooling: str = option(
        "auto",
        "--pooling",
        "pooling of hidden states (auto: from the model, none: one embedding per token)",
        choices=("auto", *POOLING),
        env="",
    )
    attention: str = option(
        "auto",
        "--attention",
        "attention mask, causal or non-causal (auto: from the model)",
        choices=("auto", *ATTENTION),
        env="",
    )


@dataclass(frozen=True)
class TextRows:
    """Rows [n_rows, n] of texts, and their pooling type; whole: printed as integers without a
    fraction."""

    rows: F32
    texts: list[str]
    pooling: str
    labels: Sequence[str]
    whole: bool


EPILOG = """examples:
  %(prog)s -m model.gguf -p "The sea is blue"
  %(prog)s -m model.gguf -f texts.txt --embd-output-format json
  %(prog)s -m reranker.gguf --pooling rank -f pairs.txt
"""


def parser() -> OptionParser:
    usage = "%(prog)s -m FILE -p TEXT [options]"
    common = (EmbeddingParams, "--pooling --attention", RUN)
    p = OptionParser("llama-py-embedding", common, usage=usage, description=__doc__, epilog=EPILOG)
    p.add(CommonParams, FileParams, EmbeddingParams)
    p.add(ReadingParams, CpuParams, FormParams, SteeringParams, ModelParams, without=("check",))
    p.add(HostsParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    o = read(args, EmbeddingParams)
    if o.prompt is None and not o.file:
        p.error("set texts with -p TEXT or -f FILE")
    if not o.separator or not o.cls_separator:
        p.error("a separator must not be empty")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    from llama_py.text.embed import normalize_rows
    from llama_py.text.rerank import labels

    o, how = read(args, EmbeddingParams), read(args, ReadingParams)
    texts = read_texts(o)
    session.loading()
    model = session.open_model(args)
    pooling = model.hparams.pooling if how.pooling == "auto" else how.pooling
    rows = _rows(args, model, texts, pooling)
    if pooling != "rank":
        rows = normalize_rows(rows, o.normalize)
    whole = pooling != "rank" and o.normalize == 0
    found = TextRows(rows, texts, pooling, labels(model), whole)
    for part in format_rows(found, o.output_format):
        session.write(part)


def read_texts(o: EmbeddingParams) -> list[str]:
    """Return the texts that the options name."""
    text = o.prompt or ""
    if o.file:
        text = Path(o.file).read_bytes().decode(*ENCODING).removesuffix("\n")
    return (unescape(text) if o.escape else text).split(o.separator)


def _rows(args: argparse.Namespace, model: Model, texts: list[str], pooling: str) -> F32:
    import numpy as np

    from ggml_py.errors import ContextError
    from llama_py.text.embed import reading, rows
    from llama_py.text.rerank import check_reranks, pair

    o, how = read(args, EmbeddingParams), read(args, ReadingParams)
    if model.has_encoder:
        raise ContextError(
            f"{model.arch} is an encoder-decoder model, which has no embeddings; use an "
            "embedding model"
        )
    if pooling == "rank":
        check_reranks(model)
    parts = [text.split(o.cls_separator) if pooling == "rank" else [text] for text in texts]
    tokens = [pair(model, each) for each in parts]
    _check(model, tokens, how.n_ctx)
    options = reading(tokens, how.n_batch)
    ctx = session.open_context(args, model, **options, pooling=pooling, attention=how.attention)
    return np.concatenate([np.atleast_2d(row) for row in rows(ctx, tokens)])


def _check(model: Model, tokens: list[list[int]], n_ctx: int | None) -> None:
    """Raise ContextError for a text longer than -c; warn about one without an end token."""
    from ggml_py.errors import ContextError

    longest = max(map(len, tokens))
    if n_ctx is not None and longest > n_ctx:
        raise ContextError(
            f"a text has {longest} tokens, but the context holds {n_ctx}; use a larger -c"
        )
    special = model.tokenizer.special_ids
    ends = {special.get("sep"), special.get("eos")}
    if any(not ids or ids[-1] not in ends for ids in tokens):
        log.info("a text does not end with SEP or EOS, because the model file does not add them")


def format_rows(found: TextRows, output_format: str) -> Iterator[str]:
    """Yield the output in parts (examples/embedding/embedding.cpp)."""
    if output_format == "raw":
        for row in found.rows:
            yield " ".join(_value(found, x) for x in row) + "\n"
    elif output_format:
        yield from _json(found, output_format)
    else:
        yield "\n"
        yield from _plain_lines(found)
    yield "\n"


def _value(found: TextRows, x: float) -> str:
    return f"{x:1.0f}" if found.whole else f"{x:1.7f}"


def _json(found: TextRows, output_format: str) -> Iterator[str]:
    from llama_py.text.embed import similarities

    rows = ["[" + ",".join(_value(found, x) for x in row) + "]" for row in found.rows]
    if output_format == "array":
        yield "[" + ",".join(rows) + "]\n"
        return
    head = '    {{\n      "object": "embedding",\n      "index": {},\n      "embedding": {}\n    }}'
    items = ",\n".join(head.format(i, row) for i, row in enumerate(rows))
    yield '{\n  "object": "list",\n  "data": [\n' + items + "\n  ]"
    if output_format == "json+" and len(found.texts) > 1:
        lines = (", ".join(f"{x:6.2f}" for x in row) for row in similarities(found.rows))
        cosines = ",\n".join(f"    [{line} ]" for line in lines)
        yield ',\n  "cosineSimilarity": [\n' + cosines + "\n  ]"
    yield "\n}\n"


def _plain_lines(found: TextRows) -> Iterator[str]:
    if found.pooling == "rank":
        for j, row in enumerate(found.rows):
            for x, label in zip(row, found.labels, strict=True):
                named = f" [{label}]" if len(row) > 1 else ""
                yield f"rerank score {j}: {x:8.3f}{named}\n"
        return
    form = "6.0f" if found.whole else "9.6f"
    for j, row in enumerate(found.rows):
        shown = [f"{x:{form}} " for x in row]
        if found.pooling == "none":
            shown[AROUND:-AROUND] = [" ... "]
        elif len(found.texts) > 1:
            del shown[FIRST:]
        yield f"embedding {j}: {''.join(shown)}\n"
    if found.pooling != "none" and len(found.texts) > 1:
        yield from _matrix(found)


def _matrix(found: TextRows) -> Iterator[str]:
    from llama_py.text.embed import similarities

    yield "\ncosine similarity matrix:\n\n"
    yield "".join(f"{text[:6]:>6} " for text in found.texts) + "\n"
    for row, text in zip(similarities(found.rows), found.texts, strict=True):
        yield "".join(f"{x:6.2f} " for x in row) + f"{text[:10]:>1}\n"


if __name__ == "__main__":
    raise SystemExit(main())
