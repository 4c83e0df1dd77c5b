#!/usr/bin/env bash
# gguf-py 0.19.0: gguf-set-metadata.
#
# Guess: `gguf-set-metadata FILE KEY false` sets a Boolean key to false.
# Behavior: the tool converts the text as a truth value, so "false" and "0" set the key to true. An
# empty argument sets it to false. No message warns of it.
# Why it matters: keys such as tokenizer.ggml.add_bos_token are Boolean. An attempt to turn one off
# with this tool leaves it on, or turns it on.
#
# Output:
#     true, set to 'false' -> True
#     false, set to 'false' -> True
#     false, set to '0' -> True
#     true, set to '' -> False
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check gguf==0.19.0 numpy==2.4.6
"$dir/venv/bin/python" - "$dir" <<'EOF'
import subprocess
import sys

import gguf

folder = sys.argv[1]
KEY = "tokenizer.ggml.add_bos_token"


def change(before, argument):
    path = folder + "/model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_bool(KEY, before)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    command = [folder + "/venv/bin/gguf-set-metadata", "--force", path, KEY, argument]
    subprocess.run(command, check=True, capture_output=True)
    return gguf.GGUFReader(path).fields[KEY].contents()


seen = {
    "true, set to 'false'": change(True, "false"),
    "false, set to 'false'": change(False, "false"),
    "false, set to '0'": change(False, "0"),
    "true, set to ''": change(True, ""),
}
expected = dict(zip(seen, [True, True, True, False]))

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
