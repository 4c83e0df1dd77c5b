#!/usr/bin/env bash
# transformers 5.23.0.
#
# Guess: `save_pretrained` writes a loaded Kimi Linear model with the tensor names of the checkpoint
# it came from; transformers reverses its renaming when it saves.
# Behavior: experts and attention get their names back, but the dense first layer does not. All
# names with `.mlp.` are saved as `.block_sparse_moe.`, which only layers with experts have.
# Why it matters: transformers loads the folder again, with equal logits, so nothing looks wrong.
# llama.cpp's converter fails ("Can not map tensor ..."), and so does other code that reads the
# published names. A fine-tuned model needs a renaming first.
#
# Output:
#     names that are lost -> ['model.layers.0.mlp.down_proj.weight', 'model.layers.0.mlp.gate_proj.weight', 'model.layers.0.mlp.up_proj.weight']
#     names that are new -> ['model.layers.0.block_sparse_moe.down_proj.weight', 'model.layers.0.block_sparse_moe.gate_proj.weight', 'model.layers.0.block_sparse_moe.up_proj.weight']
#     other names and values -> equal
#     logits of transformers -> equal
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check \
    torch==2.13.0 transformers==5.23.0
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
published, saved = (pathlib.Path(sys.argv[1], name) for name in ("published", "saved"))
PARTS = [f"{part}_proj.weight" for part in ("down", "gate", "up")]
DENSE = {f"model.layers.0.block_sparse_moe.{p}": f"model.layers.0.mlp.{p}" for p in PARTS}
# The keys of moonshotai/Kimi-Linear-48B-A3B-Instruct, with small sizes.
CONFIG = {
    "architectures": ["KimiLinearForCausalLM"], "model_type": "kimi_linear", "vocab_size": 32,
    "hidden_size": 32, "intermediate_size": 48, "moe_intermediate_size": 16,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "kv_lora_rank": 16, "q_lora_rank": None, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "num_experts": 4, "num_experts_per_token": 2, "num_shared_experts": 1,
    "first_k_dense_replace": 1, "moe_router_activation_func": "sigmoid", "rms_norm_eps": 1e-5,
    "routed_scaling_factor": 2.446, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    "linear_attn_config": {
        "full_attn_layers": [2], "kda_layers": [1], "head_dim": 16, "num_heads": 2,
        "short_conv_kernel_size": 4,
    },
}


def logits(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        return model, model(torch.arange(3, 20)[None]).logits


# A checkpoint with the published names.
published.mkdir()
(published / "config.json").write_text(json.dumps(CONFIG))
config = transformers.AutoConfig.from_pretrained(published)
torch.manual_seed(0)
transformers.AutoModelForCausalLM.from_config(config).float().save_pretrained(saved)
tensors = load_file(saved / "model.safetensors")
tensors = {DENSE.get(name, name): t for name, t in tensors.items()}
save_file(tensors, published / "model.safetensors", {"format": "pt"})

# It is loaded and saved.
model, before = logits(published)
model.save_pretrained(saved)
found = load_file(saved / "model.safetensors")
same = all(torch.equal(tensors[name], found[name]) for name in set(tensors) & set(found))
seen = {
    "names that are lost": sorted(set(tensors) - set(found)),
    "names that are new": sorted(set(found) - set(tensors)),
    "other names and values": "equal" if same else "different",
    "logits of transformers": "equal" if torch.equal(before, logits(saved)[1]) else "different",
}
expected = dict(zip(seen, [sorted(DENSE.values()), sorted(DENSE), "equal", "equal"]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
