#!/usr/bin/env bash
# huggingface_hub 2.4.0.
#
# Guess: `scan_cache_dir().delete_revisions(hash)` plans to delete the commit in every cached
# repository that has it, or refuses a hash that is not unique.
# Behavior: it plans one repository, the first of a frozenset. The order of that set depends on
# hashes that change with each process and each cache, so another run picks the other repository.
# Why it matters: a mirror made with git has the commits of its source. A command that removes one
# cached model by its commit can delete the other. Check `strategy.repos` before `execute`.
#
# Output:
#     repositories planned by a call -> [1]
#     planned over 60 caches -> ['models--first--m', 'models--second--m']
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install -q --disable-pip-version-check huggingface_hub==2.4.0
"$dir/venv/bin/python" - "$dir" <<'EOF'
import pathlib
import sys

from huggingface_hub import scan_cache_dir

COMMIT = "a" * 40
sizes, planned = set(), set()
for number in range(60):
    cache = pathlib.Path(sys.argv[1], f"cache{number}")
    for name in ["models--first--m", "models--second--m"]:
        snapshot = cache / name / "snapshots" / COMMIT
        snapshot.mkdir(parents=True)
        (cache / name / "blobs").mkdir()
        (cache / name / "refs").mkdir()
        (cache / name / "refs/main").write_text(COMMIT)
        (cache / name / "blobs/file").write_bytes(b"weights")
        (snapshot / "file").symlink_to("../../blobs/file")
    strategy = scan_cache_dir(cache).delete_revisions(COMMIT)
    sizes.add(len(strategy.repos))
    planned.update(path.name for path in strategy.repos)
seen = {"repositories planned by a call": sorted(sizes), "planned over 60 caches": sorted(planned)}
expected = {
    "repositories planned by a call": [1],
    "planned over 60 caches": ["models--first--m", "models--second--m"],
}

for key, value in seen.items():
    print(key, "->", value)
if seen != expected:
    raise SystemExit(f"changed; expected {expected}")
EOF
