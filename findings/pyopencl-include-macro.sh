#!/usr/bin/env bash
# pyopencl 2026.1.4, with intel-opencl-rt 2026.2.0 as its device: the cache of built programs.
#
# Guess: pyopencl rebuilds a program when a file that it includes has changed, since its cache looks
# at included files.
# Behavior: the cache finds `#include "file"` and `#include <file>`, nested ones too. It does not
# see `#include NAME` with a macro, which is valid OpenCL C. After a change of that file the old binary
# runs, in this process and in later ones, without a message.
# Why it matters: one kernel source for many types is often written with the type's file in a macro
# (-DTYPE_FILE=...). An edit of the file then has no effect until ~/.cache/pyopencl is deleted.
#
# Output, values before and after the change from 1 to 2:
#     #include "value.h" -> 1 2
#     #include <value.h> -> 1 2
#     #include FILE -> 1 1
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check pyopencl==2026.1.4 numpy==2.4.6 \
    intel-opencl-rt==2026.2.0 intel-cmplr-lib-rt==2026.2.0
export OCL_ICD_VENDORS=$dir/venv/lib/libintelocl.so XDG_CACHE_HOME=$dir/cache
"$dir/venv/bin/python" -W ignore - "$dir" <<'EOF'
import sys
from pathlib import Path

import numpy as np
import pyopencl as cl

folder = Path(sys.argv[1])
context = cl.Context([cl.get_platforms()[0].get_devices()[0]])
queue = cl.CommandQueue(context)


def run(source):
    program = cl.Program(context, source).build(options=["-I", str(folder)])
    found = np.zeros(1, np.int32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, found.nbytes)
    program.get_value(queue, (1,), None, buffer)
    cl.enqueue_copy(queue, found, buffer)
    return int(found[0])


def change(include):
    source = f"{include}\n__kernel void get_value(__global int *x) {{ x[0] = VALUE; }}"
    values = []
    for value in (1, 2):
        (folder / "value.h").write_text(f"#define VALUE {value}\n")
        values.append(run(source))
    return values


seen = {
    '#include "value.h"': change('#include "value.h"'),
    "#include <value.h>": change("#include <value.h>"),
    "#include FILE": change('#define FILE "value.h"\n#include FILE'),
}
for include, values in seen.items():
    print(include, "->", *values)
if list(seen.values()) != [[1, 2], [1, 2], [1, 1]]:
    raise SystemExit("changed")
EOF
