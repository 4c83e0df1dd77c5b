"""Vocabularies of checkpoints: tokens, types, special tokens, chat templates."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path
from typing import Any

import pytest

from dev.record.tiny_checkpoints import read_records
from dev.record.whole_checkpoints import PRE, WHOLE, bpe, write_whole
from dev.torture.fuzz_checkpoints import try_folder
from ggml_py.errors import ModelError
from llama_py.checkpoint.convert import convert
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.sentencepiece import read_sentencepiece
from llama_py.checkpoint.special_tokens import SpecialTokens
from llama_py.checkpoint.vocabulary import PROBE, Vocabulary
from llama_py.tokenizer.pre import PRE_TOKENIZERS


def folder(path: Path, **files: Any) -> CheckpointFolder:
    """Write JSON files, by name without `.json`, and return their folder."""
    path.mkdir(exist_ok=True)
    files.setdefault("config", {"architectures": ["X"], "vocab_size": 300})
    for name, content in files.items():
        (path / f"{name}.json").write_text(json.dumps(content))
    return CheckpointFolder(path)


def keys(out: KeyValues, path: Path) -> dict[str, Any]:
    """Return the values, read as those of a file."""
    from llama_py.gguf.file import GGUFFile
    from llama_py.gguf.write import head

    (path / "keys.gguf").write_bytes(head(out.stored, [], 32))
    with GGUFFile.open(path / "keys.gguf") as file:
        return {k: file.metadata[k] for k in file.metadata}


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_equals_that_of_llama_cpp(name: str, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs '.[convert]'")
    convert(write_whole(name, tmp_path), tmp_path / "out.gguf", ConvertOptions(pre=PRE))
    digest = hashlib.sha256((tmp_path / "out.gguf").read_bytes()).hexdigest()
    assert digest == read_records()[f"whole-{name}"]["sha256"]


def test_a_folder_is_quantized_and_shown_like_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from llama_py_tools.gguf.main import main

    monkeypatch.setattr("llama_py.checkpoint.vocabulary.pre_tokenizer", lambda *_: PRE)
    folder, file = write_whole("llama-bpe", tmp_path), tmp_path / "a.gguf"
    assert main(["convert", str(folder), str(file)]) == 0
    for source, out in ((folder, "b.gguf"), (file, "c.gguf")):
        assert main(["quantize", str(source), str(tmp_path / out), "Q8_0"]) == 0
    assert (tmp_path / "b.gguf").read_bytes() == (tmp_path / "c.gguf").read_bytes()
    assert main(["diff", str(folder), str(file)]) == 0
    assert main(["show", str(folder), "-k", "general.name", "-t", ""]) == 0
    assert "Llama Bpe" in capsys.readouterr().out


@pytest.mark.parametrize("seed", range(150))
def test_a_damaged_folder_is_refused_with_one_line(seed: int, tmp_path: Path) -> None:
    assert try_folder(tmp_path, random.Random(seed)) in ("converted", "refused")


def test_bpe(tmp_path: Path) -> None:
    config = {"eos_token": "<|end|>", "bos_token": None, "chat_template": "{{ messages }}"}
    given = folder(tmp_path / "a", tokenizer=bpe(), tokenizer_config=config)
    out = KeyValues("x")
    Vocabulary(given, out, 300, "qwen2").bpe()
    found = keys(out, tmp_path)
    tokens, types = found["tokenizer.ggml.tokens"], [*found["tokenizer.ggml.token_type"]]
    n = len(bpe()["model"]["vocab"])
    assert len(tokens) == len(types) == 300
    assert tokens[n : n + 4] == ["<|end|>", "<tool>", "<|odd|>", "<|endoftext|>"]
    assert types[:n] == [1] * n and types[n:] == [3, 4, 3, 3] + [5] * (300 - n - 4)
    assert found["tokenizer.ggml.model"] == "gpt2" and found["tokenizer.ggml.pre"] == "qwen2"
    assert found["tokenizer.ggml.eos_token_id"] == n
    assert found["tokenizer.ggml.add_bos_token"] is False
    assert found["tokenizer.chat_template"] == "{{ messages }}"
    assert len(found["tokenizer.ggml.merges"]) == len(bpe()["model"]["merges"])


def test_tokens_with_roles_are_special(tmp_path: Path) -> None:
    """A token of tokenizer_config.json is special, and is added if tokenizer.json lacks it."""
    config = {"eos_token": {"content": "<tool>"}, "pad_token": "[PAD]"}
    given = folder(tmp_path / "a", tokenizer=bpe(), tokenizer_config=config)
    tokens, types, _ = Vocabulary(given, KeyValues("x"), 300, "qwen2").tokens_of_json()
    n = len(bpe()["model"]["vocab"])
    assert tokens[n : n + 5] == ["<|end|>", "<tool>", "<|odd|>", "<|endoftext|>", "[PAD]"]
    assert types[n : n + 6] == [3, 3, 3, 3, 3, 5]


def test_a_pre_tokenizer_is_found_by_its_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Ids of other vocabularies are not known, but the words of a text are."""
    tokenizer, split = bpe(), {"type": "Split", "behavior": "Isolated", "invert": False}
    qwen = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "use_regex": False,
        "trim_offsets": True,
    }
    for no, (pattern, name) in enumerate((("", "gpt-2"), (qwen, "qwen2"))):
        if pattern:
            parts = [{**split, "pattern": {"Regex": pattern}}, level]
            tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": parts}
        given = folder(tmp_path / str(no), tokenizer=tokenizer)
        *_, found = Vocabulary(given, KeyValues("x"), 300).tokens_of_json()
        kinds = PRE_TOKENIZERS[found].cuts, PRE_TOKENIZERS[name].cuts
        assert kinds[0] == kinds[1], found
    assert "splits a text like" in caplog.text


