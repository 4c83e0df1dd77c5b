"""Every tensor gets the type that the real llama-quantize gave it (tests/data/quantize)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dev.record.golden.quantize import Case, cases, packed, recorded_types, write_head
from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.file_types import FILE_TYPES, file_type, file_type_text, guess_type
from llama_py.quantize.imatrix.file import Imatrix, ImatrixEntry
from llama_py.quantize.plan import Wishes, check_imatrix, jobs, metadata
from llama_py.quantize.prune import order, rename_tensors
from llama_py_tools.command.options import read
from llama_py_tools.gguf.main import parser
from llama_py_tools.gguf.quantize_params import QuantizeParams, build_wishes

RECORDED = recorded_types()
CASES = dict(cases(list(FILE_TYPES)))
IMATRIX = Imatrix(
    "x.gguf", {"blk.0.attn_q.weight": ImatrixEntry(np.ones(256, np.float32), np.ones(1))}
)


def wishes(case: Case, type: str) -> Wishes:
    args = parser().parse_args(["quantize", *case.options, "x.gguf", type])
    return build_wishes(read(args, QuantizeParams))


@pytest.mark.parametrize("name", RECORDED)
def test_types(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    write_head(tmp_path / "head.gguf", case)
    imatrix = IMATRIX if case.imatrix else None
    with GGUFFile.open(tmp_path / "head.gguf") as file:
        found = {
            type: packed([j.type.name for j in jobs(file, wishes(case, type), imatrix)])
            for type in RECORDED[name]
        }
    assert found == RECORDED[name]


def test_what_is_recorded() -> None:
    """All types, and where the rules look at the model."""
    assert set(RECORDED["dense"]) == set(FILE_TYPES)
    same = [RECORDED[name]["Q4_K_M"] for name in ("dense", "65b", "70b", "falcon")]
    assert len(set(same)) == len(same)
    assert RECORDED["dense-imatrix"] != RECORDED["dense"] != RECORDED["dense-no-gqa"]


@pytest.fixture
def file(tmp_path: Path) -> GGUFFile:
    write_head(tmp_path / "head.gguf", CASES["dense"])
    return GGUFFile.open(tmp_path / "head.gguf")


def test_metadata(file: GGUFFile) -> None:
    """What is new stands at the end, as llama.cpp puts it there."""
    plan = Wishes(type=file_type("q4_k_m"), overrides={"a.b": -7, "c": "x" * 200})
    work = jobs(file, plan, IMATRIX)
    IMATRIX.datasets, IMATRIX.n_chunks = ["text.txt"], 12
    stored = metadata(file, plan, work, IMATRIX)
    assert list(stored)[-8:] == [
        "general.quantization_version",
        "general.file_type",
        "a.b",
        "c",
        "quantize.imatrix.file",
        "quantize.imatrix.dataset",
        "quantize.imatrix.entries_count",
        "quantize.imatrix.chunks_count",
    ]
    assert stored["a.b"][-4:] == b"\7\0\0\0" and len(stored["c"]) == 4 + 8 + 127


def test_pruned_layers_have_other_numbers() -> None:
    names = [f"blk.{i}.x" for i in (0, 1, 2, 10)] + ["y"]  # layers 3 to 9 have no tensors
    assert rename_tensors(names, []) == {name: name for name in names}
    assert rename_tensors(names, [1]) == {
        "blk.0.x": "blk.0.x",
        "blk.2.x": "blk.1.x",
        "blk.10.x": "blk.9.x",
        "y": "y",
    }
    assert sorted(names, key=order) == ["y", "blk.0.x", "blk.1.x", "blk.2.x", "blk.10.x"]
    with pytest.raises(GGUFError, match="unknown layer 11"):
        rename_tensors(names, [11])


def test_importance_that_does_not_fit(file: GGUFFile) -> None:
    work = jobs(file, Wishes(type=file_type("IQ2_XS")), None)
    with pytest.raises(
        GGUFError, match=r"blk.0.attn_k.weight: type iq2_xs needs an importance matrix"
    ):
        check_imatrix(work, None)
    with pytest.raises(GGUFError, match=r"set another type, such as --tensor-type 'blk.+=q4_K'"):
        check_imatrix(work, Imatrix("x", {}))
    entry = ImatrixEntry(np.ones(64, np.float32), np.ones(1))
    work = jobs(file, Wishes(type=file_type("Q4_0")), None)
    with pytest.raises(GGUFError, match="64 values for it, expected 256"):
        check_imatrix(work, Imatrix("x", {"blk.0.attn_q.weight": entry}))


def test_names_of_types() -> None:
    assert file_type("q4_k").name == file_type("15").name == "Q4_K_M"
    assert file_type("copy").copies
    with pytest.raises(ValueError, match="unknown file type 'Q9'; known: F32"):
        file_type("Q9")


def test_a_file_that_does_not_say_its_type() -> None:
    q8, q6 = (BY_NAME[name] for name in ("q8_0", "q6_K"))
    names = ("output.weight", "blk.10.a.weight", "blk.2.b.weight", "blk.2.a.weight")
    assert guess_type(dict(zip(names, (q8, q6, q6, q6), strict=True))) == 1024 + 18
    # as many of each: the layers' order decides, by their numbers
    assert guess_type(dict(zip(names, (q8, q8, q6, q6), strict=True))) == 1024 + 18
    assert guess_type(dict(zip(names, (q8, q6, q6, q8), strict=True))) == 1024 + 7


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (15, "Q4_K - Medium"),
        (0, "all F32"),
        (1024, "(guessed) all F32"),
        (27, "IQ3_S mix - 3.66 bpw"),
        (39, "NVFP4"),
        (1024 + 7, "(guessed) Q8_0"),
        (4, "unknown, may not work"),
    ],
)
def test_words_for_types_of_files(number: int, words: str) -> None:
    assert file_type_text(number) == words
