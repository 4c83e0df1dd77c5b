"""The page of convertible checkpoints, docs/converted.md:

python -m dev.docs.converted_table > docs/converted.md
"""

from __future__ import annotations

from collections import defaultdict

from dev.record.tiny_checkpoints import read_records
from llama_py.checkpoint.models import converters

HEAD = """# Convertible checkpoints

Classes of transformers that [`llama-py-gguf convert`](convert.md) converts, by architecture.
**Bold**: a test compares a tiny model of this class with the file of llama.cpp's converter
(llama-cpp-python 0.3.36), byte for byte, in F32 without a vocabulary. Made by
`python -m dev.docs.converted_table`.

| architecture | classes |
|---|---|
"""


def main() -> None:
    """Print the page."""
    print(make_page())


def make_page() -> str:
    """Return the page, without its last line break."""
    configs = [r["config"] for r in read_records().values() if "config" in r]
    judged = {config.get("architectures", ["params.json"])[0] for config in configs}
    classes = defaultdict[str, list[str]](list)
    for name, kind in sorted(converters().items()):
        classes[kind.arch].append(f"**{name}**" if name in judged else name)
    rows = (f"| `{arch}` | {', '.join(names)} |" for arch, names in sorted(classes.items()))
    return HEAD + "\n".join(rows)


if __name__ == "__main__":
    main()
