"""Checkpoints of embeddings and older models: vocabularies, adapters, unusual files."""

from __future__ import annotations

import base64
import json
import logging
import struct
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from dev.record.tiny_checkpoints import read_records, values, write_folder, write_safetensors
from ggml_py.errors import ModelError
from llama_py.checkpoint.convert import convert, plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.models.gemma4 import find_quantile
from llama_py.gguf.file import GGUFFile

RECORDED = read_records()
F32 = ConvertOptions(outtype="f32", pre="default")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def write(name: str, where: Path, files: dict[str, Any], **config: Any) -> Path:
    """Write a recorded checkpoint with JSON files, and changes of its config.json."""
    entry, made = RECORDED[name], where / name
    stored = {name: content for name, content in files.items() if isinstance(content, bytes)}
    write_folder(
        made, {**entry["config"], **config}, entry["tensors"],
        {name: content for name, content in files.items() if name not in stored},
    )  # fmt: skip
    for file, content in stored.items():
        (made / file).write_bytes(content)
    return made


def convert_keys(folder: Path, options: ConvertOptions = F32) -> dict[str, Any]:
    """Convert, and return the keys of the tokenizer without their prefix."""
    out = folder.parent / "out.gguf"
    convert(folder, out, options)
    with GGUFFile.open(out) as file:
        return {k.removeprefix("tokenizer.ggml."): file.metadata[k] for k in file.metadata}


