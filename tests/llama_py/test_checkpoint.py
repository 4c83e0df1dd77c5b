"""Checkpoints of Hugging Face become the files that llama.cpp's converter makes."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import llama_py
from dev.docs.converted_table import make_page
from dev.record.tiny_checkpoints import (
    convert_plain,
    plan_plain,
    read_records,
    values,
    write_adapter,
    write_folder,
    write_safetensors,
)
from dev.record.variant_checkpoints import rename_class, with_drafts, with_dspark
from ggml_py.errors import ModelError
from ggml_py.types import BY_NAME
from llama_py.checkpoint.adapter import plan_adapter
from llama_py.checkpoint.convert import convert, plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.floats import from_bits, to_bytes
from llama_py.checkpoint.model_name import size_label, split_name, title
from llama_py.checkpoint.models import converters
from llama_py.checkpoint.open import open_checkpoint
from llama_py.checkpoint.output import pieces
from llama_py.checkpoint.safetensors import read_safetensors
from llama_py.gguf.file import GGUFFile

RECORDED = {
    name: one
    for name, one in read_records().items()
    if "config" in one and not name.startswith("mmproj")
}
ADAPTERS = {name: one for name, one in read_records().items() if "base" in one}
DRAFTS = [
    (one["drafts"], mode, digest)
    for one in read_records().values()
    if "drafts" in one
    for mode, digest in one["sha256"].items()
]
CLASSES = {
    name: one for name, one in read_records()["classes"].items() if not name.startswith("mmproj")
}
LLAMA, ROOT = "llama", Path(__file__).parents[2]


def write_tiny(name: str, where: Path) -> Path:
    made = where / name
    one = RECORDED[name]
    write_folder(made, one["config"], one["tensors"], one.get("files"), one.get("target"))
    return made


@pytest.mark.parametrize("name", RECORDED)
def test_a_file_equals_that_of_llama_cpp(name: str, tmp_path: Path) -> None:
    made = convert_plain(write_tiny(name, tmp_path))
    assert hashlib.sha256(made).hexdigest() == RECORDED[name]["sha256"]


@pytest.mark.parametrize(("name", "mode", "digest"), DRAFTS)
def test_layers_that_draft_tokens(name: str, mode: str, digest: str, tmp_path: Path) -> None:
    """They are converted with the others, or as a separate file."""
    record = RECORDED[name]
    given = with_dspark(record) if mode == "dspark" else with_drafts(name, record)
    write_folder(tmp_path / name, *given, target=given[0])
    options = {"nextn": True, "draft": "" if mode == "nextn" else mode}
    assert hashlib.sha256(convert_plain(tmp_path / name, **options)).hexdigest() == digest


@pytest.mark.parametrize("name", CLASSES)
def test_other_names_of_classes(name: str, tmp_path: Path) -> None:
    folder, record = tmp_path / CLASSES[name]["of"], RECORDED[CLASSES[name]["of"]]
    more = record.get("files"), record.get("target")
    write_folder(folder, *rename_class(record, name), *more)
    made = convert_plain(folder)
    assert hashlib.sha256(made).hexdigest() == CLASSES[name]["sha256"]


def test_files_of_drafting_layers(tmp_path: Path) -> None:
    """A model without such layers is refused; the name of the file begins with the option's."""
    options = ConvertOptions("f32", draft="mtp", pre="llama-bpe")
    folder = write_tiny(LLAMA, tmp_path)
    with pytest.raises(ModelError, match="no layers that draft tokens"):
        plan(folder, options)
    with pytest.raises(ModelError, match="no layers that draft tokens"):
        plan(write_tiny("qwen35", tmp_path), options)
    with pytest.raises(ModelError, match="convert without --mtp, --dspark"):
        plan(tmp_path / "qwen35", ConvertOptions("f32", draft="dspark"))
    write_folder(tmp_path / "model", *with_drafts("qwen35", RECORDED["qwen35"]))
    (tmp_path / "model" / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    chosen, tensors = plan(tmp_path / "model", options)
    assert chosen.file_name == "mtp-Model-F32.gguf"
    assert {t.name for t in tensors if not t.name.startswith("blk.4.")} == {
        "token_embd.weight", "output_norm.weight", "output.weight"
    }  # fmt: skip


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_equals_that_of_llama_cpp(name: str, tmp_path: Path) -> None:
    base = ADAPTERS[name]["base"]
    write_adapter(tmp_path / "adapter", RECORDED[base]["tensors"])
    chosen, tensors = plan_adapter(tmp_path / "adapter", write_tiny(base, tmp_path))
    made = b"".join(pieces(chosen.out.stored, tensors))
    assert hashlib.sha256(made).hexdigest() == ADAPTERS[name]["sha256"]


def test_a_converted_adapter_changes_the_logits(tmp_path: Path) -> None:
    """The adapter of a folder has the effect of its matrices, added to those of the model."""
    config, tensors = RECORDED[LLAMA]["config"], RECORDED[LLAMA]["tensors"]
    folder = write_tiny(LLAMA, tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    write_adapter(tmp_path / "adapter", tensors)
    chosen, made = plan_adapter(tmp_path / "adapter", folder)
    (tmp_path / "lora.gguf").write_bytes(b"".join(pieces(chosen.out.stored, made)))
    merged = dict[str, tuple[str, list[int], bytes]]()
    parts = read_safetensors(tmp_path / "adapter" / "adapter_model.safetensors")
    for name, (dtype, shape) in tensors.items():
        data = np.frombuffer(values(name, dtype, shape), np.float32).reshape(shape)
        key = f"base_model.model.{name.removesuffix('.weight')}.lora_"
        if f"{key}A.weight" in parts:
            a, b = (parts[f"{key}{p}.weight"].array() for p in "AB")
            data = data + 8 / 4 * (b @ a)
        merged[name] = dtype, shape, data.astype(np.float32).tobytes()
    write_folder(tmp_path / "merged", config, tensors)
    (tmp_path / "merged" / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    write_safetensors(tmp_path / "merged" / "model.safetensors", merged)
    options, logits = ConvertOptions("f32", pre="llama-bpe"), []
    for source, loras in ((folder, [tmp_path / "lora.gguf"]), (tmp_path / "merged", [])):
        file = open_checkpoint(source, options)
        with llama_py.load(file) as model, model.context(type_k="f32", type_v="f32") as ctx:
            ctx.set_adapters({model.load_adapter(path): 1.0 for path in loras})
            logits.append(ctx.decode([1, 5, 9, 2])[-1].astype(np.float64))
    error = np.square(logits[0] - logits[1]).sum() / np.square(logits[1]).sum()
    assert error < 1e-9


def test_refused_adapters(tmp_path: Path) -> None:
    folder, tensors = write_tiny(LLAMA, tmp_path), RECORDED[LLAMA]["tensors"]
    write_adapter(tmp_path / "adapter", tensors)
    weights = tmp_path / "adapter" / "adapter_model.safetensors"
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    for given, error in (
        ({"base_model.model.lm_head.weight": [128, 64]}, "must be lora_A or lora_B"),
        ({f"{name}.lora_A.weight": [4, 64]}, "must have lora_A and"),
        ({f"{name}.lora_A.weight": [4, 64], f"{name}.lora_B.weight": [64, 8]}, "do not fit"),
        ({f"{name}.lora_A.weight": [4, 64], f"{name}.lora_B.weight": [63, 4]}, "cannot have shape"),
    ):
        made = {n: ("F32", s, values(n, "F32", s)) for n, s in given.items()}
        write_safetensors(weights, made)
        with pytest.raises(ModelError, match=error):
            plan_adapter(tmp_path / "adapter", folder)
    weights.unlink()
    with pytest.raises(ModelError, match="no such file"):
        plan_adapter(tmp_path / "adapter", folder)


def test_all_classes_have_different_names() -> None:
    names = [name for kind in {*converters().values()} for name in kind.classes]
    assert len(names) == len({*names}) == len(converters())


def test_factors_of_frequencies(tmp_path: Path) -> None:
    """Llama 3.1 has factors by wavelength: 1 for short ones, `factor` for long ones."""
    folder, rope = write_tiny(LLAMA, tmp_path), {"rope_type": "llama3", "rope_theta": 500000.0}
    rope |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    rope |= {"original_max_position_embeddings": 64}
    config = {**RECORDED[LLAMA]["config"], "rope_parameters": rope}
    (folder / "config.json").write_text(json.dumps(config))
    _, tensors = plan_plain(folder)
    assert tensors[0].name == "rope_freqs.weight"
    factors = tensors[0].array.read()
    assert factors[0] == 1 and factors[-1] == 8 and (np.diff(factors) >= 0).all()
    assert 1 < factors[1] < 8


def test_the_page_of_classes_is_current() -> None:
    page = (ROOT / "docs" / "converted.md").read_text("utf-8")
    assert page == make_page() + "\n", "run python -m dev.docs.converted_table > docs/converted.md"


def test_types(tmp_path: Path) -> None:
    """Matrices take the wanted type; norms remain F32; auto takes the stored type."""
    folder = write_tiny(LLAMA, tmp_path)
    for outtype, type in (("f16", "f16"), ("bf16", "bf16"), ("q8_0", "q8_0"), ("auto", "f16")):
        out = tmp_path / f"{outtype}.gguf"
        out.write_bytes(convert_plain(folder, outtype=outtype))
        with GGUFFile.open(out) as file:
            assert file.tensors["blk.0.attn_q.weight"].type == BY_NAME[type]
            assert file.tensors["blk.0.attn_norm.weight"].type == BY_NAME["f32"]
    config, tensors = RECORDED[LLAMA]["config"], RECORDED[LLAMA]["tensors"]
    write_folder(tmp_path / "half", config, {k: ["BF16", s] for k, (_, s) in tensors.items()})
    out.write_bytes(convert_plain(tmp_path / "half", outtype="auto"))
    with GGUFFile.open(out) as file:
        assert file.tensors["output.weight"].type == BY_NAME["bf16"]


def test_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are the same whatever the size of the parts in which tensors are converted."""
    whole = {name: write_tiny(name, tmp_path) for name in (LLAMA, "qwen3moe")}
    for options in ({"outtype": "q8_0"}, {"outtype": "bf16"}):
        made = [convert_plain(folder, **options) for folder in whole.values()]
        monkeypatch.setattr("llama_py.checkpoint.arrays.PART", 100)
        assert [convert_plain(folder, **options) for folder in whole.values()] == made
        monkeypatch.undo()


def test_shards(tmp_path: Path) -> None:
    """Shards of an index give the same file as one file with their tensors in order."""
    folder = write_tiny(LLAMA, tmp_path)
    whole = convert_plain(folder)
    tensors = RECORDED[LLAMA]["tensors"]
    names, index = [*tensors], dict[str, str]()
    for i, part in enumerate((names[:7], names[7:])):
        file = f"model-0000{i + 1}-of-00002.safetensors"
        made = {n: (*tensors[n], values(n, *tensors[n])) for n in part}
        write_safetensors(folder / file, made)
        index |= dict.fromkeys(part, file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert convert_plain(folder) == whole
    (folder / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelError, match="1 of 2 files of weights are missing"):
        plan(folder)


def test_refused_folders(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such folder"):
        plan(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelError, match=r"is a folder without a config.json"):
        plan(tmp_path / "empty")
    folder = write_tiny(LLAMA, tmp_path)
    stored = json.loads((folder / "config.json").read_text())

    def config(**changes: Any) -> None:
        (folder / "config.json").write_text(json.dumps({**stored, **changes}))

    config(architectures=["LlamaForCausalLN"])
    with pytest.raises(ModelError, match="LlamaForCausalLM"):
        plan(folder)
    config(num_hidden_layers="many")
    with pytest.raises(ModelError, match="num_hidden_layers must be an integer"):
        plan(folder)
    config(rms_norm_eps=[])
    with pytest.raises(ModelError, match="layer_norm_rms_epsilon"):
        plan(folder)
    config()
    with pytest.raises(ModelError, match=r"tokenizer.json: no such file"):
        convert(folder, tmp_path / "out.gguf")
    assert not (tmp_path / "out.gguf").exists()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="Python pickles"):
        plan(folder)


def test_damaged_files_raise_one_error(tmp_path: Path) -> None:
    """With changed bytes in a header, the reader returns tensors within the file, or raises."""
    path = tmp_path / "a.safetensors"
    write_safetensors(path, {n: ("F32", [2, 3], bytes(24)) for n in ("a", "b")})
    good, draw = path.read_bytes(), random.Random(1)
    (n,) = struct.unpack("<Q", good[:8])
    raised = 0
    for _ in range(2000):
        data = bytearray(good)
        for _ in range(draw.choice((1, 1, 3))):
            data[draw.randrange(8 + n)] = draw.choice(b'0123456789-,:"[]{}eaU\xff\x00')
        path.write_bytes(data[: draw.choice((len(data), draw.randrange(len(data))))])
        try:
            for t in read_safetensors(path).values():
                assert t.array().size == np.prod(t.shape)
        except ModelError as e:
            assert "\n" not in str(e)
            raised += 1
    assert raised > 1000


@pytest.mark.parametrize(
    ("entry", "error"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "of 8 bytes must be within"),
        ({"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}, "must be within"),
        ({"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}, "shape"),
        ({"dtype": "F32", "shape": [True, 2], "data_offsets": [0, 8]}, "shape"),
        ({"dtype": "F32", "shape": [2**62, 8], "data_offsets": [0, 8]}, "must be within"),
        ({"dtype": "C128", "shape": [2], "data_offsets": [0, 8]}, "dtype must be"),
        ({"dtype": "F32", "shape": [2]}, "lacks"),
        ([], "lacks"),
    ],
)
def test_refused_entries(entry: Any, error: str, tmp_path: Path) -> None:
    text = json.dumps({"a": entry}).encode()
    (tmp_path / "a").write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    with pytest.raises(ModelError, match=error):
        read_safetensors(tmp_path / "a")


def test_floats() -> None:
    """FP8 has the values of its standards; BF16 and Q8_0 round like gguf-py."""
    quants = pytest.importorskip("gguf.quants")
    kinds = pytest.importorskip("gguf").GGMLQuantizationType
    byte = np.arange(256, dtype=np.uint8)
    e4m3 = from_bits("F8_E4M3", byte)
    assert (e4m3[0x7E], e4m3[0x01], e4m3[0x08], e4m3[0xB8]) == (448, 2**-9, 2**-6, -1)
    assert np.isnan(e4m3[[0x7F, 0xFF]]).all() and np.isfinite(e4m3).sum() == 254
    assert from_bits("F8_E5M2", byte)[0x7B] == 57344
    assert from_bits("F8_E8M0", byte)[[0, 127, 254]].tolist() == [2.0**-127, 1, 2.0**127]
    rng = np.random.default_rng(0)
    x = rng.standard_normal((4, 64), np.float32) * np.float32(10.0) ** rng.integers(-9, 9, (4, 1))
    x = x.astype(np.float32)
    x[0, :32] = 0
    x[1, 0], x[1, 1] = np.inf, np.nan
    assert to_bytes(BY_NAME["bf16"], x).tobytes() == quants.quantize(x, kinds.BF16).tobytes()
    x[1] = 1
    for name, kind in (("q8_0", kinds.Q8_0), ("f16", kinds.F16)):
        with np.errstate(over="ignore"):
            expected = quants.quantize(x, kind)
        assert to_bytes(BY_NAME[name], x).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen3-8B", "meta-llama/Llama-3.2-1B-Instruct", "Mixtral-8x7B-Instruct-v0.1",
        "bloom-7b1", "gemma-2-9b-it", "phi-3-mini-4k-instruct", "./out", "a b", "T5-large-v1.1",
        "SmolLM2-135M-Instruct", "yi-34b-200k", "x", "model-q4_k-lora", "a/b/c-7B",
    ],
)  # fmt: skip
@pytest.mark.parametrize("n_params", [0, 8_000_000_000, -3_000_000])
def test_names_have_the_split_name_gguf_py(name: str, n_params: int) -> None:
    gguf = pytest.importorskip("gguf")
    found = gguf.Metadata.get_model_id_components(name, n_params)
    assert tuple(split_name(name, n_params)) == found
    assert title(name) == gguf.Metadata.id_to_title(name)


@pytest.mark.parametrize("counts", [(7, 7, 0, 0), (8_100_000_000, 8_100_000_000, 0, 0),
                                    (46_700_000_000, 1_600_000_000, 5_600_000_000, 8)])  # fmt: skip
def test_size_labels(counts: tuple[int, int, int, int]) -> None:
    gguf = pytest.importorskip("gguf")
    assert size_label(*counts) == gguf.size_label(*counts)


def test_a_folder_is_loaded_like_its_file(tmp_path: Path) -> None:
    """`load` accepts a folder; the logits equal those of the converted file, bit for bit."""
    folder = write_tiny(LLAMA, tmp_path)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    options = ConvertOptions(pre="llama-bpe")
    convert(folder, tmp_path / "a.gguf", options)
    logits = []
    for source in (open_checkpoint(folder, options), tmp_path / "a.gguf"):
        with llama_py.load(source) as model, model.context(n_ctx=64) as ctx:
            logits.append(ctx.decode([1, 5, 9, 2])[-1])
    assert logits[0].tobytes() == logits[1].tobytes()
    with llama_py.load(folder) as model:  # its pre-tokenizer is found
        assert model.tokenizer.tokenize("a") == [64]


def byte_tokenizer() -> dict[str, Any]:
    """Return a byte-level BPE with one merge, as tokenizer.json."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.BPE({chr(33 + i): i for i in range(90)} | {"th": 90}, [("t", "h")]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def test_stored_bytes_are_copied(tmp_path: Path) -> None:
    """A tensor of the wanted type has the bytes of its conversion, also with NaN of all kinds."""
    folder = tmp_path / "model"
    config, tensors = RECORDED[LLAMA]["config"], RECORDED[LLAMA]["tensors"]
    write_folder(folder, config, {k: ["BF16", s] for k, (_, s) in tensors.items()})
    stored = read_safetensors(folder / "model.safetensors")
    name = "model.embed_tokens.weight"
    bits = np.arange(128 * 64, dtype=np.uint16) * 8 + 1  # with signaling NaN
    made = {n: (t.dtype, [*t.shape], t.data.tobytes()) for n, t in stored.items()}
    write_safetensors(
        folder / "model.safetensors", {**made, name: ("BF16", [128, 64], bits.tobytes())}
    )
    _, parts = plan_plain(folder, outtype="bf16")
    tensor = next(t for t in parts if t.name == "token_embd.weight")
    found = b"".join(tensor.pieces())
    assert found == to_bytes(tensor.type, tensor.array.read()).tobytes() != bits.tobytes()
