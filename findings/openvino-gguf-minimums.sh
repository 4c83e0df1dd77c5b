#!/usr/bin/env bash
# OpenVINO GenAI 2026.4.1.0 with OpenVINO 2026.4.1 on the CPU; files made by gguf-py 0.19.0.
#
# Guess: LLMPipeline("model.gguf") computes with the weights that the file stores. Q4_1 and Q4_K_M
# files are a bit more exact than Q4_0 files, as in llama.cpp.
# Behavior: Q4_1 and Q4_K store a minimum for each block of 32 values, in floating point. The reader
# replaces it with a zero point of 4 bits, the nearest whole multiple of the block's scale. The
# model's logits change as much as they did when the weights were quantized. Minimums below -15
# scales are wrapped modulo 16: the zero point of a minimum of -20 scales is 4. Q4_0 has no minimum
# and is exact.
# Why it matters: Q4_K_M is the most common type of published files, and nothing is printed. The
# remedy is Q4_0 or Q8_0, or a conversion of the original model.
#
# Output (NMSE of a random Llama's logits, from a file with the same values in F16):
#     Q4_0 -> below 1e-4
#     Q4_1 -> above 0.05
#     Q4_1, minimums of -8 scales -> below 1e-4
#     Q4_1, minimums of -7.5 scales -> above 0.05
#     Q4_1, minimums of -20 scales -> above 0.05
#     Q4_K, minimums of -8 scales -> below 1e-4
#     Q4_K, minimums of -7.5 scales -> above 0.05
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
Type = gguf.GGMLQuantizationType
FILE_TYPES = {Type.Q4_0: 2, Type.Q4_1: 3, Type.Q4_K: 15}
N_EMBD, N_FF, N_VOCAB, N_LAYER = 256, 512, 128, 2
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
EXACT["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = "0"


def quantize(values, kind, minimum):
    """Return the bytes of a matrix. minimum: in scales, in place of the minimums of the values"""
    if kind is Type.Q4_K:
        return random_q4_k(*values.shape, minimum)
    raw = gguf.quantize(values, kind)
    if minimum is not None:
        blocks = raw.reshape(-1, 20)
        scales = blocks[:, :2].copy().view(np.float16).astype(np.float32)
        blocks[:, 2:4] = (scales * minimum).astype(np.float16).view(np.uint8)
    return raw


def random_q4_k(n_rows, n_columns, minimum):
    """Return blocks of random values; gguf-py does not quantize this type."""
    rng = np.random.default_rng(n_columns)
    blocks = rng.integers(0, 256, (n_rows, n_columns // 256, 144), dtype=np.uint8)
    blocks[..., :4] = np.array([0.001, -0.001 * minimum], np.float16).view(np.uint8)
    scales = rng.integers(8, 16, (n_rows, n_columns // 256, 4), dtype=np.uint8)
    blocks[..., 4:16] = np.concatenate([scales, scales, scales | scales << 4], -1)
    return blocks.reshape(n_rows, -1)


def write(path, kind, minimum, as_f16):
    writer, rng = gguf.GGUFWriter(path, "llama"), np.random.default_rng(0)
    writer.add_file_type(1 if as_f16 else FILE_TYPES[kind])
    writer.add_block_count(N_LAYER)
    writer.add_context_length(512)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("llama-bpe")
    writer.add_token_list(["a", "b", "ab", *(f"<{i}>" for i in range(3, N_VOCAB))])
    writer.add_token_types([1] * 3 + [3] * (N_VOCAB - 3))
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(3)
    writer.add_eos_token_id(4)

    def add(name, *shape):
        values = rng.standard_normal(shape).astype(np.float32) / shape[-1] ** 0.5
        if len(shape) == 1:
            writer.add_tensor(name, 1 + values)
            return
        raw = quantize(values, kind, minimum)
        if as_f16:
            writer.add_tensor(name, gguf.dequantize(raw, kind).astype(np.float16))
        else:
            writer.add_tensor(name, raw, raw_dtype=kind)

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
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def logits(*how):
    write(folder + "/model.gguf", *how)
    openvino_genai.LLMPipeline(folder + "/model.gguf", "CPU", **EXACT, enable_save_ov_model=True)
    model = openvino.Core().compile_model(folder + "/openvino_model.xml", "CPU", EXACT)
    ids = np.arange(5, 105)[None]
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    feed |= {"position_ids": np.arange(100)[None], "beam_idx": np.zeros(1, np.int32)}
    return np.array(model.create_infer_request().infer(feed)["logits"])


def error(kind, minimum=None):
    expected, found = (logits(kind, minimum, as_f16) for as_f16 in (True, False))
    nmse = np.square(found - expected).sum() / np.square(expected).sum()
    return "below 1e-4" if nmse < 1e-4 else "above 0.05" if nmse > 0.05 else f"{nmse:.1e}"


seen = {
    "Q4_0": error(Type.Q4_0),
    "Q4_1": error(Type.Q4_1),
    "Q4_1, minimums of -8 scales": error(Type.Q4_1, -8),
    "Q4_1, minimums of -7.5 scales": error(Type.Q4_1, -7.5),
    "Q4_1, minimums of -20 scales": error(Type.Q4_1, -20),
    "Q4_K, minimums of -8 scales": error(Type.Q4_K, -8),
    "Q4_K, minimums of -7.5 scales": error(Type.Q4_K, -7.5),
}
small, large = "below 1e-4", "above 0.05"
expected = dict(zip(seen, [small, large, small, large, large, small, large]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
