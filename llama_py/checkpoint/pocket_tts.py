"""Configuration of Pocket TTS by its tensors, without config.json
(conversion/pockettts.py: _load_hparams)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from llama_py.checkpoint.safetensors import read_safetensors

MARK = "flow_lm.bos_emb"  # only Pocket TTS has this tensor
LAYER = re.compile(r"flow_lm\.transformer\.layers\.\d+\.norm1\.weight")
HEAD_DIM, N_CONTEXT = 64, 4096


def pocket_config(folder: Path) -> dict[str, Any]:
    """Return the configuration by the shapes of tensors; empty if these are of another model."""
    files = [*folder.glob("model*.safetensors")]
    tensors = read_safetensors(files[0]) if len(files) == 1 else {}
    if MARK not in tensors:
        return {}
    shape = {name: t.shape for name, t in tensors.items()}
    n_vocab, n_embd = shape["flow_lm.conditioner.embed.weight"]
    return _audio_config(shape) | {
        "architectures": ["PocketTTSModel"],
        "model_type": "pockettts",
        "num_hidden_layers": sum(LAYER.fullmatch(name) is not None for name in shape),
        "hidden_size": n_embd,
        "intermediate_size": shape["flow_lm.transformer.layers.0.linear1.weight"][0],
        "max_position_embeddings": N_CONTEXT,
        "num_attention_heads": n_embd // HEAD_DIM,
        "vocab_size": n_vocab + (2 if "flow_lm.bos_before_voice" in shape else 1),
        "rope_theta": 10000.0,
        "layer_norm_eps": 1e-5,
    }


def _audio_config(shape: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return the encoder's part of the configuration; empty if the file has no encoder."""
    voice = "mimi.encoder_transformer.transformer.layers"
    if f"{voice}.0.norm1.weight" not in shape:
        return {}
    (n_audio,) = shape[f"{voice}.0.norm1.weight"]
    n_layers = sum(n.startswith(voice) and n.endswith(".norm1.weight") for n in shape)
    return {
        "audio_config": {
            "num_hidden_layers": n_layers,
            "hidden_size": n_audio,
            "intermediate_size": shape[f"{voice}.0.linear1.weight"][0],
            "num_attention_heads": n_audio // HEAD_DIM,
        }
    }
