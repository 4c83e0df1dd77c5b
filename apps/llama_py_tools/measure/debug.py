"""llama-py-debug: print or save the values of a model's nodes, and its logits.

The command prints nodes in llama-eval-callback's format. With --save-logits or --save-tensors it
prints only the nodes of --tensor-filter. With --save-logits alone the model runs at full speed.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from llama_py.params import ContextParams, ModelParams
from llama_py.params.option import Params, option
from llama_py_tools.command.options import OptionParser, read
from llama_py_tools.command.params import (
    RUN,
    CommonParams,
    FileParams,
    FormParams,
    InputParams,
    SteeringParams,
)
from llama_py_tools.models import session

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ggml_py.tensor import Tensor
    from llama_py import Context
    from llama_py.graph.result import GraphResult


def regex(text: str) -> tuple[re.Pattern[str], ...]:
    """Parse a pattern as llama-debug does, which puts `^` before it: `a|b` is an a at the start, or
    a b anywhere."""
    try:
        return (re.compile(f"^{text}"),)
    except re.error as e:
        raise ValueError(f"{text!r} is not a regular expression: {e}") from None


class DebugParams(Params):
    """Options for printing and saving nodes."""

    tensor_filter: tuple[re.Pattern[str], ...] = option(
        (),
        "--tensor-filter",
        "print only nodes with a name that matches ^REGEX; may be repeated",
        parse=regex,
        many=True,
        metavar="REGEX",
    )
    save_tensors: str = option(
        "",
        "--save-tensors",
        "folder for the values of nodes, <graph>-<node>-<name>.npy, and nodes.jsonl, for"
        " llama-py-graph diff",
        metavar="DIR",
    )
    save_logits: str = option(
        "",
        "--save-logits",
        "file for the logits, float32 [n_rows, n_vocab]: the last prompt token and each token"
        " of --decode",
        metavar="FILE.npy",
    )
    all_logits: bool = option(False, "--all-logits", "save the logits of all prompt tokens")

    @property
    def prints(self) -> bool:
        return bool(self.tensor_filter) or not (self.save_logits or self.save_tensors)


EPILOG = """examples:
  %(prog)s -m model.gguf -p "The sea" --tensor-filter attn_out
  %(prog)s -m model.gguf -p "The sea" --decode 8 --save-logits logits.npy
  %(prog)s -m model.gguf -p "The sea" --check ref   # compare each node with the NumPy backend
"""


def parser() -> OptionParser:
    usage = "%(prog)s -m FILE (-p TEXT | --tokens 1,2,3) [options]"
    common = (InputParams, DebugParams, "--check", RUN)
    p = OptionParser("llama-py-debug", common, usage=usage, description=__doc__, epilog=EPILOG)
    p.add(CommonParams, FileParams, InputParams, DebugParams)
    p.add(ContextParams, FormParams, SteeringParams, ModelParams)
    return p


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code (docs/commands.md)."""
    return session.run(_command, parser().parse_args(argv))


def _command(args: argparse.Namespace) -> None:
    options = read(args, DebugParams)
    n_decode = read(args, InputParams).decode
    model = session.open_model(args)
    ids = session.input_tokens(args, model)
    nodes = NodePrinter(options)
    ctx = session.open_context(
        args,
        model,
        n_ctx=session.enough_context(args, len(ids) + n_decode),
        watch=nodes if options.prints or options.save_tensors else None,
    )
    ctx.on_graph = nodes.next_graph
    logits = decode_greedily(ctx, ids, n_decode, options.all_logits)
    if ctx.checker is not None:
        session.tell(ctx.checker.text())
    if not nodes.found:
        session.log.warning("--tensor-filter: no node matches; llama-py-graph dump lists the nodes")
    if options.save_logits:
        import numpy as np

        with Path(options.save_logits).open("wb") as file:
            np.save(file, logits)


def decode_greedily(
    ctx: Context, ids: Sequence[int], n_decode: int, all_logits: bool
) -> npt.NDArray[np.float32]:
    """Decode a prompt and n_decode tokens greedily; return logits [n_rows, n_vocab]."""
    import numpy as np

    rows = [ctx.decode(ids, logits="all" if all_logits else "last")]
    for _ in range(n_decode):
        rows.append(ctx.decode([int(np.argmax(rows[-1][-1]))]))
    return np.concatenate(rows)


class NodePrinter:
    """Called with every node of every graph: prints it, saves it."""

    def __init__(self, options: DebugParams) -> None:
        self.options = options
        self.graph = -1
        self.index = 0
        self.found = not options.tensor_filter
        if options.save_tensors:
            Path(options.save_tensors).mkdir(parents=True, exist_ok=True)

    def next_graph(self, res: GraphResult, _: object) -> None:
        self.graph, self.index = self.graph + 1, 0
        if self.options.save_tensors:
            from ggml_py.inspection.dump import dump_json

            path = Path(self.options.save_tensors) / "nodes.jsonl"
            with path.open("a" if self.graph else "w", encoding="utf-8") as file:
                file.writelines(line + "\n" for line in dump_json(res.graph, self.graph))

    def __call__(self, t: Tensor) -> None:
        i, self.index = self.index, self.index + 1
        patterns = self.options.tensor_filter
        if patterns and not any(p.search(t.name) for p in patterns):
            return
        self.found = True
        from llama_py_tools.measure.node_text import heading, read_values, value_lines

        values = read_values(t)
        if self.options.prints:
            lines = [heading(t), *(value_lines(values) if values is not None else ())]
            session.write("\n".join(lines) + "\n")
        if self.options.save_tensors and values is not None:
            import numpy as np

            name = re.sub(r"[^\w.-]+", "_", t.name)
            np.save(Path(self.options.save_tensors) / f"{self.graph}-{i:05d}-{name}.npy", values)
