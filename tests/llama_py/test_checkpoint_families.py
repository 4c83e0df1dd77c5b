"""Vocabularies and refusals of converters for single families of models."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dev.record.tiny_checkpoints import read_records, values, write_folder, write_safetensors
from ggml_py.errors import ModelError
from llama_py.checkpoint.convert import plan
from llama_py.checkpoint.converter import ConvertOptions
from llama_py.checkpoint.folder import CheckpointFolder
from llama_py.checkpoint.keys import KeyValues
from llama_py.checkpoint.models import converter
from llama_py.checkpoint.vocabulary import Vocabulary
from llama_py.gguf.file import GGUFFile
from llama_py.gguf.write import head

RECORDED = read_records()
BYTES = [bytes([i]) for i in range(256)]


def keys(path: Path, config: dict[str, Any], n_vocab: int | None = None) -> dict[str, Any]:
    """Return the tokenizer's keys of a folder."""
    (path / "config.json").write_text(json.dumps({"num_hidden_layers": 1, **config}))
    folder = CheckpointFolder(path)
    made = converter(folder.model_name)(folder, ConvertOptions())
    made.out = KeyValues("x")
    made.vocabulary(Vocabulary(folder, made.out, n_vocab))
    (path / "keys.gguf").write_bytes(head(made.out.stored, [], 32))
    with GGUFFile.open(path / "keys.gguf") as file:
        return {k.removeprefix("tokenizer.ggml."): file.metadata[k] for k in file.metadata}


def field(number: int, value: int | bytes | float) -> bytes:
    if isinstance(value, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", value)
    if isinstance(value, int):
        return bytes([number << 3, value])
    return bytes([number << 3 | 2, len(value)]) + value


def sentencepiece(path: Path, name: str = "tokenizer.model") -> None:
    pieces = [(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3), (b"</s>", 0.0, 3), (b"\0", -1.0, 1),
              (b"[UNUSED_1]", -2.0, 1), (b"a", -3.0, 1)]  # fmt: skip
    data = b"".join(
        field(1, field(1, text) + field(2, score) + field(3, kind)) for text, score, kind in pieces
    )
    (path / name).write_bytes(data + field(3, field(3, 0)))


def added(path: Path, tokens: dict[str, dict[str, Any]], **more: Any) -> None:
    config = {"added_tokens_decoder": tokens, **more}
    (path / "tokenizer_config.json").write_text(json.dumps(config))


def test_ranks_of_qwen(tmp_path: Path) -> None:
    ranks = [*BYTES, b"at", b" c", b" cat"]
    rows = [base64.b64encode(token) + b" %d" % i for i, token in enumerate(ranks)]
    (tmp_path / "qwen.tiktoken").write_bytes(b"\n".join(rows))
    found = keys(tmp_path, {"architectures": ["QWenLMHeadModel"]}, 480)
    tokens = found["tokens"]
    assert tokens[256:260] == ["at", "Ġc", "Ġcat", "<|endoftext|>"]
    assert tokens[466:468] == ["<|extra_204|>", "[PAD467]"]
    assert found["merges"] == ["a t", "Ġ c", "Ġc at"]
    assert [found[f"{r}_token_id"] for r in ("bos", "eos", "unknown")] == [259, 259, 259]
    assert [*found["token_type"]][258:260] == [1, 3] and [*found["token_type"]][-1] == 5
    rows[-1] = b"not base64 258"
    (tmp_path / "qwen.tiktoken").write_bytes(b"\n".join(rows))
    with pytest.raises(ModelError, match=r"qwen\.tiktoken"):
        keys(tmp_path, {"architectures": ["QWenLMHeadModel"]}, 480)


def test_tekken(tmp_path: Path) -> None:
    ranks = [*BYTES, b"at", b" c", b" cat"]
    vocab = [
        {"rank": i, "token_bytes": base64.b64encode(token).decode()}
        for i, token in enumerate(ranks)
    ]
    config = {"default_vocab_size": 264, "default_num_special_tokens": 5, "version": "v7"}
    special = [{"token_str": t} for t in ("<unk>", "<s>", "</s>", "[INST]")]
    stored = {"config": config, "vocab": vocab, "special_tokens": special}
    (tmp_path / "tekken.json").write_text(json.dumps(stored))
    found = keys(tmp_path, {"architectures": ["MistralForCausalLM"]})
    tokens = found["tokens"]
    assert tokens[:5] == ["<unk>", "<s>", "</s>", "[INST]", "<SPECIAL_4>"]
    assert len(tokens) == found["x.vocab_size"] == 264 and tokens[-2:] == ["Ġc", "Ġcat"]
    assert found["merges"] == ["a t", "Ġ c", "Ġc at"] and found["pre"] == "tekken"
    ids = [found[f"{role}_token_id"] for role in ("bos", "eos", "unknown", "padding")]
    assert ids == [1, 2, 0, 2]
    assert found["tokenizer.chat_template"] == "mistral-v7-tekken"
    stored["vocab"] = [*vocab[:-1], {"rank": 258, "token_bytes": base64.b64encode(b"zq!").decode()}]
    (tmp_path / "tekken.json").write_text(json.dumps(stored))
    with pytest.raises(ModelError, match="rank 258"):
        keys(tmp_path, {"architectures": ["MistralForCausalLM"]})


def test_pieces_of_internlm(tmp_path: Path) -> None:
    """The chat models end a text like a turn. An empty string in C becomes another character."""
    sentencepiece(tmp_path)
    added(tmp_path, {"5": {"content": "<|im_end|>", "special": True}}, eos_token="</s>")
    found = keys(tmp_path, {"architectures": ["InternLM2ForCausalLM"]})
    assert found["tokens"] == ["<unk>", "<s>", "</s>", "\N{DRAGON}", "[UNUSED_1]", "<|im_end|>"]
    assert [*found["token_type"]] == [2, 3, 3, 1, 5, 3]
    assert found["eos_token_id"] == 5 and found["add_space_prefix"] is False
    config = {"architectures": ["InternLM3ForCausalLM"], "eos_token_id": 2}
    assert keys(tmp_path, config)["eos_token_id"] == 5


def test_pieces_of_arctic(tmp_path: Path) -> None:
    sentencepiece(tmp_path)
    tokens = {"3": {"content": "<|begin|>", "special": True}, "4": {"content": "plain"},
              "0": {"content": "<unk>", "special": True}}  # fmt: skip
    added(tmp_path, tokens, unk_token="<unk>")
    found = keys(tmp_path, {"architectures": ["ArcticForCausalLM"], "vocab_size": 6}, 6)
    assert found["tokens"][3:5] == ["<|begin|>", "plain"]
    assert [*found["token_type"]] == [2, 3, 3, 3, 4, 1]
    assert [*found["scores"]] == [0, 0, 0, 0, -10000, -3]


def test_pieces_of_chatglm(tmp_path: Path) -> None:
    sentencepiece(tmp_path)
    found = keys(tmp_path, {"architectures": ["ChatGLMModel"], "padded_vocab_size": 16})
    tokens = found["tokens"]
    assert tokens[:3] == ["<unk>", "<bos>", "<eos>"] and found["pre"] == "chatglm-spm"
    assert tokens[6:8] == ["[MASK]", "[gMASK]"] and tokens[14:] == ["<|observation|>", "[PAD15]"]
    assert [*found["token_type"]][5:7] == [1, 3] and [*found["token_type"]][-1] == 5


def checkpoint(path: Path, name: str, **changes: Any) -> Path:
    entry, made = RECORDED[name], path / name
    config = {**entry["config"], **changes}
    write_folder(made, config, entry["tensors"], target=entry.get("target"))
    return made


def test_a_draft_model_needs_its_target(tmp_path: Path) -> None:
    made = checkpoint(tmp_path, "eagle3")
    with pytest.raises(ModelError, match="--target-model-dir"):
        plan(made)
    target = json.loads((made / "target" / "config.json").read_text())
    (made / "target" / "config.json").write_text(json.dumps({**target, "vocab_size": 8}))
    with pytest.raises(ModelError, match="different ids below 8"):
        plan(made, ConvertOptions(target=made / "target"))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("laguna", {"gating": False}, "gating must be"),
        ("laguna", {"gating": "per-element"}, "contradicts gating"),
        ("laguna", {"num_attention_heads_per_layer": [4]}, "must have 4 entries"),
        ("qwen2moe", {"num_experts": None}, "lacks the number of experts"),
        ("cohere2moe", {"logit_scale": None}, "logit_scale is missing"),
        ("spark2_5", {"hidden_act": "silu"}, "hidden_act must be gelu"),
        ("maple", {"num_shared_experts": 1}, "num_shared_experts must be 0"),
        ("minicpm", {"rope_scaling": {"long_factor": [1.0]}}, "long_factor must be a list of 8"),
        ("deci-blocks", {"block_configs": [{}]}, "must have 2 entries"),
        ("dspark", {"markov_head_type": "gated"}, "must be vanilla"),
    ],
)
def test_refused_configurations(
    name: str, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError, match=message):
        plan(checkpoint(tmp_path, name, **changes))


def tensors(path: Path, shapes: dict[str, list[int]]) -> dict[str, Any]:
    """Write model.safetensors with random values, and return them."""
    made = {name: ("F32", shape, values(name, "F32", shape)) for name, shape in shapes.items()}
    write_safetensors(path / "model.safetensors", made)
    return {n: np.frombuffer(data, np.float32).reshape(s) for n, (_, s, data) in made.items()}