def to_json(made: Tokenizer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def encode_pieces(pieces: list[tuple[str, float, int]], kind: int, charsmap: bytes = b"") -> bytes:
    """Return a SentencePiece model."""

    def field(number: int, value: int | bytes | float) -> bytes:
        if isinstance(value, float):
            return bytes([number << 3 | 5]) + struct.pack("<f", value)
        if isinstance(value, int):
            return bytes([number << 3, value])
        return bytes([number << 3 | 2, len(value)]) + value

    listed = b"".join(
        field(1, field(1, text.encode()) + field(2, score) + field(3, type))
        for text, score, type in pieces
    )
    return listed + field(2, field(3, kind)) + field(3, field(2, charsmap) + field(4, 0))


PIECES = [("<unk>", 0.0, 2), ("<s>", 0.0, 3), ("</s>", 0.0, 3), ("▁a", -1.5, 1), ("b", -2.5, 1)]


def test_word_pieces(tmp_path: Path) -> None:
    words = {w: i for i, w in enumerate(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b"))}
    made = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.add_special_tokens([*words][:4])
    made.enable_truncation(3)
    made.enable_padding(length=3)
    config = {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    files = {"tokenizer.json": to_json(made), "tokenizer_config.json": config}
    folder = write("bert", tmp_path, files)
    keys = convert_keys(folder)
    assert keys["model"] == "bert" and keys["token_type_count"] == 2
    assert keys["tokens"][:8] == [
        "[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁a", "b", "▁[PAD6]", "▁[PAD7]"
    ]  # fmt: skip
    assert [*keys["token_type"]][:8] == [CONTROL] * 4 + [NORMAL] * 2 + [UNUSED] * 2
    assert keys["seperator_token_id"] == 3 and keys["normalizer.lowercase"] is True
    assert len(keys["tokens"]) == 128
    with pytest.raises(ModelError, match="pre-tokenizer is not known") as first:
        plan(folder)
    made.no_truncation()
    made.no_padding()
    (folder / "tokenizer.json").write_text(json.dumps(to_json(made)))
    with pytest.raises(ModelError, match="pre-tokenizer is not known") as second:
        plan(folder)
    assert str(first.value) == str(second.value)  # a limit of the length changes no ids


def test_unigram_of_json(tmp_path: Path) -> None:
    vocab = [["<s>", 0.0], ["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["▁a", -1.5], ["<x>", 0]]
    charsmap = base64.b64encode(b"\1\2\3").decode()
    added = [{"id": i, "content": vocab[i][0], "special": i < 4} for i in (0, 1, 2, 3, 5)]
    tokenizer = {
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocab},
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap},
        "added_tokens": added,
    }
    config = {
        "tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>",
        "unk_token": "<unk>", "clean_up_tokenization_spaces": True, "cls_token": "<s>",
    }  # fmt: skip
    files = {"tokenizer.json": tokenizer, "tokenizer_config.json": config}
    folder = write("xlm-roberta-classifier", tmp_path, files, vocab_size=7)
    keys = convert_keys(folder)
    assert keys["tokens"] == ["<s>", "<pad>", "</s>", "<unk>", "▁a", "<x>", "[PAD6]"]
    assert [*keys["token_type"]] == [
        CONTROL, USER_DEFINED, CONTROL, UNKNOWN, NORMAL, USER_DEFINED, UNUSED
    ]  # fmt: skip
    assert [*keys["scores"]] == [0, 0, 0, 0, -1.5, 0, -10000]
    assert keys["add_space_prefix"] is True and keys["remove_extra_whitespaces"] is True
    assert bytes([*keys["precompiled_charsmap"]]) == b"\1\2\3" and keys["model"] == "t5"
    del tokenizer["normalizer"]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelError, match="must have pieces with scores"):
        plan(folder, F32)


def test_sentencepiece_of_xlm_roberta(tmp_path: Path) -> None:
    """XLM-RoBERTa has other first tokens than its SentencePiece model."""
    model = encode_pieces(PIECES, 1, b"\1")
    folder = write("xlm-roberta-classifier", tmp_path, {"sentencepiece.bpe.model": model})
    keys = convert_keys(folder)
    assert keys["tokens"][:6] == ["<s>", "<pad>", "</s>", "<unk>", "▁a", "b"]
    assert len(keys["tokens"]) == 128 and keys["tokens"][-1] == "[PAD126]"
    (folder / "sentencepiece.bpe.model").write_bytes(encode_pieces(PIECES, 2))
    with pytest.raises(ModelError, match="must be a Unigram model"):
        plan(folder, F32)


def test_sentencepiece_of_t5(tmp_path: Path) -> None:
    files = {"spiece.model": encode_pieces(PIECES, 1), "added_tokens.json": {"<extra>": 6}}
    folder = write("t5", tmp_path, files, vocab_size=7)
    keys = convert_keys(folder)
    assert keys["tokens"] == ["<unk>", "<s>", "</s>", "▁a", "b", "[PAD5]", "<extra>"]
    assert keys["model"] == "t5" and keys["scores"][6] == -1000
    assert keys["remove_extra_whitespaces"] is False and "precompiled_charsmap" not in keys
    (folder / "tokenizer.model").write_bytes(encode_pieces(PIECES, 2))
    assert convert_keys(folder)["model"] == "llama"


def test_added_tokens_of_phi(tmp_path: Path) -> None:
    decoder = {"3": {"content": "<|x|>", "special": False}, "5": {"content": "▁y", "special": True}}
    config = {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": decoder}
    files = {"tokenizer.model": encode_pieces(PIECES, 2), "tokenizer_config.json": config}
    folder = write("phi3", tmp_path, files, vocab_size=7)
    keys = convert_keys(folder)
    assert keys["tokens"][3] == "<|x|>" and keys["tokens"][5] == "▁y"
    assert [*keys["token_type"]][3:] == [USER_DEFINED, NORMAL, CONTROL, UNUSED]
    decoder["9"] = {"content": "z", "special": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="token 9 must be in the vocabulary"):
        plan(folder, F32)


def test_visible_tokens_of_gemma4(tmp_path: Path) -> None:
    vocab = {t: i for i, t in enumerate(("<pad>", "<bos>", "<|tool_call>", "<0x41>", "a", "b"))}
    made = Tokenizer(models.BPE({**vocab, "ab": 6}, [("a", "b")], byte_fallback=True))
    made.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    made.add_special_tokens(["<pad>", "<bos>", "<|tool_call>", "<|image>"])
    made.add_tokens([AddedToken("plain")])
    config = {"bos_token": "<bos>", "image_token": "<|image>"}
    files = {"tokenizer.json": to_json(made), "tokenizer_config.json": config}
    keys = convert_keys(write("gemma4", tmp_path, files))
    assert keys["tokens"] == [*vocab, "ab", "<|image>", "plain"]
    assert [*keys["token_type"]] == [
        NORMAL, CONTROL, USER_DEFINED, BYTE, NORMAL, NORMAL, NORMAL, CONTROL, USER_DEFINED
    ]  # fmt: skip
    assert keys["merges"] == ["a b"] and keys["model"] == "gemma4" and keys["add_bos_token"] is True


def test_dense_modules(tmp_path: Path) -> None:
    """EmbeddingGemma has matrices after the pooling, which an option converts."""
    modules = [{"type": "x.Pooling", "path": "1_Pooling"}, {"type": "x.Dense", "path": "2_Dense"}]
    folder = write("gemma-embedding", tmp_path, {
        "modules.json": modules, "tokenizer.model": encode_pieces(PIECES, 2),
    })  # fmt: skip
    for path, config in (
        ("1_Pooling", {"pooling_mode_mean_tokens": True}),
        ("2_Dense", {"in_features": 64, "out_features": 8}),
    ):
        (folder / path).mkdir()
        (folder / path / "config.json").write_text(json.dumps(config))
    name, size = "linear.weight", [8, 64]
    weights = {name: ("F32", size, values(name, "F32", size))}
    write_safetensors(folder / "2_Dense" / "model.safetensors", weights)
    keys = convert_keys(folder, ConvertOptions("f32", dense=True))
    assert keys["gemma-embedding.dense_2_feat_out"] == 8
    assert keys["gemma-embedding.pooling_type"] == 1
    with GGUFFile.open(tmp_path / "out.gguf") as file:
        assert next(iter(file.tensors)) == "dense_2.weight"
    assert "gemma-embedding.dense_2_feat_out" not in convert_keys(folder)
    modules[1]["path"] = "../2_Dense"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ModelError, match="a path must be within the folder"):
        plan(folder, ConvertOptions("f32", dense=True))


def test_adapters_of_jina(tmp_path: Path) -> None:
    """Jina 3 has an adapter for each task, in a separate file."""
    files = {"sentencepiece.bpe.model": encode_pieces(PIECES, 1)}
    convert(write("jina3", tmp_path, files), tmp_path / "x.gguf", F32)
    with GGUFFile.open(tmp_path / "lora-b-x.gguf") as file:
        assert file.metadata["general.type"] == "adapter"
        assert file.metadata["adapter.lora.task_name"] == "b"
        assert file.metadata["adapter.lora.prompt_prefix"] == "y: "
        rank, name = 4, "blk.1.attn_qkv.weight"
        assert file.tensors[f"{name}.lora_a"].ne[:2] == (64, rank)
        assert file.tensors[f"{name}.lora_b"].ne[:2] == (rank, 3 * 64)
        assert file.tensors["token_embd.weight.lora_b"].ne[:2] == (128, rank)
        own = file.tensors[f"{name}.lora_a"].data.tobytes()
    with GGUFFile.open(tmp_path / "lora-a-x.gguf") as file:
        assert file.tensors[f"{name}.lora_a"].data.tobytes() != own


def find_keys(name: str, where: Path, without: str = "", **config: Any) -> dict[str, bytes]:
    """Return the encoded keys of a checkpoint without a value of config.json."""
    folder = write(name, where, {}, **config)
    if without:
        stored = json.loads((folder / "config.json").read_text())
        del stored[without]
        (folder / "config.json").write_text(json.dumps(stored))
    return convert_without_tokens(folder)[0]


def convert_without_tokens(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """Return the encoded keys of a folder without a vocabulary, and the names of tensors."""
    from llama_py.checkpoint.folder import CheckpointFolder
    from llama_py.checkpoint.models import converter

    found = CheckpointFolder(folder)
    kind = converter(found.model_name)
    made = type("Bare", (kind,), {"vocabulary": lambda self, v: v.write_none(), "classes": ()})
    chosen = made(found, F32)
    names = [t.name for t in chosen.convert()]
    return chosen.out.stored, names


def test_values_that_configurations_lack(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Configurations of transformers 5 lack values that llama.cpp's converter reads."""
    whole = find_keys("modernbert", tmp_path / "a")
    with caplog.at_level(logging.WARNING, "llama_py"):
        assert find_keys("modernbert", tmp_path / "b", "layer_norm_eps") == whole
    assert "lacks layer_norm_eps" in caplog.text
    assert find_keys("gptneox", tmp_path / "c", "rotary_pct") == find_keys("gptneox", tmp_path)
    late = find_keys("eurobert", tmp_path / "d", classifier_pooling="late")
    assert "eurobert.classifier.pooling_type" not in late
    wide = find_keys("falcon-7b", tmp_path / "e", num_kv_heads=4)
    assert wide == find_keys("falcon-7b", tmp_path)


def test_norms_of_heads(tmp_path: Path) -> None:
    """StableLM's norms of the heads of a layer become one tensor."""
    entry = RECORDED["stablelm"]
    norms = {
        f"model.layers.0.self_attn.{k}_layernorm.norms.{i}.weight": ["F32", [16]]
        for k, n in (("q", 4), ("k", 2)) for i in range(n)
    }  # fmt: skip
    write_folder(tmp_path / "a", entry["config"], {**entry["tensors"], **norms})
    _, names = convert_without_tokens(tmp_path / "a")
    assert {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight"} <= {*names}
    norms.popitem()
    write_folder(tmp_path / "b", entry["config"], {**entry["tensors"], **norms})
    with pytest.raises(ModelError, match=r"k_layernorm has only 1 part"):
        convert_without_tokens(tmp_path / "b")


def test_parts_that_are_not_converted(tmp_path: Path) -> None:
    """Masks of GPT-2 and heads that predict tokens are not parameters of a GGUF file."""
    for name, extra in (
        ("gpt2-bare", "h.0.attn.bias"), ("modernbert", "decoder.bias"),
        ("bert", "cls.predictions.bias"), ("roberta", "lm_head.bias"),
        ("gemma", "lm_head.weight"),
    ):  # fmt: skip
        entry = RECORDED[name]
        write_folder(tmp_path / name, entry["config"], {**entry["tensors"], extra: ["F32", [2]]})
        write_folder(tmp_path / f"{name}-", entry["config"], entry["tensors"])
        both = [convert_without_tokens(tmp_path / f)[1] for f in (name, f"{name}-")]
        assert both[0] == both[1]


def test_slopes_of_jais(tmp_path: Path) -> None:
    entry = RECORDED["jais"]
    slopes = {"transformer.relative_pe.slopes": ["F16", [4]]}
    write_folder(tmp_path / "a", entry["config"], {**entry["tensors"], **slopes})
    raw = (tmp_path / "a" / "model.safetensors").read_bytes()
    old = values("transformer.relative_pe.slopes", "F16", [4])
    new = struct.pack("<4e", 0.125, 0.25, 0.5, 1)
    (tmp_path / "a" / "model.safetensors").write_bytes(raw.replace(old, new))
    keys, _ = convert_without_tokens(tmp_path / "a")
    assert keys["jais.attention.max_alibi_bias"][4:] == struct.pack("<f", 12)
    assert [*keys][:3] == ["general.architecture", "jais.attention.max_alibi_bias", "general.type"]


def test_quantiles() -> None:
    """Values of torch.distributions.Normal(0, 1).icdf in float32."""
    assert find_quantile(0.95) == 1.6448535919189453
    assert find_quantile(0.5) == 0 and find_quantile(0.0) == float("-inf")