def test_unknown_pre_tokenizer(tmp_path: Path) -> None:
    tokenizer = {**bpe(), "pre_tokenizer": {"type": "Whitespace"}}
    given = folder(tmp_path / "a", tokenizer=tokenizer)
    with pytest.raises(ModelError, match="--pre NAME"):
        Vocabulary(given, KeyValues("x"), 300).bpe()
    with pytest.raises(ModelError, match="vocab_size must be at least"):
        Vocabulary(given, KeyValues("x"), 20, "qwen2").bpe()
    assert PROBE.count("🦙") == 2 and len(PROBE) > 300


def test_added_beginnings_and_ends(tmp_path: Path) -> None:
    """Post-processors of Llama 3 and RoBERTa say which special tokens are added."""
    tokenizer = bpe()
    special = {"SpecialToken": {"id": "<|end|>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {"type": "TemplateProcessing", "single": [special, text]}
    found = SpecialTokens(folder(tmp_path / "a", tokenizer=tokenizer, tokenizer_config={"x": 1}))
    n = len(tokenizer["model"]["vocab"])
    assert found.added == {"bos": True} and found.ids == {"bos": n, "cls": n}
    tokenizer["post_processor"] = {
        "type": "RobertaProcessing", "cls": ["<|end|>", 0], "sep": ["<tool>", 1]
    }  # fmt: skip
    found = SpecialTokens(folder(tmp_path / "b", tokenizer=tokenizer, tokenizer_config={"x": 1}))
    assert found.added == {"bos": True, "eos": True, "sep": True}


def test_several_templates(tmp_path: Path) -> None:
    templates = [{"name": "default", "template": "a"}, {"name": "tool use", "template": "b"}]
    given = folder(tmp_path / "a", tokenizer_config={"chat_template": templates})
    out = KeyValues("x")
    out.text("general.url", "")  # not written
    SpecialTokens(given).write(out)
    found = keys(out, tmp_path)
    assert (
        found["tokenizer.chat_template"] == "a" and found["tokenizer.chat_template.tool_use"] == "b"
    )
    assert found["tokenizer.chat_templates"] == ["tool_use"] and "general.url" not in found


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def test_sentencepiece(tmp_path: Path) -> None:
    pieces = [(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3), (b"<0x41>", 0.0, 6), ("▁a".encode(), -1.5, 1)]
    data = b"".join(
        field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in pieces
    )
    given = folder(tmp_path / "a", added_tokens={"<x>": 5})
    (given.path / "tokenizer.model").write_bytes(data + field(2, field(3, 2)))
    out = KeyValues("llama")
    Vocabulary(given, out, 7).sentencepiece()
    found = keys(out, tmp_path)
    assert found["tokenizer.ggml.tokens"] == [
        "<unk>", "<s>", "<0x41>", "▁a", "[PAD4]", "<x>", "[PAD6]"
    ]  # fmt: skip
    assert [*found["tokenizer.ggml.token_type"]] == [2, 3, 6, 1, 5, 4, 5]
    assert [*found["tokenizer.ggml.scores"]] == [0, 0, 0, -1.5, -10000, -1000, -10000]
    for damaged in (b"", data[:-1], b"version https://git-lfs.github.com/spec/v1\n", b"\xff" * 40):
        (given.path / "tokenizer.model").write_bytes(damaged)
        with pytest.raises(ModelError, match="not a SentencePiece model"):
            read_sentencepiece(given.path / "tokenizer.model")
