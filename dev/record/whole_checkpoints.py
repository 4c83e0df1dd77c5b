"""Tiny checkpoints with tokenizers, model cards and sampling settings, for whole files of
llama.cpp's converter."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

from dev.record.tiny_checkpoints import N_VOCAB, read_records, write_folder

N_TOKENS = 300
PRE = "qwen2"  # name of the pre-tokenizer, which no digest identifies
END, TOOL = "<|end|>", "<tool>"
CARD = """---
license: apache-2.0
language:
- en
- no
base_model: Qwen/Qwen2.5-0.5B
pipeline_tag: text-generation
tags:
- chat
datasets:
- a/b-c
---
# A model
"""
TEMPLATES = [{"name": "default", "template": "a"}, {"name": "tool use", "template": "b"}]
LLAMA_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def bpe() -> dict[str, Any]:
    """Return a byte-level BPE with added tokens, as tokenizer.json."""
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("a", "t"), ("c", "at"), ("Ġ", "cat")]
    texts = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    made = Tokenizer(models.BPE({text: i for i, text in enumerate(texts)}, merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(END, special=True)])
    made.add_tokens([AddedToken(TOOL, normalized=False), AddedToken("<|odd|>")])
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    made.post_processor = processors.ByteLevel()
    found: dict[str, Any] = json.loads(made.to_str())
    return found


def _begin_with_end() -> dict[str, Any]:
    """Return that tokenizer with a post-processor that adds a token before a text."""
    tokenizer = bpe()
    special = {"SpecialToken": {"id": END, "type_id": 0}}
    first, second = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    id = len(tokenizer["model"]["vocab"])
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, special, second],
        "special_tokens": {END: {"id": END, "ids": [id], "tokens": [END]}},
    }
    return tokenizer


FAST = {"tokenizer_class": "PreTrainedTokenizerFast"}
# By name: the recorded model, changes of its configuration, and files.
WHOLE: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "qwen2-bpe": (
        "qwen2",
        {},
        {
            "tokenizer.json": bpe(),
            "tokenizer_config.json": {
                **FAST, "eos_token": END, "bos_token": None, "pad_token": "<|odd|>",
                "chat_template": "{{ messages }}", "add_bos_token": False,
            },
            "generation_config.json": {
                "temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05
            },
            "README.md": CARD,
        },
    ),
    "llama-bpe": (
        "llama",
        {"rope_parameters": LLAMA_ROPE},
        {
            "tokenizer.json": _begin_with_end(),
            "tokenizer_config.json": {
                **FAST, "bos_token": END,
                "eos_token": {
                    "__type": "AddedToken", "content": TOOL, "lstrip": False, "normalized": False,
                    "rstrip": False, "single_word": False, "special": True,
                },
            },
            "chat_template.jinja": "{% for m in messages %}x{% endfor %}",
        },
    ),
    "qwen3-bpe": (
        "qwen3",
        {},
        {
            "tokenizer.json": bpe(),
            "tokenizer_config.json": {**FAST, "eos_token": END, "chat_template": TEMPLATES},
        },
    ),
}  # fmt: skip


def write_whole(name: str, where: Path) -> Path:
    """Write a folder of WHOLE; return its path."""
    base, changes, files = WHOLE[name]
    record, folder = read_records()[base], where / name
    ends = ("embed_tokens.weight", "lm_head.weight")
    tensors = {
        key: [dtype, [N_TOKENS, *shape[1:]] if key.endswith(ends) else shape]
        for key, (dtype, shape) in record["tensors"].items()
    }
    assert record["config"]["vocab_size"] == N_VOCAB
    write_folder(folder, {**record["config"], "vocab_size": N_TOKENS, **changes}, tensors)
    for file, content in files.items():
        (folder / file).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder
