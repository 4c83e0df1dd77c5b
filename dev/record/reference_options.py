"""llama-completion's options beside those of llama-py-cli: which are here, and why the others not.

    python -m dev.record.reference_options record llama.cpp/common/arg.cpp > reference_options.tsv
    python -m dev.record.reference_options table > docs/llama-completion.md

The first reads llama.cpp's source; the second compares what was recorded with the declarations
here, and has the reasons below.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).parent / "reference_options.tsv"
EXAMPLE, COMMON = "LLAMA_EXAMPLE_COMPLETION", "LLAMA_EXAMPLE_COMMON"

# Why an option is not here, or not all of it; by the longest flag that turns on.
REASONS = {
    "--poll": "how long waiting threads spin is compiled in (`ggml_cpu/driver.py`); then they"
    " yield, then sleep",
    "--poll-batch": "as `--poll`",
    "--prio-batch": "a priority is the whole process's",
    "--backend-sampling": "samplers run on the host; they take some 0.1 ms a token",
    "--grp-attn-n": "self-extend: `--rope-scaling yarn` reaches further, and is what models are"
    " trained for",
    "--grp-attn-w": "as `--grp-attn-n`",
    "--no-host": "there are no such buffers: weights of the CPU lie in the mapped file, or"
    " repacked",
    "--defrag-thold": "deprecated: llama.cpp reads it and does nothing",
    "--parallel": "one text is completed; several sequences at once are for Python (`n_seq_max=`)",
    "--rpc": "devices of other machines are ranks of MPI: `--hosts` ([how](ranks.md))",
    "--lazy-mode": "a table of which single rows are read always stays in the mapped file",
    "--fit": "nothing is made smaller unasked: what does not fit is an error that says what does;"
    " `-dev auto` then uses the CPU alone",
    "--fit-target": "as `--fit`",
    "--fit-ctx": "as `--fit`",
    "--op-offload": "an op runs where its weight lies",
    "--docker-repo": "`-hf` and `-mu` fetch models",
    "--jinja": "`--no-jinja` is not here: templates by name are Jinja texts too",
}

HEAD = """# llama-completion's options

Made by `python -m dev.record.reference_options table > docs/llama-completion.md`; a test fails when
it is stale. The options are those that llama.cpp's `common/arg.cpp` ({version}) declares for
llama-completion; what is here has all its flags and its variable, and means the same. [All options
of llama-py-cli](options.md).

**{n_all} options: {n_here} are here, {n_part} in part, {n_missing} are not.**
"""


class Declared(NamedTuple):
    """An option of the reference; env is empty where it has no variable."""

    flags: tuple[str, ...]
    env: str
    value: str

    @property
    def name(self) -> str:
        """The longest flag that does not turn off."""
        return max(
            (f for f in self.flags if not f.startswith(("--no-", "-no-"))),
            key=len,
            default=self.flags[0],
        )


def declarations(source: str) -> Iterator[Declared]:
    """What arg.cpp declares for all examples or for llama-completion, in its order."""
    body = source[source.index("common_params_context common_params_parser_init(") :]
    for start in re.finditer(r"add_opt\(common_arg(?=\()", body):
        text = body[start.end() : _closing(body, start.end())]
        rest = body[start.end() + len(text) : body.index(";", start.end() + len(text))]
        examples = _named("set_examples", rest)
        wanted = not examples or COMMON in examples or EXAMPLE in examples
        if not wanted or EXAMPLE in _named("set_excludes", rest):
            continue
        head = text[: text.index("[](")]
        lists = re.match(r"\(\s*(?://[^\n]*\s*)*(\{[^{}]*\})\s*,\s*(\{[^{}]*\})?", head)
        assert lists is not None, head
        flags = re.findall(r'"(-[^"]+)"', "".join(filter(None, lists.groups())))
        value = re.match(r'"([^"\n]{1,40})",\s*(?=["s])', head[lists.end() :])
        env = re.search(r'set_env\("([^"]+)"\)', rest)
        yield Declared(tuple(flags), env[1] if env else "", value[1] if value else "")


def _closing(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    depth, i = 0, start
    for token in re.finditer(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|[()]', text[start:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        i = start + token.end()
        if depth == 0:
            break
    return i


def _named(what: str, text: str) -> str:
    found = re.search(rf"\.{what}\((?:\{{([^}}]*)\}}|(\w+))\)", text)
    return (found[1] or found[2]) if found else ""


def recorded() -> tuple[str, list[Declared]]:
    """The version that was read, and its options."""
    version, *lines = RECORDED.read_text().splitlines()
    rows = [line.split("\t") for line in lines]
    return version, [Declared(tuple(flags.split()), env, value) for flags, env, value in rows]


def ours() -> dict[str, str]:
    """The variable by flag, of llama-py-cli."""
    from llama_py_tools.generate.cli import parser

    made = parser()
    found = {flag: "" for flag in made._option_string_actions}
    found |= {flag: o.env for _, _, o in made.added for flag in (*o.flags, *o.off)}
    return found


def lacking(option: Declared, here: dict[str, str]) -> list[str]:
    """Flags and variables of an option that are not here."""
    absent = [flag for flag in option.flags if flag not in here]
    other = option.env if option.env and here.get(option.name, option.env) != option.env else ""
    return [*absent, *filter(None, [other])]


def state(option: Declared, here: dict[str, str]) -> str:
    """`yes`, `in part` or `no`."""
    if not lacking(option, here):
        return "yes"
    return "in part" if {*option.flags} & {*here} else "no"


def table() -> str:
    """The page."""
    version, options = recorded()
    here = ours()
    states = [state(option, here) for option in options]
    rows = []
    for option, found in zip(options, states, strict=True):
        reason = "" if found == "yes" else REASONS[option.name]
        flags = ", ".join(f"`{flag}`" for flag in option.flags)
        variable = f"`{option.env}`" if option.env else ""
        rows.append(f"| {flags} | {variable} | {found} | {reason} |\n")
    head = HEAD.format(
        version=version,
        n_all=len(options),
        n_here=states.count("yes"),
        n_part=states.count("in part"),
        n_missing=states.count("no"),
    )
    return head + "\n| option | variable | here | why not |\n|---|---|---|---|\n" + "".join(rows)


def main(argv: Sequence[str]) -> int:
    if len(argv) == 2 and argv[0] == "record":
        print(f"llama-cpp-python {version_of_reference()}")
        for flags, env, value in declarations(Path(argv[1]).read_text()):
            print(" ".join(flags), env, value, sep="\t")
    elif argv == ["table"]:
        print(table(), end="")
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


def version_of_reference() -> str:
    """The release that the tests compare with, which has this source."""
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    found = re.search(r"llama-cpp-python==([\d.]+)", text)
    assert found is not None
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
