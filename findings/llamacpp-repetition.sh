#!/usr/bin/env bash
# llama.cpp of xllamacpp 2026.10.11549, with a one-layer model that the script writes.
#
# Guess: GBNF's limit of 2000 repetitions is a limit of every count: {0,2001} is refused like
# {2001}.
# Behavior: {2001} is refused ("number of repetitions exceeds sane defaults"). {0,2001} is accepted
# and means {0,}: the response below has 2100 repetitions. {0,2000} stops at 2000.
# Why it matters: a grammar's upper bound above 2000 limits nothing in llama.cpp, without a message.
#
# Output:
#     {0,2000} -> 2000
#     {0,2001} -> 2100
#     {2000} -> 2000
#     {2001} -> refused
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check xllamacpp==2026.10.11549 \
    gguf==0.19.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json
import sys

import gguf
import numpy as np
import xllamacpp

path = sys.argv[1] + "/tiny.gguf"
tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
writer = gguf.GGUFWriter(path, "llama")
writer.add_context_length(4096)
writer.add_embedding_length(32)
writer.add_block_count(1)
writer.add_feed_forward_length(32)
writer.add_head_count(1)
writer.add_layer_norm_rms_eps(1e-5)
writer.add_rope_dimension_count(32)
writer.add_tokenizer_model("llama")
writer.add_token_list(tokens)
writer.add_token_scores([0.0] * 259)
writer.add_token_types([2, 3, 3] + [6] * 256)
writer.add_bos_token_id(1)
writer.add_eos_token_id(2)
shapes = {"token_embd": (259, 32), "output": (259, 32), "output_norm": (32,)}
for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
    shapes[f"blk.0.{name}"] = (32, 32)
shapes["blk.0.attn_norm"] = shapes["blk.0.ffn_norm"] = (32,)
for name, shape in shapes.items():
    writer.add_tensor(name + ".weight", np.full(shape, 0.1, np.float32))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()


def serve(template):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = 4096
    params.n_parallel = 1
    params.verbosity = -1
    params.warmup = False
    params.use_jinja = True
    params.chat_template = template
    params.cpuparams.n_threads = 1
    return xllamacpp.Server(params)


server = serve("{{ messages[0].content }}")


def count(repetition):
    request = {"prompt": "a", "n_predict": 2100, "grammar": f'root ::= "a"{repetition}'}
    reply = server.handle_completions({**request, "temperature": 0, "logit_bias": [[2, -50]]})
    reply = json.loads(reply) if isinstance(reply, str | bytes) else reply
    if reply.get("code") == 400 or "error" in reply:
        return "refused"
    return len(reply["choices"][0]["text"])


seen = {text: count(text) for text in ["{0,2000}", "{0,2001}", "{2000}", "{2001}"]}
expected = {"{0,2000}": 2000, "{0,2001}": 2100, "{2000}": 2000, "{2001}": "refused"}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
