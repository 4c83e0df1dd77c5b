"""Nodes, rows and logits are those of the real libmtmd (dev/record/record_vision.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import llama_py
from dev import tiny_models as texts
from dev import tiny_vision as tiny
from dev.record.golden.store import fingerprint
from dev.record.golden.vision import DATA, TEXTS, images_of, key, recorded
from dev.record.golden.vision_ours import chunks, logits, nmse, nodes, prompt, rows
from llama_py.vision.projectors import known_projectors

BOUND = 3e-6
NAMES = list(tiny.every())
SIZES = [(name, size) for name in NAMES for size in tiny.every()[name].sizes]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vision")


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_those_that_were_recorded(name: str, folder: Path) -> None:
    about, _ = recorded(name)
    assert fingerprint(tiny.write(name, folder)) == about["gguf"]


def test_each_projector_is_recorded() -> None:
    others = {name for name, kind in known_projectors().items() if kind.same_as}
    assert set(NAMES) == known_projectors().keys() - others
    assert {path.name.removesuffix(".npz") for path in DATA.glob("*.npz")} == set(NAMES)


@pytest.mark.parametrize(("name", "size"), SIZES)
@pytest.mark.parametrize("flash", [False, True])
def test_nodes(name: str, size: tuple[int, int], flash: bool, folder: Path) -> None:
    about, _ = recorded(name)
    assert nodes(tiny.write(name, folder), size, flash) == about["nodes"][key(size, flash)]


@pytest.mark.parametrize(("name", "size"), SIZES)
@pytest.mark.parametrize("flash", [False, True])
def test_rows(name: str, size: tuple[int, int], flash: bool, folder: Path) -> None:
    _, arrays = recorded(name)
    found = rows(tiny.write(name, folder), size, flash)
    for i, part in enumerate(found):
        assert nmse(arrays[f"{key(size, flash)}.{i}"], part) < BOUND
    assert f"{key(size, flash)}.{len(found)}" not in arrays


@pytest.mark.parametrize("name", NAMES)
def test_logits_behind_images(name: str, folder: Path) -> None:
    about, arrays = recorded(name)
    one = tiny.every()[name]
    model = llama_py.load(str(texts.write(*tiny.text_of(one), folder)))
    model.load_vision(tiny.write(name, folder), flash_attn=False)
    for i, text in enumerate(TEXTS):
        given = prompt(model, text, images_of(one, text.count("<__media__>")))
        assert chunks(given) == about["chunks"][i]
        for expected, row in zip(arrays[f"logits.{i}"], logits(model, given), strict=True):
            assert nmse(expected, row) < BOUND


def test_a_picture_is_looked_at(folder: Path) -> None:
    """What is compared above depends on the image and on its place."""
    path = tiny.write(NAMES[0], folder)
    _, arrays = recorded(NAMES[0])
    size, other = tiny.every()[NAMES[0]].sizes[:2]
    (found,) = rows(path, other, flash=False)
    assert nmse(arrays[f"{key(size, False)}.0"], found) > 1e-3
    assert np.std(found, 0).max() > 1e-3
