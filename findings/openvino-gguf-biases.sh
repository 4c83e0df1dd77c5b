#!/usr/bin/env bash
# OpenVINO GenAI 2026.4.1.0 with OpenVINO 2026.4.1 on the CPU; files made by gguf-py 0.19.0.
#
# Guess: a Llama file with biases of Q and K gives the logits of its model. Files of Llama store the
# rows of Q and K with each pair of a rotation side by side; biases have the same order as the rows.
# Behavior: the reader puts the rows back into the order of its RoPE, but not their biases. The same
# weights as Qwen2, whose files keep the original order, give other logits. Without biases both are
# the same.
# Why it matters: Llama models with `attention_bias: true` load without a message and compute
# wrong scores. The remedy is a conversion of the original model.
#
# Output (NMSE of logits, the same weights as llama and as qwen2):
#     without biases -> below 1e-9
#     with biases -> above 1e-3
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
N_HEAD = 64


def pair(rows):
    """Return rows of Q or K in the order of Llama's GGUF files."""
    heads = rows.reshape(-1, 2, N_HEAD // 2, *rows.shape[1:])
    return np.ascontiguousarray(heads.swapaxes(1, 2)).reshape(rows.shape)


def write(path, arch, biased):
    writer, rng = gguf.GGUFWriter(path, arch), np.random.default_rng(0)
    writer.add_file_type(1)
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
        if arch == "llama" and name.split(".")[-2] in ("attn_q", "attn_k"):
            values = pair(values)
        if name.endswith("norm.weight"):
            values += 1
        writer.add_tensor(name, values.astype(np.float16) if len(shape) > 1 else values)

    add("token_embd.weight", N_VOCAB, N_EMBD)
    add("output_norm.weight", N_EMBD)
    add("output.weight", N_VOCAB, N_EMBD)
    for layer in range(N_LAYER):
        for name in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{name}.weight", N_EMBD)
        for name, n in (("q", 256), ("k", 128), ("v", 128), ("output", 256)):
            add(f"blk.{layer}.attn_{name}.weight", n, N_EMBD)
            if biased and name != "output":
                add(f"blk.{layer}.attn_{name}.bias", n)
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


def error(biased):
    llama, qwen2 = (logits(arch, biased) for arch in ("llama", "qwen2"))
    nmse = np.square(llama - qwen2).sum() / np.square(qwen2).sum()
    return "below 1e-9" if nmse < 1e-9 else "above 1e-3" if nmse > 1e-3 else f"{nmse:.1e}"


seen = {"without biases": error(False), "with biases": error(True)}
expected = {"without biases": "below 1e-9", "with biases": "above 1e-3"}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
