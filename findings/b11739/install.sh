# shellcheck shell=bash
# Sourced by the scripts of llama.cpp b11739 (PyPI: llama-cpp-py-sync 0.11739).
# Sets dir, a temporary folder, and defines `run`: Python with the packages and with engine.py.
# The wheel needs glibc 2.38. With an older one, `run` uses the libraries of Debian trixie, unpacked
# into the same folder; this needs apt-get and dpkg-deb.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check llama-cpp-py-sync==0.11739 \
    cffi==2.0.0 gguf==0.19.0 numpy==2.4.6
cp "$(dirname "${BASH_SOURCE[0]}")/engine.py" "$dir"
loader=()
glibc=$(getconf GNU_LIBC_VERSION)
if [ "$(printf '2.38\n%s\n' "${glibc#glibc }" | sort -V | head -n 1)" != 2.38 ]; then
    mkdir -p "$dir/apt/lists/partial"
    site=http://deb.debian.org/debian
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $site trixie main" \
        >"$dir/apt/sources.list"
    options=(-qq -o "Dir::Etc::sourcelist=$dir/apt/sources.list" -o Dir::Etc::sourceparts=-
        -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt" -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$dir/apt" && apt-get "${options[@]}" download libc6 libstdc++6 libgcc-s1)
    for deb in "$dir"/apt/*.deb; do dpkg-deb -x "$deb" "$dir/libc"; done
    libc=$dir/libc/usr/lib/x86_64-linux-gnu
    loader=("$libc/ld-linux-x86-64.so.2" --library-path "$libc")
fi
run() { PYTHONPATH=$dir "${loader[@]}" "$dir/venv/bin/python" "$@"; }
