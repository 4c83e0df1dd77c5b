#!/usr/bin/env bash
# OpenVINO GenAI 2026.4.1.0 with OpenVINO 2026.4.1 on the CPU; files made by gguf-py 0.19.0.
#
# Guess: LLMPipeline("model.gguf") rotates positions as the file specifies.
# Behavior: the reader uses rope.freq_base only. It ignores the tensor `rope_freqs.weight`, which
# holds the frequency factors of Llama 3.1 and 3.2, and rope.scaling.type and rope.scaling.factor.
# Why it matters: Llama 3.1 and 3.2 files load and answer, but compute with the frequencies of
# Llama 3. The factors reach 32. The error grows with the distance of tokens, and nothing is printed.
#
# Output (logits of 100 tokens, compared with a file without these):
#     rope.freq_base 20000 -> changed
#     rope_freqs.weight from 1 to 32 -> equal
#     rope.scaling linear, factor 4 -> equal
#     rope.scaling YaRN, factor 4 -> equal
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6 \
    openvino==2026.4.1 openvino-genai==2026.4.1.0 openvino-tokenizers==2026.4.1.0
"$dir/venv/bin/python" - "$dir" <<'EOF'
import sys

import gguf
import numpy as np
import openvino
import openvino_genai

folder = sys.argv[1]
N_EMBD, N_FF, N_VOCAB, N_LAYER = 256, 512, 128, 2
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
EXACT["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"


def write(path, base=10000.0, factors=None, scaling=None):
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_file_type(1)
    writer.add_block_count(N_LAYER)
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(base)
    writer.add_rope_dimension_count(64)
    if scaling is not None:
        writer.add_rope_scaling_type(scaling)
        writer.add_rope_scaling_factor(4.0)
        writer.add_rope_scaling_orig_ctx_len(128)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["a", "b", "ab", *(f"<{i}>" for i in range(3, N_VOCAB))])
    writer.add_token_types([1] * 3 + [3] * (N_VOCAB - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(3)
    writer.add_eos_token_id(4)

    def add(name, *shape):
        values = rng.standard_normal(shape).astype(np.float32) / shape[-1] ** 0.5
        writer.add_tensor(name, 1 + values if len(shape) == 1 else values.astype(np.float16))

    add("token_embd.weight", N_VOCAB, N_EMBD)
    add("output_norm.weight", N_EMBD)
    add("output.weight", N_VOCAB, N_EMBD)
    for layer in range(N_LAYER):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", N_EMBD)
        for name, n in (("q", 256), ("k", 128), ("v", 128), ("output", 256)):
            add(f"blk.{layer}.attn_{name}.weight", n, N_EMBD)
        for name in ("ffn_gate", "ffn_up"):
            add(f"blk.{layer}.{name}.weight", N_FF, N_EMBD)
        add(f"blk.{layer}.ffn_down.weight", N_EMBD, N_FF)
    if factors is not None:
        writer.add_tensor("rope_freqs.weight", factors)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(**how):
    write(folder + "/model.gguf", **how)
    openvino_genai.LLMPipeline(folder + "/model.gguf", "CPU", **EXACT, enable_save_ov_model=True)
    model = openvino.Core().compile_model(folder + "/openvino_model.xml", "CPU", EXACT)
    ids = np.arange(5, 105)[None]
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    feed |= {"position_ids": np.arange(100)[None], "beam_idx": np.zeros(1, np.int32)}
    return np.array(model.create_infer_request().infer(feed)["logits"])


def compare(**how):
    return "equal" if np.array_equal(logits(**how), plain) else "changed"


plain = logits()
seen = {
    "rope.freq_base 20000": compare(base=20000.0),
    "rope_freqs.weight from 1 to 32": compare(factors=np.linspace(1, 32, 32, dtype=np.float32)),
    "rope.scaling linear, factor 4": compare(scaling=gguf.RopeScalingType.LINEAR),
    "rope.scaling YaRN, factor 4": compare(scaling=gguf.RopeScalingType.YARN),
}
expected = dict(zip(seen, ["changed", "equal", "equal", "equal"]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
