#!/usr/bin/env bash
# gguf-py 0.19.0: gguf-convert-endian, GGUFReader and gguf.quants.dequantize.
#
# Guess: a big-endian file that gguf-convert-endian wrote reads back with the same values, since
# GGUFReader notices the byte order.
# Behavior: metadata are right, and the arrays of F32 and F16 tensors have the dtypes >f4 and >f2. But
# `dequantize` reads the bytes of an array in the byte order of the machine, for F32 and F16 too. Only
# MXFP4 is right, whose scales have one byte. Nothing warns or raises.
# Why it matters: this reader and this function are the reference for bytes of quantized tensors.
# Values of big-endian files are wrong by orders of magnitude. llama-py refuses such a file.
#
# Output, of a tensor of ones:
#     type dtype dequantized (first value)
#     F32 >f4 4.6006e-41
#     F16 >f2 3.5763e-06
#     BF16 uint8 -5.7856e-39
#     Q8_0 uint8 0.015987
#     Q4_0 uint8 -8.3923e-05
#     MXFP4 uint8 1
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
"$dir/venv/bin/python" -W ignore - "$dir" <<'EOF'
import subprocess
import sys

import gguf
import numpy as np
from gguf.quants import dequantize, quantize

folder = sys.argv[1]
path = folder + "/model.gguf"
wrong = []
print("type dtype dequantized (first value)")
for name in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "MXFP4"):
    type = gguf.GGMLQuantizationType[name]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_float32("llama.rope.freq_base", 10000.0)
    writer.add_tensor("t.weight", quantize(np.ones((2, 64), np.float32), type), raw_dtype=type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    command = [folder + "/venv/bin/gguf-convert-endian", path, "big"]
    subprocess.run(command, input=b"YES\n", check=True, capture_output=True)
    reader = gguf.GGUFReader(path)
    if reader.fields["llama.rope.freq_base"].contents() != 10000.0:
        raise SystemExit("changed: metadata of a big-endian file are wrong")
    data = reader.tensors[0].data
    value = dequantize(data, type).reshape(-1)[0]
    print(name, data.dtype, f"{value:.5g}")
    if not 0.9 < value < 1.1:
        wrong.append(name)
if wrong != ["F32", "F16", "BF16", "Q8_0", "Q4_0"]:
    raise SystemExit(f"changed: wrong values for {wrong}")
EOF
