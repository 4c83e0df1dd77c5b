"""docs/architectures.md: every architecture, from its file, its tiny models and what is recorded.

python -m dev.docs.architecture_table > docs/architectures.md
python -m dev.docs.architecture_table LLAMA.CPP   # median lines of its files, and ours
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from dev import tiny_models as tiny
from dev.tiny_models._invent import Invented
from llama_py.hparams import HParams
from llama_py.memory.kept import Compressed, Index, Keeps, Kept, KeysValues, SameAs, State, Tokens
from llama_py.models import architecture
from llama_py.models.trunks.architecture import Architecture
from llama_py.weights import Weights

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden"

HEAD = """# Architectures

Made by `python -m dev.docs.architecture_table > docs/architectures.md`; a test fails when it
is stale.

*keeps*: what layers remember of the tokens they have seen
([memory/kept.py](../llama_py/memory/kept.py)). *tiny models*: the variants in
`dev/tiny_models/`, each with the number of runs that are recorded of the real llama.cpp and
compared with ours ([tests/data](../tests/data/README.md)).

{lines}
| architecture | file | lines | what it is | keeps | tiny models |
|---|---|---|---|---|---|
"""


LINES = """Half of the {n} files have at most {ours:g} lines; of llama.cpp's {n_theirs},
`src/models/*.cpp`, half have at most {theirs:g}
(`python -m dev.docs.architecture_table LLAMA.CPP`). What several have in common is in `_*.py`
beside them and in `llama_py/blocks`, as there in `src/llama-graph.cpp` and others.
"""
REFERENCE = 156, 178.0  # llama.cpp's files, and the median of their lines

OTHERWISE = """
## Where llama.cpp does otherwise

Graphs are llama.cpp's, node for node. Where it refuses a file, ends the process or leaves something
of a file out, this is what happens here, as the architectures' files say.

| architecture | |
|---|---|
"""
TOLD = re.compile(r"(?<!/)\bllama\.cpp\b")


def table() -> str:
    """The whole file: a row for each architecture that has a tiny model."""
    variants: dict[str, list[str]] = {}
    for arch, variant in tiny.every():
        variants.setdefault(arch, []).append(variant)
    rows = "".join(_row(arch, found) for arch, found in variants.items())
    head = HEAD.format(lines=lines(*REFERENCE))
    return head + rows + OTHERWISE + "".join(map(_otherwise, variants))


def lines(n_theirs: int, theirs: float) -> str:
    """The median of lines of architectures' files beside llama.cpp's."""
    files = {_file(arch) for arch, _ in tiny.every()}
    return LINES.format(n=len(files), ours=_median(files), n_theirs=n_theirs, theirs=theirs)


def _median(files: Iterable[Path]) -> float:
    return statistics.median(len(f.read_text(encoding="utf-8").splitlines()) for f in files)


def _file(arch: str) -> Path:
    return Path(inspect.getfile(architecture(arch)))


def _otherwise(arch: str) -> str:
    """What the docstrings of an architecture's file say of llama.cpp; "" if nothing."""
    text = _file(arch).read_text(encoding="utf-8")
    told = [part for doc in _docstrings(text) for part in doc.split(". ") if TOLD.search(part)]
    about = ". ".join(part.strip().rstrip(".") for part in told)
    return f"| `{arch}` | {about}. |\n" if told else ""


def _docstrings(text: str) -> Iterator[str]:
    """Of a module, its classes and functions, in order; each on one line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            yield " ".join((ast.get_docstring(node) or "").split())


def _row(arch: str, variants: list[str]) -> str:
    kind = architecture(arch)
    path = Path(inspect.getfile(kind))
    text = path.read_text(encoding="utf-8")
    file = path.relative_to(ROOT).as_posix()
    about = " ".join((inspect.getdoc(inspect.getmodule(kind)) or "").split("\n\n")[0].split())
    models = ", ".join(f"{variant} ({_runs(arch, variant)})" for variant in variants)
    cells = (
        f"`{arch}`",
        f"[{path.name}](../{file})",
        str(len(text.splitlines())),
        about,
        "; ".join(dict.fromkeys(what for v in variants for what in _keeps(kind, v))),
        models,
    )
    return f"| {' | '.join(cells)} |\n"


def _runs(arch: str, variant: str) -> int:
    """How many runs of llama.cpp are recorded."""
    path = GOLDEN / arch / f"{variant}.json"
    return len(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.is_file() else 0


def _keeps(kind: type[Architecture], variant: str) -> list[str]:
    """What the layers of a tiny model keep, each kind once, in their order."""
    model = tiny.find(kind.arch, variant)
    hp: HParams = kind.HParams(tiny.metadata(kind.arch, model), kind.arch)
    built = kind(hp, Weights(Invented(model), kind.arch), load_mtp=True)
    return [_words(built.keeps(il)) for il in hp.kept_layers]


def _words(kept: Kept) -> str:
    return " and ".join(map(_word, kept)) or "nothing"


def _word(one: Keeps) -> str:
    if isinstance(one, KeysValues):
        what = "keys and values" if one.n_embd_head_v else "latent keys"
        return f"{what} of a window ({one.window.kind})" if one.window else what
    names: dict[type, str] = {
        Index: "keys of an indexer",
        State: "a state",
        SameAs: "what another layer keeps",
        Tokens: "the tokens",
    }
    if isinstance(one, Compressed):
        return f"one key of every {one.ratio} tokens"
    return names[type(one)]


def main() -> None:
    if sys.argv[1:]:
        files = [*Path(sys.argv[1]).glob("src/models/*.cpp")]
        print(lines(len(files), _median(files)), end="")
    else:
        print(table(), end="")


if __name__ == "__main__":
    main()
