#!/usr/bin/env bash
# llama.cpp of xllamacpp 2026.10.11549, with a one-layer model that the script writes.
#
# Guess: three busy slots of a server are one batch of three tokens, whichever slots they are.
# Behavior: with separate caches (no --kv-unified), a ubatch needs consecutive sequences. Slots 0, 1
# and 2 are one ubatch per step; slots 0, 2 and 4 are three ubatches of one token, so each step
# reads all weights three times.
# Why it matters: the choice of a slot decides the speed of a server that is partly busy. Here the
# scheduler prefers slots that keep the busy ones consecutive.
#
# Output:
#     slots 0 1 2: steps are one ubatch
#     slots 0 2 4: steps are three ubatches
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check xllamacpp==2026.10.11549 \
    gguf==0.19.0 numpy==2.4.6
cat >"$dir/serve.py" <<'EOF'
import sys
import threading

import gguf
import numpy as np
import xllamacpp

path, slots = sys.argv[1] + "/tiny.gguf", [int(n) for n in sys.argv[2:]]
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

params = xllamacpp.CommonParams()
params.model.path = path
params.n_ctx = 6 * 1024
params.n_parallel = 6
params.kv_unified = False
params.verbosity = 10
params.warmup = False
params.cpuparams.n_threads = 1
server = xllamacpp.Server(params)


def complete(slot):
    request = {"prompt": [5, 6, 7], "n_predict": 200, "id_slot": slot, "temperature": 0}
    server.handle_completions({**request, "ignore_eos": True, "cache_prompt": False})


threads = [threading.Thread(target=complete, args=(slot,)) for slot in slots]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
EOF
cat >"$dir/count.py" <<'EOF'
import re
import sys

# The log shows each batch and each of its ubatches. Steps of two requests can occur at the ends.
sizes = [int(n) for n in re.findall(r"ubatch_print: +n_tokens += (\d+)", sys.stdin.read())]
ones, threes = sizes.count(1), sizes.count(3)
if ones < 60 and threes > 300:
    print("steps are one ubatch")
elif ones > 450:
    print("steps are three ubatches")
else:
    print(f"changed: {ones} of one token, {threes} of three")
EOF
for slots in "0 1 2" "0 2 4"; do
    # shellcheck disable=SC2086
    LLAMA_BATCH_DEBUG=1 "$dir/venv/bin/python" "$dir/serve.py" "$dir" $slots >"$dir/log" 2>&1
    echo "slots $slots: $("$dir/venv/bin/python" "$dir/count.py" <"$dir/log")"
done | tee "$dir/seen"
diff - "$dir/seen" <<'EOF'
slots 0 1 2: steps are one ubatch
slots 0 2 4: steps are three ubatches
EOF
