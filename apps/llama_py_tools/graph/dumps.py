"""Graphs in JSON files, one node per line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ggml_py.inspection.dump import Record


def read_records(path: str) -> list[Record]:
    """Read the nodes of a JSON dump, also a gzipped one; GGMLError for other files."""
    import gzip
    import json

    from ggml_py.errors import GGMLError

    raw = Path(path).read_bytes()
    try:
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        records = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, EOFError, OSError) as e:
        raise GGMLError(f"{path}: not a JSON dump (llama-py-graph dump --format json): {e}") from e
    if not records or not all(_is_node(r) for r in records):
        raise GGMLError(
            f"{path}: lines are not nodes; use a dump of llama-py-graph dump --format json"
        )
    return records


def _is_node(record: object) -> bool:
    return (
        isinstance(record, dict)
        and isinstance(record.get("name"), str)
        and isinstance(record.get("dec"), int)
    )
