#!/usr/bin/env bash
# Intel's OpenCL runtime for CPUs (intel-opencl-rt 2026.2.0), with pyopencl 2026.1.4, on x86-64.
#
# Guess: pip installs what a wheel needs, so after `pip install pyopencl intel-opencl-rt` the runtime
# can be loaded.
# Behavior: libintelocl.so needs libimf.so, libsvml.so, libirng.so and libintlc.so.5 of the package
# intel-cmplr-lib-rt, on which it does not depend. The loader says nothing of a library that it cannot
# load: there is just no platform.
# Why it matters: "no OpenCL device" sends people to look for drivers. llama-py's extra [opencl] names
# both packages.
#
# Output:
#     requires: intel-cmplr-lic-rt, tbb
#     without intel-cmplr-lib-rt: PLATFORM_NOT_FOUND_KHR
#     with intel-cmplr-lib-rt 2026.2.0: Intel(R) OpenCL
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
install() { "$dir/venv/bin/pip" install -q --disable-pip-version-check "$@"; }
look() {
    OCL_ICD_VENDORS="$dir/venv/lib/libintelocl.so" XDG_CACHE_HOME="$dir" "$dir/venv/bin/python" - <<'EOF'
import pyopencl as cl

try:
    print(", ".join(platform.name for platform in cl.get_platforms()))
except cl.LogicError as e:
    print(str(e).split()[-1])
EOF
}
install numpy==2.4.6 pyopencl==2026.1.4 intel-opencl-rt==2026.2.0
requires=$("$dir/venv/bin/pip" show intel-opencl-rt | sed -n 's/^Requires: //p')
without=$(look)
install intel-cmplr-lib-rt==2026.2.0
with=$(look)
echo "requires: $requires"
echo "without intel-cmplr-lib-rt: $without"
echo "with intel-cmplr-lib-rt 2026.2.0: $with"
[ "$without" = PLATFORM_NOT_FOUND_KHR ] && [ "$with" = "Intel(R) OpenCL" ] || {
    echo "changed"
    exit 1
}
