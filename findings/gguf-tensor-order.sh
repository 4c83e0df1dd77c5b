#!/usr/bin/env bash
# gguf-py 0.19.0 and ggml of llama.cpp 0.5.0 (npm: @node-llama-cpp/linux-x64 3.22.1).
#
# Guess: the tensor table of a GGUF file has an offset per tensor, so the data may be stored in any
# order, and two tensors may share their data.
# Behavior: gguf-py follows the offsets. ggml computes each offset from the tensors before it and
# refuses a file whose offsets differ: "tensor 'a' has offset 32, expected 0".
# Why it matters: a reader that follows the offsets accepts files that llama.cpp cannot load, so a
# writer must store the data in the order of the table, without sharing.
#
# Output:
#     table order -> ('both read it', [1.0, 2.0])
#     other order -> ('ggml refuses', [1.0, 2.0])
#     shared data -> ('ggml refuses', [1.0, 1.0])
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
(cd "$dir" && npm pack --silent @node-llama-cpp/linux-x64@3.22.1 > /dev/null && tar xzf ./*.tgz)
"$dir/venv/bin/python" - "$dir" <<'EOF'
import ctypes
import struct
import sys

import gguf
import numpy as np

folder = sys.argv[1]


class Params(ctypes.Structure):
    _fields_ = [("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p)]


ggml = ctypes.CDLL(folder + "/package/bins/linux-x64/libggml-base.so")
ggml.gguf_init_from_file.restype = ctypes.c_void_p
ggml.gguf_init_from_file.argtypes = [ctypes.c_char_p, Params]


def read(offsets, data):
    table = b"".join(
        struct.pack("<Q1sIQIQ", 1, name, 1, 8, 0, offset)
        for name, offset in zip([b"a", b"b"], offsets)
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 2, 0) + table
    path = folder + "/model.gguf"
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32) + np.repeat(np.float32(data), 8).tobytes())
    context = ggml.gguf_init_from_file(path.encode(), Params(True, None))
    values = [float(tensor.data[0]) for tensor in gguf.GGUFReader(path).tensors]
    return "both read it" if context else "ggml refuses", values


seen = {
    "table order": read([0, 32], [1, 2]),
    "other order": read([32, 0], [2, 1]),
    "shared data": read([0, 0], [1]),
}
expected = {
    "table order": ("both read it", [1.0, 2.0]),
    "other order": ("ggml refuses", [1.0, 2.0]),
    "shared data": ("ggml refuses", [1.0, 1.0]),
}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
