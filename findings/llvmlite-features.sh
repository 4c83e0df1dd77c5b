#!/usr/bin/env bash
# llvmlite 0.50.0: target features and addresses of compiled functions.
#
# Guess: a misspelt CPU feature raises, and so does a function that the module does not have.
# Behavior: create_target_machine ignores the feature; LLVM itself writes a line to file descriptor 2,
# which sys.stderr and logging do not see. get_function_address returns 0 for an unknown name, where
# ModuleRef.get_function raises NameError.
# Why it matters: a typing error in a list of features leaves slower code with equal results. Code that
# caches addresses must check for 0: a call of address 0 ends the process.
#
# Output:
#     features +avx512vnni -> TargetMachine, lines on descriptor 2: 0
#     features +avx512vnnni -> TargetMachine, lines on descriptor 2: 1
#     get_function_address -> 0
#     get_function -> NameError
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llvmlite==0.50.0
cat > "$dir/machine.py" <<'EOF'
import sys

import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
sys.stderr = None
target = llvm.Target.from_triple("x86_64-unknown-linux-gnu")
machine = target.create_target_machine(cpu="x86-64-v3", features=sys.argv[1])
print(type(machine).__name__)
EOF
for features in +avx512vnni +avx512vnnni; do
    machine=$("$dir/venv/bin/python" "$dir/machine.py" $features 2> "$dir/stderr")
    lines=$(sort -u "$dir/stderr" | grep -c "not a recognized feature" || true)
    echo "features $features -> $machine, lines on descriptor 2: $lines" | tee -a "$dir/seen"
done
"$dir/venv/bin/python" - <<'EOF' | tee -a "$dir/seen"
import llvmlite.binding as llvm

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
module = llvm.parse_assembly("define i32 @seven() { ret i32 7 }")
machine = llvm.Target.from_default_triple().create_target_machine()
engine = llvm.create_mcjit_compiler(module, machine)
engine.finalize_object()
print("get_function_address ->", engine.get_function_address("eight"))
try:
    module.get_function("eight")
except NameError as e:
    print("get_function ->", type(e).__name__)
EOF
diff "$dir/seen" - <<'EOF' || { echo "changed"; exit 1; }
features +avx512vnni -> TargetMachine, lines on descriptor 2: 0
features +avx512vnnni -> TargetMachine, lines on descriptor 2: 1
get_function_address -> 0
get_function -> NameError
EOF
