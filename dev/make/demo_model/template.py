"""Chat template of the demo model: a conversation is a scene, and the model is JULIET.

    python dev/make/demo_model/template.py FILE    # replace the template in a generated file

A response is one speech: it ends at the template's empty line.
"""

from __future__ import annotations

import sys
from pathlib import Path

KEY = "tokenizer.chat_template"
ALIGNMENT = 32
TEMPLATE = (
    "{%- for m in messages -%}{{ 'JULIET:\\n' if m.role == 'assistant' else '' }}"
    "{{ m.content + '\\n\\n' }}{%- endfor -%}"
    "{{ 'JULIET:\\n' if add_generation_prompt else '' }}"
)


def with_template(path: Path, template: str | None = TEMPLATE) -> bytes:
    """Return a GGUF file's bytes with another chat template (the last tokenizer key), or without
    a template; the bytes after the header are unchanged."""
    import gguf

    reader, raw = gguf.GGUFReader(path), path.read_bytes()
    old = reader.fields.get(KEY)
    last = reader.fields["tokenizer.ggml.add_bos_token"]
    start = last.offset + sum(int(part.nbytes) for part in last.parts)
    end = start if old is None else old.offset + sum(int(part.nbytes) for part in old.parts)
    if old is not None and old.offset != start:
        raise ValueError(f"{path}: {KEY} is not behind the vocabulary; not a file of this recipe")
    info = reader.tensors[-1].field
    head_end = info.offset + sum(int(part.nbytes) for part in info.parts)
    n_kv = int(reader.fields["GGUF.kv_count"].contents()) - (old is not None)
    n_kv += template is not None
    n_at = 16  # offset after magic, version and the number of tensors
    head = raw[:n_at] + n_kv.to_bytes(8, "little") + raw[n_at + 8 : start]
    head += (b"" if template is None else _entry(template)) + raw[end:head_end]
    return head + bytes(-len(head) % ALIGNMENT) + raw[reader.data_offset :]


def _entry(template: str) -> bytes:
    """Return the bytes of the key and its value, a string."""
    kind = 8  # GGUF's string
    key, value = KEY.encode(), template.encode()
    return b"".join(
        (
            len(key).to_bytes(8, "little"),
            key,
            kind.to_bytes(4, "little"),
            len(value).to_bytes(8, "little"),
            value,
        )
    )


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_bytes(with_template(file))
