#!/usr/bin/env bash
# llama.cpp b11739 (llama-cpp-py-sync 0.11739), with one-layer models that the script writes.
#
# Guess: with sigmoid gating and `exp_probs_b.bias`, experts are ranked by sigmoid(logit) + bias, the
# rule of DeepSeek-V3 and the architectures after it (here dots1).
# Behavior: kolibri1 ranks logit + bias. The same router and bias choose another expert.
# Why it matters: the keys and tensors have the names of DeepSeek's rule, and nothing in the file
# tells the two rules apart. Small biases change few choices, so a short comparison can pass with
# the wrong rule.
#
# Output (logits 6 and 2 of the experts, biases 0 and 3: sums 6 and 5, with sigmoid 1.0 and 3.9):
#     dots1 -> expert 1
#     kolibri1 -> expert 0
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
run - "$dir" <<'END'
import sys

import numpy as np
from engine import load, logits, write

D, F = 32, 32
KEYS = {"context_length": 64, "embedding_length": D, "block_count": 1, "feed_forward_length": F}
KEYS |= {"attention.head_count": 1, "attention.head_count_kv": 1, "vocab_size": D}
KEYS |= {"attention.layer_norm_rms_epsilon": 1e-5, "expert_feed_forward_length": F}
KEYS |= {"expert_count": 2, "expert_used_count": 1, "expert_shared_count": 1}
KEYS |= {"expert_shared_feed_forward_length": F, "expert_gating_func": 2}
KEYS |= {"expert_weights_norm": True, ".tokenizer.ggml.model": "none"}
ONLY = {
    "dots1": {"leading_dense_block_count": 0, "expert_weights_scale": 1.0},
    "kolibri1": {"attention.sliding_window": 8, "attention.sliding_window_pattern": [1]},
}


def one(*shape, at):
    found = np.zeros(shape, np.float32)
    found[at] = 1
    return found


# Attention and the shared expert give 0. The tokens are the first dimension, whose norm is sqrt(D).
# Expert e gives dimension 1 + e, and the head is the identity: the greedy token names the expert.
norms = ["attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm"]
layer = {name: np.ones(D) for name in [*norms, "attn_k_norm"]}
layer |= {f"attn_{name}": np.zeros((D, D)) for name in ("q", "k", "v", "output")}
layer |= {f"ffn_{name}_shexp": np.zeros((D, D)) for name in ("gate", "up", "down")}
layer |= {f"ffn_{name}_exps": one(2, F, D, at=(slice(None), 0, 0)) for name in ("gate", "up")}
layer["ffn_down_exps"] = one(2, D, F, at=([0, 1], [1, 2], 0))
layer["ffn_gate_inp"] = one(2, D, at=(slice(None), 0)) * [[6], [2]] / D**0.5
tensors = {f"blk.0.{name}.weight": values for name, values in layer.items()}
tensors["blk.0.exp_probs_b.bias"] = [0, 3]
tensors["token_embd.weight"] = one(D, D, at=(slice(None), 0))
tensors["output_norm.weight"], tensors["output.weight"] = np.ones(D), np.eye(D)

seen = {}
for arch in ONLY:
    path = f"{sys.argv[1]}/{arch}.gguf"
    unused = ("post_attention_norm", "post_ffw_norm") if arch == "dots1" else ()
    kept = {k: v for k, v in tensors.items() if not any(name in k for name in unused)}
    write(path, arch, KEYS | ONLY[arch], kept)
    seen[arch] = int(logits(load(path), [1])[1:].argmax())
    print(arch, "-> expert", seen[arch])
if seen != {"dots1": 1, "kolibri1": 0}:
    raise SystemExit("changed")
END
