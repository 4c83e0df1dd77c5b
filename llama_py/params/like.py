"""Reference engine for the graph's computation: llama.cpp, or the authors' code in transformers."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

log = logging.getLogger("llama_py")

LLAMA_CPP, TRANSFORMERS = LIKE = "llama.cpp", "transformers"

_LAYER = re.compile(r"\bblk\.\d+\.")


def by_pattern(names: Iterable[str]) -> str:
    """List names of tensors once for all layers: "blk.*.attn_q.scale (32), output.bias"."""
    counts = Counter(_LAYER.sub("blk.*.", name) for name in names)
    return ", ".join(f"{name} ({n})" if "*" in name else name for name, n in counts.items())


def warn_of_differences(
    where: str,
    like: str,
    computed: Sequence[str],
    ignored: Collection[str],
    restored: Collection[str],
) -> None:
    """Log how llama.cpp's graph of a file differs from the code of the model's authors.

    Args:
            where: The file.
            like: A value of `LIKE`.
            computed: Differences of llama.cpp's computation.
                ignored: Names of tensors that llama.cpp and this graph ignore.
            restored: Names of tensors that llama.cpp does not use, but this graph does.
    """
    if restored:
        log.warning(
            "%s: %d scales, which llama.cpp omits from its graph, are applied, because they are "
            "factors of the weights: %s",
            where,
            len(restored),
            by_pattern(restored),
        )
    if ignored:
        log.warning(
            "%s: %d tensors are ignored, because llama.cpp omits them from its graph: %s; to "
            "apply them, use --like %s",
            where,
            len(ignored),
            by_pattern(ignored),
            TRANSFORMERS,
        )
    if computed and like == LLAMA_CPP:
        log.warning(
            "%s: llama.cpp differs from the code of the model's authors: %s; to follow the "
            "authors, use --like %s",
            where,
            "; ".join(computed),
            TRANSFORMERS,
        )
