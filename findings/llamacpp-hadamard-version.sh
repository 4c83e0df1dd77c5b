#!/usr/bin/env bash
# llama.cpp b11739 (llama-cpp-py-sync 0.11739), with one-layer models that the script writes.
#
# Guess: a file with the keys `prism.hadamard.*` (weights that were multiplied by a Hadamard matrix;
# the graph multiplies their inputs) is refused if one of the necessary keys is missing.
# Behavior: all are necessary, except that without `prism.hadamard.version` the others are ignored.
# The file loads without a message, and the graph uses the rotated weights as normal ones.
# Why it matters: names and shapes of the tensors are the usual ones, so a converter that forgets the
# version makes a file whose results are wrong without a message.
#
# Output (NMSE to the logits of the same weights without rotation):
#     all keys -> below 1e-4
#     without block_size -> refused
#     without transform -> refused
#     without axis -> refused
#     without sign_mode -> refused
#     without weight_names -> refused
#     without version -> above 1e-2
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
run - "$dir" <<'END'
import sys

import numpy as np
from engine import load, logits, write

D = 32
PATH = f"{sys.argv[1]}/model.gguf"
KEYS = {"context_length": 64, "embedding_length": D, "block_count": 1, "feed_forward_length": D}
KEYS |= {"attention.head_count": 1, "attention.head_count_kv": 1, "vocab_size": D}
KEYS |= {"attention.layer_norm_rms_epsilon": 1e-5, ".tokenizer.ggml.model": "none"}
NAMES = [f"blk.0.{name}.weight" for name in ("attn_output", "ffn_down")]
HADAMARD = {
    "version": 1,
    "block_size": D,
    "transform": "normalized-sylvester-walsh-hadamard",
    "axis": "input-last-dimension",
    "sign_mode": "identity",
    "weight_names": NAMES,
}
rng = np.random.default_rng(0)
tensors = {f"blk.0.{name}_norm.weight": np.ones(D) for name in ("attn", "ffn")}
matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
for name in ["token_embd", "output", *(f"blk.0.{name}" for name in matrices)]:
    tensors[f"{name}.weight"] = rng.standard_normal((D, D)) / D**0.5
tensors["output_norm.weight"] = np.ones(D)
matrix = np.ones((1, 1))
while len(matrix) < D:
    matrix = np.block([[matrix, matrix], [matrix, -matrix]]) / 2**0.5
rotated = tensors | {name: tensors[name] @ matrix for name in NAMES}


def compute(keys, weights):
    write(PATH, "llama", KEYS | {f".prism.hadamard.{k}": v for k, v in keys.items()}, weights)
    model = load(PATH)
    return model and logits(model, [1, 2, 3])


def judge(without=""):
    found = compute({k: v for k, v in HADAMARD.items() if k != without}, rotated)
    if found is None:
        return "refused"
    nmse = np.square(found - expected).sum() / np.square(expected).sum()
    return "below 1e-4" if nmse < 1e-4 else "above 1e-2" if nmse > 1e-2 else f"{nmse:.1e}"


expected = compute({}, tensors)
cases = {"all keys": judge()}
cases |= {f"without {key}": judge(key) for key in [*HADAMARD][1:] + ["version"]}
for case, result in cases.items():
    print(case, "->", result)
if [*cases.values()] != ["below 1e-4", *["refused"] * 5, "above 1e-2"]:
    raise SystemExit("changed")
END
