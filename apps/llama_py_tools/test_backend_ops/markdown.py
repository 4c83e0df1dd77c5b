"""Page docs/ops.md, made from the backends' supported ops and known differences from ggml."""

from __future__ import annotations

from ggml_py.ops.registry import OPS
from llama_py_tools.test_backend_ops.differences import DIFFERENCES

Answers = dict[tuple[str, str], dict[str, bool]]  # by op and backend: by parameters, taken or not

HEAD = """# Ops

Made by `test-backend-ops support --output markdown > docs/ops.md`; a test fails when it is stale.

## Which backend computes what

`yes`: every case of `test-backend-ops`; `30 of 48`: so many; `-`: none, the node runs on another
device. What is refused, and why: `test-backend-ops support -b opencl -o CPY`. Views
({views}) compute nothing and run everywhere.

"""

DIFFERENCES_HEAD = """
## Known differences from ggml

What `test-backend-ops --against ggml` finds, told in the files of the cases (`differs_from_ggml`).

| op | cases | ggml |
|---|---|---|
"""


def table(answers: Answers) -> str:
    """Return the text of the page."""
    backends = sorted({backend for _, backend in answers})
    ops = sorted({op for op, _ in answers} & set(OPS))
    lines = [_row("op", *backends), "|---" * (len(backends) + 1) + "|"]
    lines += [_row(op, *(_share(answers.get((op, b), {})) for b in backends)) for op in ops]
    views = ", ".join(sorted(name for name, spec in OPS.items() if spec.view))
    known = [_row(d.op, _code(d.cases()), d.why) for d in sorted(DIFFERENCES, key=lambda d: d.op)]
    return (
        HEAD.format(views=views)
        + "\n".join(lines)
        + "\n"
        + DIFFERENCES_HEAD
        + "".join(f"{line}\n" for line in known)
    )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _share(answers: dict[str, bool]) -> str:
    n = sum(answers.values())
    if n == len(answers):
        return "yes" if n else "-"
    return f"{n} of {len(answers)}" if n else "-"


def _code(text: str) -> str:
    """Return a Markdown code cell with `|` escaped."""
    return "`" + text.replace("|", "\\|") + "`" if text else "all"
