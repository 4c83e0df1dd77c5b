"""The page of convertible checkpoints, docs/converted.md:

python -m dev.docs.converted_table > docs/converted.md
"""

from __future__ import annotations

from collections import defaultdict

from dev.record.tiny_checkpoints import read_records
from dev.record.variant_checkpoints import name_class
from llama_py.checkpoint.mmproj import media_converters
from llama_py.checkpoint.models import converters

MMPROJ = "mmproj"
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
    records = read_records()
    named = {(name.startswith(MMPROJ), name_class(name, one))
             for name, one in records.items() if "config" in one}  # fmt: skip
    named |= {(n.startswith(MMPROJ), n.removeprefix(f"{MMPROJ}-")) for n in records["classes"]}
    named.add((False, "DeepseekV4DSparkModel"))
    judged, with_media = ({name for kind, name in named if kind is own} for own in (False, True))
    classes = defaultdict[str, list[str]](list)
    for name, kind in sorted(converters().items()):
        classes[kind.arch].append(f"**{name}**" if name in judged else name)
    rows = (f"| `{arch}` | {', '.join(names)} |" for arch, names in sorted(classes.items()))
    listed = [f"| **{n}** |" if n in with_media else f"| {n} |" for n in sorted(media_converters())]
    return "\n".join([HEAD.rstrip(), *rows, MEDIA.rstrip(), *listed])


if __name__ == "__main__":
    main()
