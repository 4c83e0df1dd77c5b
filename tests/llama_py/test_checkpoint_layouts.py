"""Layouts of checkpoints that transformers 5 saves, drafting layers, and vocabularies."""

from __future__ import annotations

import base64
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from dev.record.tiny_checkpoints import read_records, write_folder
from ggml_py.errors import ModelError
from llama_py.checkpoint.convert import wrap_errors
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.output import pieces
from llama_py.checkpoint.tiktoken import kimi_vocabulary
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.checkpoint.vocabulary_files import plamo_vocabulary, rwkv_vocabulary
from llama_py.gguf.write import encode

RECORDED = read_records()


def convert(folder: Path, config: dict[str, Any], tensors: dict[str, Any], **options: Any) -> Any:
    """Write a folder and convert it without tokens. -> keys, tensors"""
    write_folder(folder, config, tensors)
    checkpoint = CheckpointFolder(folder)
    kind = converter(checkpoint.model_name)
    plain = type("Plain", (kind,), {"vocabulary": lambda self, v: v.write_none(), "classes": ()})
    chosen = plain(checkpoint, ConvertOptions(**{"outtype": "f32"} | options))
    tensors = chosen.convert()
    return chosen.out.stored, tensors


def content(stored: Any, tensors: Any) -> bytes:
    return b"".join(pieces(stored, tensors))


