#!/usr/bin/env bash
# transformers 5.23.0.
#
# Guess: `FineGrainedFP8Config(dequantize=True)` multiplies each block of 128x128 values of a
# DeepSeek FP8 checkpoint by its scale. The last block of a size that is no multiple of 128 is smaller, as in
# DeepSeek's own kernel and in llama.cpp's converter.
# Behavior: the block size of the file is not read. transformers divides the rows by the number of
# scales: 192 rows have two blocks of 96, so 32 rows get the scale of the wrong block without a
# message. 576 rows, which 5 does not divide, are an error. Without a GPU this is the default path.
# Why it matters: `kv_a_proj_with_mqa` of DeepSeek-V3 has 576 rows and 5 rows of scales. Reference
# values from transformers can be wrong for other models, if the sizes happen to be divisible.
#
# Output:
#     rows with each scale, of 128 rows -> [128]
#     rows with each scale, of 256 rows -> [128, 128]
#     rows with each scale, of 192 rows -> [96, 96]
#     rows with each scale, of 576 rows -> Weight shape (576, 128) not divisible by scale grid (5, 1).
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check \
    torch==2.13.0 transformers==5.23.0 accelerate==1.15.0
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}


def rows_by_scale(rows):
    """Load a matrix of ones whose blocks have the scales 1, 2, ...; count the values."""
    folder = pathlib.Path(sys.argv[1], str(rows))
    config = transformers.Qwen3Config(
        vocab_size=32, hidden_size=128, intermediate_size=rows, num_hidden_layers=1,
        num_attention_heads=1, num_key_value_heads=1, head_dim=128,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tensors = {}
    for name, t in model.state_dict().items():
        if "_proj" in name:
            grid = [-(-n // 128) for n in t.shape]
            tensors[name + "_scale_inv"] = torch.arange(1.0, 1 + grid[0] * grid[1]).reshape(grid)
            t = torch.ones(t.shape).to(torch.float8_e4m3fn)
        tensors[name] = t.clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    stored = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(stored | {"quantization_config": FP8}))
    how = transformers.FineGrainedFP8Config(dequantize=True)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, quantization_config=how)
    column = model.state_dict()["model.layers.0.mlp.up_proj.weight"][:, 0]
    return column.unique(return_counts=True)[1].tolist()


def error(rows):
    """The public call fails with a summary; the operation says why."""
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    try:
        rows_by_scale(rows)
    except RuntimeError:
        try:
            scales = torch.ones(-(-rows // 128), 1)
            Fp8Dequantize(None)._dequantize_one(torch.ones(rows, 128), scales)
        except ValueError as e:
            return str(e)


seen = {f"rows with each scale, of {n} rows": rows_by_scale(n) for n in (128, 256, 192)}
seen["rows with each scale, of 576 rows"] = error(576)
expected = dict(zip(seen, [
    [128], [128, 128], [96, 96], "Weight shape (576, 128) not divisible by scale grid (5, 1).",
]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