def test_pocket_tts(tmp_path: Path) -> None:
    """The configuration comes from the shapes; learned vectors become tokens."""
    sentencepiece(tmp_path)
    layer = "flow_lm.transformer.layers.0."
    stored = tensors(tmp_path, {
        "flow_lm.bos_emb": [32], "flow_lm.bos_before_voice": [1, 1, 64],
        "flow_lm.conditioner.embed.weight": [7, 64], "flow_lm.input_linear.weight": [64, 32],
        "flow_lm.out_norm.weight": [64], "flow_lm.flow_net.input_proj.weight": [64, 32],
        f"{layer}norm1.weight": [64], f"{layer}self_attn.in_proj.weight": [192, 64],
        f"{layer}linear1.weight": [96, 64], "mimi.quantizer.output_proj.weight": [8, 8, 1],
    })  # fmt: skip
    chosen, found = plan(tmp_path)
    by_name = {t.name: t.array for t in found}
    assert [*by_name] == [
        "token_embd.weight", "output_norm.weight", "blk.0.ffn_up.weight", "blk.0.attn_norm.weight",
        "blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight",
    ]  # fmt: skip
    joined = stored[f"{layer}self_attn.in_proj.weight"]
    assert (by_name["blk.0.attn_k.weight"].read() == joined[64:128]).all()
    rows = by_name["token_embd.weight"].read()
    assert rows.shape == (9, 64) and (rows[7] == stored["flow_lm.bos_before_voice"][0, 0]).all()
    expected = stored["flow_lm.input_linear.weight"] @ stored["flow_lm.bos_emb"]
    np.testing.assert_allclose(rows[8], expected, rtol=1e-5, atol=1e-5)
    (tmp_path / "keys.gguf").write_bytes(head(chosen.out.stored, [], 32))
    with GGUFFile.open(tmp_path / "keys.gguf") as file:
        assert file.metadata["tokenizer.ggml.tokens"][5:] == [
            "a", "<|pad|>", "<|bos_before_voice|>", "<|audio_bos|>"
        ]  # fmt: skip
        assert file.metadata["pockettts.attention.head_count"] == 1


def test_qwen3_tts(tmp_path: Path) -> None:
    """The network after the embeddings is applied to all of them; codes of sound follow."""
    talker = {
        "vocab_size": 1030, "text_vocab_size": 6, "codec_eos_token_id": 8, "hidden_act": "silu",
        "codec_language_id": {"chinese": 9}, "num_hidden_layers": 0, "hidden_size": 64,
        "num_attention_heads": 4, "head_dim": 16,
    }  # fmt: skip
    config = {"architectures": ["Qwen3TTSForConditionalGeneration"], "talker_config": talker}
    (tmp_path / "config.json").write_text(json.dumps(config))
    sentencepiece(tmp_path)
    fc = "talker.text_projection.linear_fc"
    stored = tensors(tmp_path, {
        "talker.model.text_embedding.weight": [6, 32], f"{fc}1.weight": [48, 32],
        f"{fc}1.bias": [48], f"{fc}2.weight": [64, 48], f"{fc}2.bias": [64],
        "talker.model.codec_embedding.weight": [1030, 64], "talker.codec_head.weight": [1030, 64],
        "talker.code_predictor.lm_head.0.weight": [8, 64], "speaker_encoder.x.weight": [8, 8],
    })  # fmt: skip
    chosen, found = plan(tmp_path)
    by_name = {t.name: t.array for t in found}
    assert [*by_name] == ["output.weight", "token_embd.weight"]
    x = stored["talker.model.text_embedding.weight"] @ stored[f"{fc}1.weight"].T
    x = x + stored[f"{fc}1.bias"]
    folded = (x / (1 + np.exp(-x))) @ stored[f"{fc}2.weight"].T + stored[f"{fc}2.bias"]
    rows = by_name["token_embd.weight"].read()
    np.testing.assert_allclose(rows[:6], folded, rtol=1e-4, atol=1e-4)
    assert (rows[6:] == stored["talker.model.codec_embedding.weight"]).all()
    (tmp_path / "keys.gguf").write_bytes(head(chosen.out.stored, [], 32))
    with GGUFFile.open(tmp_path / "keys.gguf") as file:
        tokens = file.metadata["tokenizer.ggml.tokens"]
        assert tokens[6:8] == ["<|codec_0|>", "<|codec_1|>"]
        assert tokens[14:16] == ["<|codec_eos_token|>", "<|codec_language_chinese|>"]
        others = [*file.metadata["tokenizer.ggml.suppress_tokens"]]
        assert others[:2] == [12, 13] and 14 not in others and len(others) == 1023
        assert file.metadata["tokenizer.ggml.eos_token_id"] == 14
    shapes = {n: [*s.shape] for n, s in stored.items() if "codec_embedding" not in n}
    tensors(tmp_path, shapes)
    with pytest.raises(ModelError, match="codec_embedding"):
        plan(tmp_path)


def test_images_of_cogvlm_have_their_matrices(tmp_path: Path) -> None:
    """llama.cpp's converter takes these for tensors of a vision encoder."""
    entry = RECORDED["cogvlm"]
    more = {"model.layers.0.self_attn.vision_expert_dense.weight": ["F32", [64, 64]],
            "model.vision.x": ["F32", [64]]}  # fmt: skip
    write_folder(tmp_path / "a", entry["config"], {**entry["tensors"], **more})
    folder = CheckpointFolder(tmp_path / "a")
    made = converter(folder.model_name)(folder, ConvertOptions())
    names = [made.rename(n) for name in folder.tensors if (n := made.select(name))]
    assert "blk.0.vis_attn_output.weight" in names and len(names) == len(entry["tensors"]) + 1
