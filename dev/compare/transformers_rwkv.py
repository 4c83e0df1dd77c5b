"""A tiny random RWKV-7 model: logits by its author's package `rwkv`, files as in fla-hub's models.

transformers has no RWKV-7. Checkpoints on Hugging Face have the layout of flash-linear-attention,
which needs a GPU; the package rwkv computes the same model in plain torch.
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from pathlib import Path
from typing import Any

N_LAYER, HEAD_SIZE = 4, 64
N_EMBD, N_FF = 2 * HEAD_SIZE, 4 * HEAD_SIZE
RANKS = {"w": 32, "a": 32, "v": 16, "g": 48}
CONFIG = {
    "architectures": ["RWKV7ForCausalLM"],
    "model_type": "rwkv7",
    "hidden_size": N_EMBD,
    "intermediate_size": N_FF,
    "num_hidden_layers": N_LAYER,
    "head_dim": HEAD_SIZE,
    "norm_eps": 1e-5,
    "decay_low_rank_dim": RANKS["w"],
    "a_low_rank_dim": RANKS["a"],
    "v_low_rank_dim": RANKS["v"],
    "gate_low_rank_dim": RANKS["g"],
    "tie_word_embeddings": False,
}
# Names in rwkv's checkpoints and in flash-linear-attention's.
OUTER = {"emb": "model.embeddings", "ln_out": "model.norm", "head": "lm_head"}
INNER = {
    "ln0": "pre_norm",
    "ln1": "attn_norm",
    "ln2": "ffn_norm",
    "att.ln_x": "attn.g_norm",
    "att.receptance": "attn.r_proj",
    "att.key": "attn.k_proj",
    "att.value": "attn.v_proj",
    "att.output": "attn.o_proj",
}


def make(out: Path, ids: Any, n_vocab: int) -> tuple[Path, Any]:
    """Store a random model in the folder OUT/rwkv7. -> the folder, logits of `ids`"""
    torch, files = import_module("torch"), import_module("safetensors.torch")
    weights = random_weights(torch, n_vocab)
    checkpoint = out / "rwkv7"
    torch.save(weights, f"{checkpoint}.pth")
    os.environ["RWKV_V7_ON"] = "1"
    model = import_module("rwkv.model").RWKV(str(checkpoint), "cpu fp32")
    logits, _ = model.forward(ids[0].tolist(), None, full_output=True)
    checkpoint.mkdir(exist_ok=True)
    stored = dict(renamed(name, t) for name, t in weights.items())
    files.save_file(stored, checkpoint / "model.safetensors")
    (checkpoint / "config.json").write_text(json.dumps({**CONFIG, "vocab_size": n_vocab}))
    return checkpoint, logits.numpy()


def random_weights(torch: Any, n_vocab: int) -> dict[str, Any]:
    """Return random weights, with the names of the author's checkpoints."""

    def matrix(n_out: int, n_in: int) -> Any:
        return torch.randn(n_out, n_in) / n_in**0.5

    def vector(mean: float, std: float, n: int = N_EMBD) -> Any:
        return (mean + std * torch.randn(n)).reshape(1, 1, n)

    def norm(name: str) -> dict[str, Any]:
        ones, zeros = (vector(mean, 0.1).flatten() for mean in (1, 0))
        return {f"{name}.weight": ones, f"{name}.bias": zeros}

    made = {"emb.weight": torch.randn(n_vocab, N_EMBD), "head.weight": matrix(n_vocab, N_EMBD)}
    made |= norm("ln_out") | norm("blocks.0.ln0")
    for i in range(N_LAYER):
        att, ffn = f"blocks.{i}.att", f"blocks.{i}.ffn"
        for name in (f"blocks.{i}.ln1", f"blocks.{i}.ln2", f"{att}.ln_x"):
            made |= norm(name)
        made |= {f"{att}.x_{c}": torch.rand(1, 1, N_EMBD) for c in "rwkvag"}
        for c, rank in RANKS.items():
            if c == "v" and i == 0:  # only later layers use the first layer's values
                continue
            made[f"{att}.{c}1"] = matrix(rank, N_EMBD).T.contiguous()
            made[f"{att}.{c}2"] = matrix(N_EMBD, rank).T.contiguous()
            if c != "g":
                made[f"{att}.{c}0"] = vector(-2 if c == "w" else 0, 1)
        made |= {f"{att}.k_k": vector(0.8, 0.1), f"{att}.k_a": vector(1, 0.1)}
        made[f"{att}.r_k"] = 0.1 * torch.randn(N_EMBD // HEAD_SIZE, HEAD_SIZE)
        for name in ("receptance", "key", "value", "output"):
            made[f"{att}.{name}.weight"] = matrix(N_EMBD, N_EMBD)
        made[f"{ffn}.x_k"] = torch.rand(1, 1, N_EMBD)
        made |= {f"{ffn}.key.weight": matrix(N_FF, N_EMBD)}
        made |= {f"{ffn}.value.weight": matrix(N_EMBD, N_FF)}
    return made


def renamed(name: str, tensor: Any) -> tuple[str, Any]:
    """Return a tensor with the name and shape that flash-linear-attention stores."""
    base, _, end = name.rpartition(".")
    if not base.startswith("blocks."):
        return f"{OUTER[base]}.{end}", tensor
    _, il, inner = name.split(".", 2)
    layer = f"model.layers.{il}."
    base, _, end = inner.rpartition(".")
    if base in INNER:
        return f"{layer}{INNER[base]}.{end}", tensor
    if base == "att" and end[0] in RANKS and end[1:] in ("0", "1", "2"):
        leaf = {"0": "2.bias", "1": "0.weight", "2": "2.weight"}[end[1:]]
        stored = tensor.flatten() if end[1:] == "0" else tensor.T.contiguous()
        return f"{layer}attn.{end[0]}_lora.lora.{leaf}", stored
    if end in ("k_k", "k_a") or inner == "ffn.x_k":
        tensor = tensor.flatten()
    return layer + inner.replace("att.", "attn."), tensor
