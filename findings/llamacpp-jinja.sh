#!/usr/bin/env bash
# llama.cpp of xllamacpp 2026.10.11549 against Jinja2 3.1.6, with a one-layer model that the script
# writes. The templates run through the server's /apply-template.
#
# Guess: an expression that llama.cpp's template engine accepts has the value it has in Jinja2.
# Behavior: 2.0 prints as "2.0", and "2" after `string`. % keeps the sign of the dividend, as in C.
# A negative index works on a list but gives an empty string on a string. `default` replaces none,
# where Jinja2 replaces undefined variables only. A float loses digits.
# Why it matters: chat templates are written for Jinja2. A prompt can differ from the one a model
# was trained with, and no error shows it.
#
# Output (llama.cpp, Jinja2):
#     2.0 -> ('2.0', '2.0')
#     2.0|string -> ('2', '2.0')
#     -7 % 3 -> ('-1', '2')
#     [1, 2][-1] -> ('2', '2')
#     'ab'[-1] -> ('', 'b')
#     none|default('d') -> ('d', 'None')
#     3.14159265 -> ('3.141593', '3.14159265')
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check xllamacpp==2026.10.11549 \
    gguf==0.19.0 numpy==2.4.6 jinja2==3.1.6
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
"$dir/venv/bin/python" - "$dir" <<'EOF'
import json
import sys
import urllib.request

import gguf
import jinja2
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


expected = {
    "2.0": ("2.0", "2.0"),
    "2.0|string": ("2", "2.0"),
    "-7 % 3": ("-1", "2"),
    "[1, 2][-1]": ("2", "2"),
    "'ab'[-1]": ("", "b"),
    "none|default('d')": ("d", "None"),
    "3.14159265": ("3.141593", "3.14159265"),
}
template = "{{ messages[0].content }}" + "".join("|{{ " + text + " }}" for text in expected)
messages = [{"role": "user", "content": "x"}]
server = serve(template)
request = urllib.request.Request(
    server.listening_address + "/apply-template",
    json.dumps({"messages": messages}).encode(),
    {"Content-Type": "application/json"},
)
theirs = json.loads(urllib.request.urlopen(request).read())["prompt"].split("|")[1:]
jinja = jinja2.Template(template).render(messages=messages).split("|")[1:]
seen = dict(zip(expected, zip(theirs, jinja)))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
