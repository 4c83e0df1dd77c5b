"""Input of a model: prompts, batches, and their ubatches."""

from llama_py.batch.batch import (
    END,
    F32,
    I32,
    NO_TOKEN,
    Batch,
    Index,
    SeqIds,
    UBatch,
    Wanted,
    ubatch_reserve,
)

__all__ = [
    "END",
    "F32",
    "I32",
    "NO_TOKEN",
    "Batch",
    "Index",
    "SeqIds",
    "UBatch",
    "Wanted",
    "ubatch_reserve",
]
