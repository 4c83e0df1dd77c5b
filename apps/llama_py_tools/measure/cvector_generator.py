"""llama-py-cvector-generator: compute a control vector from pairs of prompts, like
llama-cvector-generator.

Line n of both files is a pair of prompts. The vector is the direction from negative to positive
prompts. Apply it with `--control-vector FILE`, also in llama.cpp.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py_tools.command.cpus import CpuParams
from llama_py_tools.command.escapes import ENCODING, unescape
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import RUN, CommonParams, FileParams, FormParams, SteeringParams
from llama_py_tools.command.progress import Progress
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py.steering import Pair


class CvectorParams(Params):
    """Options of a control vector's training."""

    group = "control vector"

    positive_file: str = option(
        "",
        "--positive-file",
        "file with prompts in the direction of the vector, one per line",
        metavar="FILE",
    )
    negative_file: str = option(
        "",
        "--negative-file",
        "file with prompts in the opposite direction, one per line",
        metavar="FILE",
    )
    template: str = option(
        "", "--template", "prompt with {} for each line of the files", metavar="TEXT"
    )
    suffix_file: str = option(
        "",
        "--suffix-file",
        "file with starts of responses, one per line; each pair is combined with each start",
        metavar="FILE",
    )
    method: str = option(
        "pca",
        "--method",
        "direction: first principal component of the differences (pca), or their mean (mean)",
        choices=("pca", "mean"),
        metavar="{pca,mean}",
    )
    tokens: str = option(
        "all",
        "--tokens",
        "differences of all tokens (all), or of each prompt's last token (last)",
        choices=("all", "last"),
        metavar="{all,last}",
    )
    output: str = option(
        "control_vector.gguf", "-o --output --output-file", "output file", metavar="FILE"
    )


def parser() -> OptionParser:
    usage = "%(prog)s -m FILE --positive-file FILE --negative-file FILE [options]"
    common = (CvectorParams, RUN)
    p = OptionParser("llama-py-cvector-generator", common, usage=usage, description=__doc__)
    p.add(CommonParams, FileParams, CvectorParams)
    p.add(ContextParams, CpuParams, FormParams, SteeringParams, ModelParams, without=("check",))
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    p = parser()
    args = p.parse_args(argv)
    o = read(args, CvectorParams)
    if not (o.positive_file and o.negative_file):
        p.error("set prompts with --positive-file FILE and --negative-file FILE")
    return session.run(_command, args)


def _command(args: argparse.Namespace) -> None:
    session.loading()
    from llama_py.steering import train
    from llama_py.steering.training import count_longest_prompt

    o = read(args, CvectorParams)
    pairs = read_pairs(o)
    model = session.open_model(args)
    n_ctx = session.enough_context(args, count_longest_prompt(model, pairs))
    ctx = session.open_context(args, model, n_ctx=n_ctx)
    vector = train(ctx, pairs, o.method, o.tokens, Progress("reading prompts"))
    vector.save(o.output)
    print(f"{o.output}: {len(vector)} directions of {len(pairs)} pairs, by {o.method}")


def read_pairs(o: CvectorParams) -> list[Pair]:
    """Return the pairs of prompts; ContextError if the files differ in their number of lines."""
    from llama_py.steering import template_pairs

    positive, negative = (read_lines(path) for path in (o.positive_file, o.negative_file))
    suffixes = read_lines(o.suffix_file) if o.suffix_file else [""]
    return template_pairs(o.template or "{}", positive, negative, suffixes)


def read_lines(path: str) -> list[str]:
    r"""Read the lines that are not empty, with their `\n` as line ends
    (ctrlvec_load_prompt_file)."""
    text = Path(path).read_bytes().decode(*ENCODING)
    return [unescape(line) for line in text.split("\n") if line]
