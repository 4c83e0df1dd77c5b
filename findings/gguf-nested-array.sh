#!/usr/bin/env bash
# gguf-py 0.19.0 and ggml of llama.cpp 0.5.0 (npm: @node-llama-cpp/linux-x64 3.22.1).
#
# Guess: an array of arrays, which GGUF allows and gguf-py writes, has the same value in every
# reader.
# Behavior: gguf-py's own reader joins the inner arrays, so [[1, 2], [3]] is read as [1, 2, 3]. ggml
# refuses the whole file: "key 'demo.nested' has invalid GGUF type 9".
# Why it matters: one nested array, even in a key that no program reads, makes a model file unusable
# for llama.cpp.
#
# Output:
#     types -> ['ARRAY', 'ARRAY', 'INT32']
#     gguf-py reads -> [1, 2, 3]
#     ggml -> refuses
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
(cd "$dir" && npm pack --silent @node-llama-cpp/linux-x64@3.22.1 > /dev/null && tar xzf ./*.tgz)
"$dir/venv/bin/python" - "$dir" <<'EOF'
import ctypes
import sys

import gguf

folder = sys.argv[1]


class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


ggml = ctypes.CDLL(folder + "/package/bins/linux-x64/libggml-base.so")
ggml.gguf_init_from_file.restype = ctypes.c_void_p
ggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]

path = folder + "/model.gguf"
writer = gguf.GGUFWriter(path, "llama")
writer.add_array("demo.nested", [[1, 2], [3]])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

field = gguf.GGUFReader(path).fields["demo.nested"]
context = ggml.gguf_init_from_file(path.encode(), Params(True, None))
seen = {
    "types": [type.name for type in field.types],
    "gguf-py reads": field.contents(),
    "ggml": "reads" if context else "refuses",
}
expected = {"types": ["ARRAY", "ARRAY", "INT32"], "gguf-py reads": [1, 2, 3], "ggml": "refuses"}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
