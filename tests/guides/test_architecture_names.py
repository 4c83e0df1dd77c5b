"""The name of an architecture stands in its own files only: those that are called by it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dev.tiny_models import every, find
from llama_py.models import known_architectures

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "llama_py" / "models"
TINY = ROOT / "dev" / "tiny_models"
GOLDEN = ROOT / "tests" / "data" / "golden"
SOURCES = tuple(ROOT / name for name in ("llama_py", "ggml_py", "backends", "apps", "dev"))

# Where the words mean something else:
VOCABULARIES = (
    "llama_py/tokenizer/pre.py",
    "llama_py/tokenizer/models/",
    "llama_py/tokenizer/special.py",
    "apps/llama_py_tools/command/chat_params.py",
    "llama_py/chat/reasoning_formats.py",
    "llama_py/loading/hub.py",  # how names of files begin
    "llama_py/checkpoint/",  # families of another library's models
    "dev/compare/transformers_side.py",  # models of another library
    "dev/compare/transformers_models/",
    "dev/record/author_checkpoints/",
    "dev/record/whole_checkpoints.py",
    "dev/compare/judge_transformers.py",
    "dev/compare/judge_peers.py",
    "dev/compare/judge_drafts.py",  # which tiny models draft for which
    "dev/compare/alarms/",
    "dev/compare/transformers_files.py",
    "dev/compare/transformers_rwkv.py",
    "dev/record/handmade_checkpoints.py",
    "dev/record/further_checkpoints.py",
    "dev/record/record_checkpoints.py",
    "dev/record/variant_checkpoints.py",
    "dev/record/media_checkpoints.py",
    "dev/record/sound_checkpoints.py",
    "llama_py/text/decision_",  # types of decision models
    "dev/record/record_systemone.py",
    "llama_py/_moved.py",
)
VOCABULARY = re.compile(r'"tokenizer\.ggml\.(model|pre)": ')
# With a capital it is a kind of layer, whoever has it, or who made several:
PUBLISHED = ("mamba", "mamba2", "rwkv6", "deepseek")
# Where one architecture is built upon another, or of a block, or drafts for it; and where one is
# made to be trained:
IMPORT = re.compile(
    r"from (llama_py\.(models|models\.trunks|blocks)|dev\.tiny_models)\.\w+ import |drafts_for=\("
)
ONE_MODEL = "dev/make/demo_model/"
SCOPE = r"(?![ -]scope)"  # a collection of autoencoders has a model's name in its own


def pattern(name: str, in_models: bool = False) -> re.Pattern[str]:
    """The whole word, with - or _; not within a longer name, nor in that of a C++ file.

    In models/ small letters count only: with capitals it is a class there, or a headline.
    "llama" counts as a string of its own only: it is the project's name, and llama.cpp's.
    """
    spelled = f"(?<=[\"']){name}(?=[\"'])" if name == "llama" else name.replace("-", "[-_]")
    any_case = not in_models and name not in PUBLISHED
    longer = "".join(
        f"|{x[len(name) :]}" for x in known_architectures() if x.startswith(f"{name}-")
    )
    ends = rf"(?!\w|[\w-]*\.cpp{longer}){SCOPE}"
    return re.compile(rf"(?<![\w-]){spelled}{ends}", re.I if any_case else 0)


@cache
def sources() -> list[tuple[Path, str, str]]:
    """Every file, its name in the project, and its text in small letters."""
    files = sorted(p for folder in SOURCES for p in folder.rglob("*") if p.suffix in (".py", ".cl"))
    named = [(path, path.relative_to(ROOT).as_posix()) for path in files]
    searched = [x for x in named if not x[1].startswith((*VOCABULARIES, ONE_MODEL))]
    return [(path, where, path.read_text("utf-8").lower()) for path, where in searched]


def places(name: str) -> Iterator[str]:
    """Lines that have the name in other files than `x.py`, and `_x.py` that its family shares."""
    for path, where, text in sources():
        if re.split("[-_]", name)[0].lower() not in text:
            continue
        in_models = path.is_relative_to(MODELS) or path.is_relative_to(TINY)
        if path.stem.removeprefix("_") == name.replace("-", "_"):
            continue
        word, other = pattern(name, in_models), IMPORT if in_models else VOCABULARY
        for i, line in enumerate(path.read_text("utf-8").splitlines(), 1):
            if word.search(line) and not other.search(line):
                yield f"{where}:{i}: {line.strip()}"


def test_names_stand_in_their_own_files() -> None:
    names = known_architectures()
    assert [f"{name}: {place}" for name in names for place in places(name)] == []


@pytest.mark.parametrize(
    ("name", "line", "found"),
    [
        ("gemma3", "as gemma3's window", True),
        ("gemma3", "if arch == 'gemma3':", True),
        ("gemma3", "class Gemma3(Decoder):", True),
        ("gemma3", "gemma3n, models/gemma3.cpp", False),
        ("gpt-oss", "GPT_OSS = 1", True),
        ("rwkv6", "(models/rwkv6-base.cpp)", False),
        ("bert", "nomic-bert", False),
        ("deepseek2", 'arch = "deepseek2-ocr"', False),
        ("mamba", "Mamba-2", False),
        ("mamba", 'kinds = {"mamba": 1}', True),
        ("llama", 'if hp.arch in ("llama", "deci"):', True),
        ("llama", "llama-py, as llama.cpp", False),
        ("gemma", "Gemma Scope's files", False),
    ],
)
def test_what_is_found(name: str, line: str, found: bool) -> None:
    assert bool(pattern(name).search(line)) is found


def test_each_has_its_own_files() -> None:
    ours = {path.stem for path in MODELS.glob("[!_]*.py")}
    assert {arch.replace("-", "_") for arch, _ in every()} == ours
    golden = (path.name for path in GOLDEN.iterdir() if path.is_dir())
    unrecorded = {case for case in every() if find(*case).unrecorded}
    without = {arch for arch, _ in unrecorded} - {arch for arch, _ in {*every()} - unrecorded}
    assert {arch.replace("-", "_") for arch in (*golden, *without)} == ours
