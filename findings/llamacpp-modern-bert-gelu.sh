#!/usr/bin/env bash
# llama.cpp b10335 and b11739 (llama-cpp-py-sync 0.10335, 0.11739), with a one-layer model that the
# script writes.
#
# Guess: `hidden_activation = gelu` of a modern-bert file is one function, so two builds give the
# same embeddings.
# Behavior: b10335 computes GELU by its tanh formula (and a table of F16 values), b11739 by the error
# function. No key tells a file made for one from a file for the other.
# Why it matters: vectors of an index and of a query agree only if the same formula computed them,
# and a comparison with llama.cpp depends on its build. An engine that follows both needs both.
#
# Output (the exact GELU(2) is 1.954500, the tanh formula 1.954598, and 1.955078 as F16):
#     0.10335: GELU(2) = 1.9551
#     0.11739: GELU(2) = 1.9545
set -euo pipefail
source "$(dirname "$0")/b11739/install.sh"
cat >"$dir/gelu.py" <<'END'
import sys

import numpy as np
from engine import ffi, lib, load, write

D = 32
KEYS = {"context_length": 64, "embedding_length": D, "block_count": 1, "feed_forward_length": D}
KEYS |= {"attention.head_count": 1, "attention.layer_norm_epsilon": 1e-5, "vocab_size": 8}
KEYS |= {"attention.causal": False, "hidden_activation": "gelu", ".tokenizer.ggml.model": "none"}

# Each norm gives 1 in half of the dimensions and -1 in the others, and attention 0. The
# feed-forward adds 1000 GELU(2) to the first dimension.
up, down = np.zeros((2 * D, D)), np.zeros((D, D))
up[0, 0], up[D, 0], down[0, 0] = 2, 1, 1000
layer = {"attn_qkv": np.zeros((3 * D, D)), "attn_output": np.zeros((D, D)), "ffn_norm": np.ones(D)}
tensors = {f"blk.0.{k}.weight": v for k, v in (layer | {"ffn_up": up, "ffn_down": down}).items()}
tensors["token_embd.weight"] = np.tile(np.repeat([1, -1], D // 2), (8, 1))
tensors |= {f"{name}.weight": np.ones(D) for name in ("token_embd_norm", "output_norm")}
path = f"{sys.argv[1]}/model.gguf"
write(path, "modern-bert", KEYS, tensors)

params = lib.llama_context_default_params()
params.n_ctx, params.embeddings, params.pooling_type = 64, True, 0
context = lib.llama_init_from_model(load(path), params)
assert lib.llama_encode(context, lib.llama_batch_get_one(ffi.new("int32_t[]", [1]), 1)) == 0
row = np.frombuffer(ffi.buffer(lib.llama_get_embeddings_ith(context, 0), D * 4), np.float32)
unit = (row[1] - row[D - 1]) / 2  # the last norm's scale: these dimensions were 1 and -1
gelu = round(float((row[0] - row[1]) / unit / 1000), 4)
print(f"{sys.argv[2]}: GELU(2) =", gelu)
if gelu != {"0.10335": 1.9551, "0.11739": 1.9545}[sys.argv[2]]:
    raise SystemExit("changed")
END
"$dir/venv/bin/pip" install -q --disable-pip-version-check --no-deps -t "$dir/old" \
    llama-cpp-py-sync==0.10335
PYTHONPATH=$dir/old:$dir "${loader[@]}" "$dir/venv/bin/python" "$dir/gelu.py" "$dir" 0.10335
run "$dir/gelu.py" "$dir" 0.11739
