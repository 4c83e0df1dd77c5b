#!/usr/bin/env bash
# Numba 0.68.1 against NumPy 2.4.6.
#
# Guess: a compiled function computes in the types NumPy 2 computes in, as Numba supports NumPy 2.
# Behavior: a Python literal does not adapt to the other operand, so float32 * 2.0 is float64, for
# arrays as well. Integers become 64 bits wide, so uint8(1) - uint8(2) is 2**64-1 and not 255. int64
# and uint64 give int64 and not float64.
# Why it matters: a kernel with one bare literal computes in double precision, at half the SIMD
# width and with other rounding. Write np.float32(2.0), and cast the result of arithmetic on small
# integers.
#
# Output (Numba, NumPy):
#     float32 * 2.0 -> ('float64', 'float32')
#     float32 array * 2.0 -> ('float64', 'float32')
#     uint8 - uint8 -> ('uint64', 'uint8')
#     int64 + uint64 -> ('int64', 'float64')
#     uint8(1) - uint8(2) -> (18446744073709551615, 255)
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check numba==0.68.1 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'EOF'
import numba
import numpy as np


def compare(function, *arguments):
    compiled = numba.njit(function)
    compiled(*arguments)
    result = compiled.nopython_signatures[0].return_type
    with np.errstate(over="ignore"):
        return str(getattr(result, "dtype", result)), str(function(*arguments).dtype)


def double(value):
    return value * 2.0


def subtract(left, right):
    return left - right


def add(left, right):
    return left + right


one, two = np.uint8(1), np.uint8(2)
with np.errstate(over="ignore"):
    difference = int(numba.njit(subtract)(one, two)), int(one - two)
seen = {
    "float32 * 2.0": compare(double, np.float32(1)),
    "float32 array * 2.0": compare(double, np.ones(2, np.float32)),
    "uint8 - uint8": compare(subtract, one, two),
    "int64 + uint64": compare(add, np.int64(1), np.uint64(1)),
    "uint8(1) - uint8(2)": difference,
}
expected = {
    "float32 * 2.0": ("float64", "float32"),
    "float32 array * 2.0": ("float64", "float32"),
    "uint8 - uint8": ("uint64", "uint8"),
    "int64 + uint64": ("int64", "float64"),
    "uint8(1) - uint8(2)": (2**64 - 1, 255),
}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