@pytest.mark.parametrize(
    ("name", "changes", "lacks", "renames"),
    [
        ("deepseek3", {}, ("scoring_func",), {}),
        (
            "kimi-linear", {},
            ("first_k_dense_replace", "moe_router_activation_func", "linear_attn_config"),
            {"layers.0.mlp.": "layers.0.block_sparse_moe."},
        ),
        ("granitehybrid", {"layer_types": ["linear_attention", "full_attention"] * 2}, (), {}),
    ],
)  # fmt: skip
def test_layouts_of_transformers_5(
    name: str, changes: dict[str, Any], lacks: tuple[str, ...], renames: dict[str, str],
    tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """Left out and renamed values make the same file; a warning names a router's function."""
    config, tensors = RECORDED[name]["config"], RECORDED[name]["tensors"]
    wanted = content(*convert(tmp_path / "a" / name, config, tensors))
    other = {k: v for k, v in (config | changes).items() if k not in lacks}
    for old, new in renames.items():
        assert any(old in key for key in tensors)
        tensors = {key.replace(old, new): value for key, value in tensors.items()}
    with caplog.at_level(logging.WARNING):
        found = convert(tmp_path / "b" / name, other, tensors)
    if renames:  # the values of a tensor depend on its name
        keys, made = convert(tmp_path / "c" / name, config, RECORDED[name]["tensors"])
        assert dict(found[0]) == dict(keys)
        shapes = {t.name: t.dims for t in made}
        assert {t.name: t.dims for t in found[1]} == shapes
    else:
        assert content(*found) == wanted
    asked = any("func" in key for key in lacks)
    assert any("use sigmoid" in message for message in caplog.messages) == asked


@pytest.mark.parametrize(
    ("name", "layer"),
    [("deepseek32", 2), ("glm4moe", 2), ("glm4moelite", 2), ("bailingmoe3", 2),
     ("nemotron_h_moe", 4)],
)  # fmt: skip
def test_layers_that_draft_tokens(name: str, layer: int, tmp_path: Path) -> None:
    entry = RECORDED[name]
    for nextn in (True, False):
        folder = tmp_path / str(nextn)
        stored, tensors = convert(folder, entry["config"], entry["tensors"], nextn=nextn)
        arch = stored["general.architecture"][12:].decode()
        names = {t.name for t in tensors}
        assert (f"blk.{layer}.nextn.eh_proj.weight" in names) == nextn
        assert (f"{arch}.nextn_predict_layers" in stored) == nextn
        assert stored[f"{arch}.block_count"] == encode("u32", layer + nextn)


def test_missing_experts_of_mxfp4(tmp_path: Path) -> None:
    entry = RECORDED["kimi-k3-mxfp4"]
    lost = "experts.2.w2.weight_"
    tensors = {k: v for k, v in entry["tensors"].items() if lost not in k}
    with pytest.raises(ModelError, match="3 of 4 experts in MXFP4"):
        convert(tmp_path / "a", entry["config"], tensors)
    other = entry["tensors"] | {"model.norm.weight_packed": ["U8", [4, 4]]}
    with pytest.raises(ModelError, match="only experts can be in MXFP4"):
        convert(tmp_path / "b", entry["config"], other)


def test_missing_values(tmp_path: Path) -> None:
    entry = RECORDED["deepseek32"]
    config = {k: v for k, v in entry["config"].items() if k != "index_topk"}
    with pytest.raises(ModelError, match="index_topk is missing"):
        convert(tmp_path / "a", config, entry["tensors"])
    entry = RECORDED["dots3note"]
    with pytest.raises(ModelError, match="normalization must be 'RMSNorm', got 'LayerNorm'"):
        convert(tmp_path / "b", entry["config"] | {"normalization": "LayerNorm"}, entry["tensors"])


def test_errors_have_the_path() -> None:
    for message in ("wrong", "/a/b: wrong"):
        with pytest.raises(ModelError, match=r"^/a/b: wrong$"), wrap_errors("/a/b"):
            raise ModelError(message)


def vocabulary(folder: Path, n_vocab: int | None) -> Vocabulary:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": 3}))
    return Vocabulary(CheckpointFolder(folder), KeyValues("a"), n_vocab)


def test_tiktoken(tmp_path: Path) -> None:
    """A merge divides a token as the tokens of lower ranks do."""
    tokens = [b"a", b"b", b"c", b" ", b"ab", b" c", b"abc", b"\xff"]
    lines = (b"%s %d\n" % (base64.b64encode(t), i) for i, t in enumerate(tokens))
    (tmp_path / "tiktoken.model").write_bytes(b"".join(lines))
    named = {"added_tokens_decoder": {"9": {"content": "[EOS]"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    v = vocabulary(tmp_path, 11)
    kimi_vocabulary(v)
    stored = v.out.stored
    assert stored["tokenizer.ggml.pre"] == encode("str", "kimi-k2")
    assert stored["tokenizer.ggml.merges"] == encode("arr[str]", ["a b", "Ġ c", "ab c"])
    texts = ["a", "b", "c", "Ġ", "ab", "Ġc", "abc", "ÿ"]
    special = ["<|reserved_token_8|>", "[EOS]", "<|reserved_token_10|>"]
    assert stored["tokenizer.ggml.tokens"] == encode("arr[str]", texts + special)
    assert stored["tokenizer.ggml.token_type"] == encode("arr[i32]", [1] * 8 + [3] * 3)
    (tmp_path / "tiktoken.model").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelError, match="not a file of tiktoken"):
        kimi_vocabulary(v)


def test_rwkv_world(tmp_path: Path) -> None:
    path = tmp_path / "rwkv_vocab_v20230424.txt"
    path.write_text("1 '\\x00' 1\n2 'a b' 3\n3 b'\\xe2' 1\n4 '\\n' 1\n", "utf-8")
    v = vocabulary(tmp_path, 6)
    rwkv_vocabulary(v)
    texts = ["<s>", "\\x00", "a b", "\\xe2", "\\n", "[PAD5]"]
    assert v.out.stored["tokenizer.ggml.tokens"] == encode("arr[str]", texts)
    assert v.out.stored["tokenizer.ggml.eos_token_id"] == encode("u32", 0)
    assert v.out.stored["tokenizer.ggml.eot_token_id"] == encode("u32", 261)
    path.write_text("1 open('x') 1\n", "utf-8")
    with pytest.raises(ModelError, match="not a line of tokens"):
        rwkv_vocabulary(v)


def test_plamo(tmp_path: Path) -> None:
    rows = [
        ["<|plamo:unk|>", 0.0, "UNKNOWN"],
        ["<|plamo:op|>", 0.0, "NORMAL"],
        ["a", -1.5, "NORMAL"],
    ]
    (tmp_path / "tokenizer.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"unk_token": "<|plamo:unk|>"}))
    v = vocabulary(tmp_path, 4)
    plamo_vocabulary(v)
    stored = v.out.stored
    assert stored["tokenizer.ggml.token_type"] == encode("arr[i32]", [2, 3, 1, 5])
    assert stored["tokenizer.ggml.scores"] == encode("arr[f32]", [0.0, 0.0, -1.5, -1000.0])
    assert stored["tokenizer.ggml.unknown_token_id"] == encode("u32", 0)


def test_tokens_without_embeddings(tmp_path: Path) -> None:
    """MiniMax-Text-01: ids that the tokenizer lacks are never sampled if their embeddings are 0."""
    sizes = {"hidden_size": 4, "num_hidden_layers": 0, "num_attention_heads": 1, "rotary_dim": 2}
    scales = {
        f"layernorm_{part}_{kind}": value
        for part in ("full_attention", "linear_attention", "mlp")
        for kind, value in (("alpha", 3.5), ("beta", 1.0))
    }
    config = {"architectures": ["MiniMaxText01ForCausalLM"], "vocab_size": 6} | sizes | scales
    folder = tmp_path / "a"
    write_folder(folder, config, {"model.embed_tokens.weight": ["F32", [6, 4]]})
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[-32:-16] = bytes(16)  # the embedding of token 4
    path.write_bytes(data)
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {"a": 0, "b": 1}}}))
    kind = converter("MiniMaxText01ForCausalLM")
    made = type("Plain", (kind,), {"vocabulary": lambda self, v: v.write_none(), "classes": ()})(
        CheckpointFolder(folder), ConvertOptions()
    )
    made.convert()
    assert made.out.stored["tokenizer.ggml.suppress_tokens"] == encode("arr[i32]", [4])
    assert made.out.stored["minimax-01.residual_scale"] == encode("f32", 3.5)
