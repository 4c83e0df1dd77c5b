#!/usr/bin/env bash
# gguf-py 0.19.0.
#
# Guess: the map of names for `--mmproj` gives the tensors of each vision encoder the names that
# llama.cpp's clip.cpp reads.
# Behavior: one map has the names of all encoders, and a module of two models gets the tensor of the
# later entry. Llama 4's `post_attention_layernorm` is Gemma 4's `attn_post_norm`, not `ln2`.
# Why it matters: clip.cpp reads both as optional tensors, so a converted Llama 4 encoder loads, and
# its embeddings are wrong.
#
# Output:
#     v.blk.0.attn_post_norm.weight
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0
"$dir/venv/bin/python" - <<'EOF'
from gguf import MODEL_ARCH, get_tensor_name_map

NAME = "vision_model.model.layers.0.post_attention_layernorm.weight"
found = get_tensor_name_map(MODEL_ARCH.MMPROJ, 1).get_name(NAME, try_suffixes=(".weight",))
print(found)
assert found == "v.blk.0.attn_post_norm.weight"
EOF
