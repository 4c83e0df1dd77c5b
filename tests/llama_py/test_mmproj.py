"""Encoders of images and sound become the files that llama.cpp's converter makes with --mmproj."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.record.tiny_checkpoints import read_records, write_folder
from dev.record.variant_checkpoints import rename_class
from ggml_py.errors import ModelError
from llama_py.checkpoint.arrays import LazyArray
from llama_py.checkpoint.convert import convert, plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.mmproj import media_converter, media_converters, omni
from llama_py.checkpoint.mmproj.gemma4 import softplus
from llama_py.checkpoint.mmproj.nemotron import resize_grid
from llama_py.checkpoint.models import converters
from llama_py.checkpoint.output import pieces
from llama_py.gguf.file import GGUFFile
from llama_py.loading.open import open_model
from llama_py.vision import Image, ImageEncoder

RECORDED = {name: one for name, one in read_records().items() if name.startswith("mmproj")}
CLASSES = {
    name: one for name, one in read_records()["classes"].items() if name.startswith("mmproj")
}
QWEN = "mmproj-qwen25vl"


def write_tiny(name: str, where: Path, folder: str = "") -> Path:
    made = where / (folder or name)
    one = RECORDED[name]
    write_folder(made, one["config"], one["tensors"], one.get("files"))
    return made


@pytest.mark.parametrize("name", CLASSES)
def test_other_names_of_classes(name: str, tmp_path: Path) -> None:
    folder, record = tmp_path / CLASSES[name]["of"], RECORDED[CLASSES[name]["of"]]
    config = rename_class(record, name.removeprefix("mmproj-"))
    write_folder(folder, *config, record.get("files"))
    made = convert_media(folder)
    assert hashlib.sha256(made).hexdigest() == CLASSES[name]["sha256"]


def change(folder: Path, file: str, **values: Any) -> None:
    """Set values of a JSON file; None removes a value."""
    content = json.loads((folder / file).read_text()) | values
    kept = {k: v for k, v in content.items() if v is not None}
    (folder / file).write_text(json.dumps(kept))


def convert_media(folder: Path, outtype: str = "f32") -> bytes:
    chosen, tensors = plan(folder, ConvertOptions(outtype, mmproj=True))
    return b"".join(pieces(chosen.out.stored, tensors))


@pytest.mark.parametrize("outtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("name", RECORDED)
def test_a_file_equals_that_of_llama_cpp(
    name: str, outtype: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(omni, "sinusoids", lambda length, n: np.zeros((length, 2 * n), np.float32))
    made = convert_media(write_tiny(name, tmp_path), outtype)
    expected = RECORDED[name]["sha256" if outtype == "f32" else outtype]
    assert hashlib.sha256(made).hexdigest() == expected


def test_embeddings_of_positions() -> None:
    made = omni.sinusoids(4, 3)
    rates = 10000.0 ** -np.array([0, 0.5, 1])
    angles = np.arange(4)[:, None] * rates
    np.testing.assert_allclose(made, np.hstack([np.sin(angles), np.cos(angles)]), atol=1e-6)


def test_softplus() -> None:
    found = softplus(np.array([-1.0, 0.0, 1.0, 19.9, 20.1], np.float32))
    np.testing.assert_allclose(found, [0.313262, 0.693147, 1.313262, 19.9, 20.1], rtol=1e-6)


def test_a_grid_of_positions_is_resized() -> None:
    """Corners remain; a value in the middle is the mean of the values around it."""
    grid = LazyArray.from_values(np.array([0.0, 1, 2, 3]).reshape(1, 4, 1))
    found = resize_grid(grid, 3).read().reshape(3, 3)
    np.testing.assert_allclose(found, [[0, 0.5, 1], [1, 1.5, 2], [2, 2.5, 3]])
    assert resize_grid(grid, 2) is grid
    with pytest.raises(ModelError, match="1 to 1024 patches per side, got 268435456"):
        resize_grid(grid, 2**28)


def test_all_classes_have_different_names() -> None:
    names = [name for kind in {*media_converters().values()} for name in kind.classes]
    assert len(names) == len({*names}) == len(media_converters())
    assert {*converters()} & {*media_converters()}  # the text model has the same class
    assert not {*converters().values()} & {*media_converters().values()}


def test_the_name_of_a_file(tmp_path: Path) -> None:
    folder = write_tiny(QWEN, tmp_path, "Tiny-VL-2B-Instruct")
    chosen, _ = plan(folder, ConvertOptions("f16", mmproj=True))
    assert chosen.file_name == "mmproj-Tiny-VL-2b-Instruct-F16.gguf"


def test_a_folder_encodes_like_its_file(tmp_path: Path) -> None:
    folder = write_tiny(QWEN, tmp_path)
    convert(folder, tmp_path / "mmproj.gguf", ConvertOptions(mmproj=True))
    image = Image.from_pixels(np.random.default_rng(1).integers(0, 256, (32, 48, 3), np.uint8))
    found = []
    for source in (tmp_path / "mmproj.gguf", open_model(folder, mmproj=True)):
        with ImageEncoder(source) as encoder:
            found.append(np.concatenate([*encoder.encode(image)]))
    assert found[0].shape[1] == 64 and np.isfinite(found[0]).all()
    np.testing.assert_array_equal(*found)


def test_the_row_of_a_token(tmp_path: Path) -> None:
    """Pixtral ends a row of patches with an embedding of the text model."""
    folder = write_tiny("mmproj-pixtral", tmp_path)
    convert(folder, tmp_path / "made.gguf", ConvertOptions("f32", mmproj=True))
    row = GGUFFile.open(tmp_path / "made.gguf").tensors["v.token_embd.img_break"]
    assert row.ne[0] == 64
    change(folder, "tokenizer_config.json", added_tokens_decoder=None)
    (folder / "tokenizer.json").write_text(json.dumps({"added_tokens": []}))
    with pytest.raises(ModelError, match="no token"):
        convert_media(folder)


def test_refused(tmp_path: Path) -> None:
    folder = write_tiny(QWEN, tmp_path)
    config = RECORDED[QWEN]["config"]
    change(folder, "config.json", architectures=["LlamaForCausalLM"])
    with pytest.raises(ModelError, match="no encoders of the class"):
        convert_media(folder)
    change(folder, "config.json", architectures=None)
    with pytest.raises(ModelError, match="architectures must name"):
        convert_media(folder)
    change(folder, "config.json", **{**config, "vision_config": None})
    with pytest.raises(ModelError, match="vision_config is missing"):
        convert_media(folder)
    wrong = {**config["vision_config"], "fullatt_block_indexes": [1, 2]}
    change(folder, "config.json", **{**config, "vision_config": wrong})
    with pytest.raises(ModelError, match="equal distances"):
        convert_media(folder)
    change(folder, "config.json", **config)
    (folder / "preprocessor_config.json").write_text("{}")
    with pytest.raises(ModelError, match="image_mean is missing"):
        convert_media(folder)


def test_an_encoder_without_a_number_of_layers(tmp_path: Path) -> None:
    folder = write_tiny("mmproj-phi4", tmp_path)
    vision = {**RECORDED["mmproj-phi4"]["config"]["vision_config"], "num_hidden_layers": None}
    change(folder, "config.json", vision_config=vision)
    with pytest.raises(ModelError, match="num_hidden_layers is missing"):
        convert_media(folder)


def test_unknown_names_have_a_remedy() -> None:
    with pytest.raises(ModelError, match="Qwen2_5_VLForConditionalGeneration"):
        media_converter("Qwen2_5VLForConditionalGeneration")
    with pytest.raises(ModelError, match="--list --mmproj"):
        media_converter("x")
