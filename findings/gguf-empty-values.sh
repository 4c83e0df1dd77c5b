#!/usr/bin/env bash
# gguf-py 0.19.0: GGUFWriter and gguf-new-metadata.
#
# Guess: GGUFWriter writes an empty string or an empty array, as GGUF allows. gguf-new-metadata,
# which copies a file and renames the model, accepts each file that gguf-py reads.
# Behavior: GGUFWriter drops a key whose value is empty, without a message. gguf-new-metadata keeps
# an empty string, but fails on an empty array: "Invalid GGUF metadata array. Empty array".
# Why it matters: an empty value differs from a missing key, for which a program takes its default.
# A writer of GGUF that stores an empty array makes a file that this tool cannot copy.
#
# Output:
#     GGUFWriter -> []
#     source -> ['demo.array', 'demo.string']
#     copy of an empty string -> ['demo.string']
#     copy of an empty array -> ValueError: Invalid GGUF metadata array. Empty array
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'EOF'
import struct
import subprocess
import sys

import gguf

folder = sys.argv[1]


def keys(path):
    return sorted(key for key in gguf.GGUFReader(path).fields if key.startswith("demo."))


def text(value):
    return struct.pack("<Q", len(value)) + value


def store(name, *pairs):
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)
    with open(f"{folder}/{name}.gguf", "wb") as file:
        file.write(head + bytes(-len(head) % 32))
    return f"{folder}/{name}.gguf"


def copy(path):
    command = [folder + "/venv/bin/gguf-new-metadata", "--general-name", "Copy"]
    result = subprocess.run([*command, path, path + ".copy"], capture_output=True, text=True)
    if result.returncode:
        return next(line for line in result.stderr.splitlines() if line.startswith("ValueError"))
    return keys(path + ".copy")


written = folder + "/written.gguf"
writer = gguf.GGUFWriter(written, "llama")
writer.add_string("demo.string", "")
writer.add_array("demo.array", [])
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()

name = text(b"general.architecture") + struct.pack("<I", 8) + text(b"llama")
string = text(b"demo.string") + struct.pack("<I", 8) + text(b"")
array = text(b"demo.array") + struct.pack("<IIQ", 9, 5, 0)
seen = {
    "GGUFWriter": keys(written),
    "source": keys(store("source", name, string, array)),
    "copy of an empty string": copy(store("string", name, string)),
    "copy of an empty array": copy(store("array", name, array)),
}
expected = {
    "GGUFWriter": [],
    "source": ["demo.array", "demo.string"],
    "copy of an empty string": ["demo.string"],
    "copy of an empty array": "ValueError: Invalid GGUF metadata array. Empty array",
}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
