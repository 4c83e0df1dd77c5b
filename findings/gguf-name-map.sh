#!/usr/bin/env bash
# gguf-py 0.19.0.
#
# Guess: get_tensor_name_map(arch, n) depends on its arguments only.
# Behavior: a map for ARCTIC changes the table of all later maps of the process: class
# TensorNameMap updates its shared dictionary with the names of that architecture.
# Why it matters: a program that converts several models loses `post_attention_layernorm` of Llama,
# Qwen and most others after an Arctic model, and stops with "Can not map tensor".
#
# Output:
#     before ARCTIC blk.0.ffn_norm.weight
#     after ARCTIC  None
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0
"$dir/venv/bin/python" - <<'EOF'
from gguf import MODEL_ARCH, get_tensor_name_map

NAME = "model.layers.0.post_attention_layernorm.weight"


def name_in_llama():
    return get_tensor_name_map(MODEL_ARCH.LLAMA, 1).get_name(NAME, try_suffixes=(".weight",))


before = name_in_llama()
get_tensor_name_map(MODEL_ARCH.ARCTIC, 1)
after = name_in_llama()
print("before ARCTIC", before)
print("after ARCTIC ", after)
assert before == "blk.0.ffn_norm.weight" and after is None
EOF
