"""The page of convertible checkpoints, docs/converted.md:

python -m dev.docs.converted_table > docs/converted.md
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from dev.record.tiny_checkpoints import read_records
from llama_py.checkpoint.mmproj import media_converters
from llama_py.checkpoint.models import converters

HEAD = """# Convertible checkpoints

Classes of transformers that [`llama-py-gguf convert`](convert.md) converts, by architecture.
**Bold**: a test compares a tiny model of this class with the file of llama.cpp's converter
(llama-cpp-python 0.3.36), byte for byte, in F32 without a vocabulary. Made by
`python -m dev.docs.converted_table`.

| architecture | classes |
|---|---|
"""


MEDIA = """
## Encoders

Classes with an encoder of images or sound, or the classes of the encoders, that
`llama-py-gguf convert --mmproj` converts. **Bold**: tests compare tiny models in F32, F16 and BF16.

| class |
|---|
"""


def main() -> None:
    """Print the page."""
    print(make_page())


def make_page() -> str:
    """Return the page, without its last line break."""
    records = {n: r["config"] for n, r in read_records().items() if "config" in r}
    configs = [config for n, config in records.items() if not n.startswith("mmproj")]
    judged = {config.get("architectures", ["params.json"])[0] for config in configs}
    media = [config for n, config in records.items() if n.startswith("mmproj")]
    with_media = {name_media(config) for config in media}
    classes = defaultdict[str, list[str]](list)
    for name, kind in sorted(converters().items()):
        classes[kind.arch].append(f"**{name}**" if name in judged else name)
    rows = (f"| `{arch}` | {', '.join(names)} |" for arch, names in sorted(classes.items()))
    listed = [f"| **{n}** |" if n in with_media else f"| {n} |" for n in sorted(media_converters())]
    return "\n".join([HEAD.rstrip(), *rows, MEDIA.rstrip(), *listed])


def name_media(config: Mapping[str, Any]) -> str:
    """Return the name of the class that --mmproj converts."""
    vision = config.get("vision_config") or {}
    names = vision.get("architectures") or config.get("architectures") or ["params.json"]
    return str(names[0])


if __name__ == "__main__":
    main()
