#!/usr/bin/env bash
# llama.cpp b11739 (llama-cpp-py-sync 0.11739), with three-layer models that the script writes.
#
# Guess: `k2-horizon.moe_every_n_layers = 2` makes every second layer dense, as the key does for
# nomic-bert-moe.
# Behavior: the loader reads the key and checks its type, but all layers from
# `leading_dense_block_count` on need experts. With experts in all layers the key changes no logit.
# Why it matters: the error of a wrong type shows that a key is read, not that it is used. A port that
# uses the key loads files that llama.cpp refuses, and refuses files that it runs.
#
# Output:
#     every 1 -> experts in all layers: True, one dense layer: False
#     every 2 -> experts in all layers: True, one dense layer: False
#     every "2" -> key k2-horizon.moe_every_n_layers has wrong type str but expected type u32
#     logits are equal: True
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
run - "$dir" <<'END'
import sys

import engine
import numpy as np

D, EVERY = 32, "moe_every_n_layers"
PATH = f"{sys.argv[1]}/model.gguf"
KEYS = {"context_length": 64, "embedding_length": D, "block_count": 3, "feed_forward_length": D}
KEYS |= {"attention.head_count": 1, "attention.head_count_kv": 1, "vocab_size": D}
KEYS |= {"attention.layer_norm_rms_epsilon": 1e-5, "expert_feed_forward_length": D}
KEYS |= {"expert_count": 4, "expert_used_count": 2, ".tokenizer.ggml.model": "none"}


def model(every, dense_layers=()):
    rng, tensors = np.random.default_rng(0), {}

    def add(name, *shape):
        values = rng.standard_normal(shape) / D**0.5
        tensors[f"{name}.weight"] = values if len(shape) > 1 else np.ones(shape)

    add("token_embd", D, D)
    add("output_norm", D)
    for layer in (f"blk.{il}" for il in range(3)):
        for name in ("attn_norm", "ffn_norm"):
            add(f"{layer}.{name}", D)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{layer}.{name}", D, D)
        dense = layer in dense_layers
        for name in ("ffn_gate", "ffn_up", "ffn_down"):
            add(f"{layer}.{name}" + "_exps" * (not dense), *(D, D) if dense else (4, D, D))
        if not dense:
            add(f"{layer}.ffn_gate_inp", 4, D)
    engine.write(PATH, "k2-horizon", {**KEYS, EVERY: every}, tensors)
    return engine.load(PATH)


seen, rows = [], []
for every in (1, 2):
    rows.append(engine.logits(model(every), [1, 2, 3]))
    seen.append(any(model(every, [f"blk.{il}"]) is not None for il in (0, 1, 2)))
    print(f"every {every} -> experts in all layers: True, one dense layer: {seen[-1]}")
assert model("2") is None
print('every "2" ->', engine.errors[0].rpartition(": ")[2])
equal = bool((rows[0] == rows[1]).all())
print("logits are equal:", equal)
if seen != [False, False] or not equal or "wrong type" not in engine.errors[0]:
    raise SystemExit("changed")
END
