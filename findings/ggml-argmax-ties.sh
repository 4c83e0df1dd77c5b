#!/usr/bin/env bash
# ggml of llama.cpp 0.5.0, CPU backend (npm: @node-llama-cpp/linux-x64 3.22.1).
#
# Guess: the op ARGMAX gives the first of equal maxima, like NumPy's argmax.
# Behavior: it gives the last one.
# Why it matters: a graph that ends in ARGMAX and a host that searches the same logits choose
# different tokens where logits are equal. Random test data has no equal maxima, so comparisons of
# backends do not show the difference.
#
# Output:
#     ggml  [2, 3, 2]
#     numpy [1, 0, 0]
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check numpy==2.4.6
(cd "$dir" && npm pack --silent @node-llama-cpp/linux-x64@3.22.1 > /dev/null && tar xzf ./*.tgz)
"$dir/venv/bin/python" - "$dir/package/bins/linux-x64" <<'EOF'
import ctypes
import sys
from ctypes import c_int, c_int64, c_void_p

import numpy as np

F32 = 0
ROWS = np.array([[1, 5, 5, 2], [7, 7, 7, 7], [3, 1, 3, 0]], np.float32)


class Params(ctypes.Structure):
    _fields_ = [
        ("mem_size", ctypes.c_size_t),
        ("mem_buffer", c_void_p),
        ("no_alloc", ctypes.c_bool),
    ]


ggml, cpu = (
    ctypes.CDLL(f"{sys.argv[1]}/libggml-{name}.so", ctypes.RTLD_GLOBAL)
    for name in ("base", "cpu-x64")
)


def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


context = function(ggml, "ggml_init", c_void_p, Params)(Params(1 << 24, None, False))
new_tensor = function(
    ggml, "ggml_new_tensor_2d", c_void_p, c_void_p, c_int, c_int64, c_int64
)
data = function(ggml, "ggml_get_data", c_void_p, c_void_p)
rows = new_tensor(context, F32, 4, 3)
ctypes.memmove(data(rows), ROWS.ctypes.data, ROWS.nbytes)
result = function(ggml, "ggml_argmax", c_void_p, c_void_p, c_void_p)(context, rows)
graph = function(ggml, "ggml_new_graph", c_void_p, c_void_p)(context)
function(ggml, "ggml_build_forward_expand", None, c_void_p, c_void_p)(graph, result)
run = function(cpu, "ggml_graph_compute_with_ctx", c_int, c_void_p, c_void_p, c_int)
assert run(context, graph, 1) == 0
found = np.ctypeslib.as_array(ctypes.cast(data(result), ctypes.POINTER(ctypes.c_int32)), (3,))
print("ggml ", found.tolist())
print("numpy", ROWS.argmax(1).tolist())
assert found.tolist() == [2, 3, 2] and ROWS.argmax(1).tolist() == [1, 0, 0]
EOF
