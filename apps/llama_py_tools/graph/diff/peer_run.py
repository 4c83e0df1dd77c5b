"""Run of a prompt by the real llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ggml_py.inspection.dump import Record
from ggml_py.opspec import OPS
from ggml_py.tensor import FLAG_COMPUTE
from llama_py.batch import Batch
from llama_py.blocks.known_forms import forms as known_forms
from llama_py_tools.graph.diff.numbers import Values
from llama_py_tools.graph.diff.run import ArrayFile, RecordedRun, feed
from llama_py_tools.graph.peer import FUSED, Peer

NAME = "llama.cpp"
Directions = tuple[Values, int, int]


def record(
    path: str,
    prompt: Sequence[int],
    n_decode: int,
    adapters: Sequence[tuple[str, float]],
    has_logits: bool,
    forms: Mapping[str, str],
    directions: Directions | None = None,
    start: int | None = None,
    **context: Any,
) -> RecordedRun:
    """Run and keep all values. GGMLError if llama-cpp-python is missing, or llama.cpp refuses.

    start     the first decoder token after an encoder has read the prompt; None: no encoder
    directions  of a control vector [n, n_embd], with the first and the last layer
    forms     of blocks (llama_py.blocks.known_forms); it has the first of each kind, and the second

    context   n_ctx, n_batch, n_ubatch, flash_attn, cache, n_threads, like the fields of Peer
    """
    run, store, calls = RecordedRun(NAME), ArrayFile(), [-1]

    def watch(node: Record, read: Callable[[], Values | None]) -> None:
        run.records.append(node)
        if node["dec"] == len(run.calls):
            run.calls.append(calls[0])
        op = OPS.get(node["op"])
        if node["flags"] & FLAG_COMPUTE and not (op is not None and op.view):
            values = read()
            if values is not None:
                run.values[node["dec"], node["i"]] = store.put(values)

    def leaf(dec: int, name: str, read: Callable[[], Values | None]) -> None:
        if (dec, name) not in run.inputs and (values := read()) is not None:
            run.inputs[dec, name] = store.put(values)

    context["n_batch"] = max(context["n_batch"], len(prompt))
    with Peer(path, watch=watch, watch_input=leaf, **context) as peer:
        peer.set_adapters(adapters)
        if directions is not None:
            peer.set_control_vector(*directions)
        for kind, form in forms.items():
            if form == known_forms()[kind].names[1] and kind in FUSED:
                peer.refuse_fused(kind)

        def run_batch(ids: Sequence[int], encode: bool = False) -> None:
            n, past, calls[0] = len(ids), 0 if encode else peer.n_past(), calls[0] + 1
            pos = np.arange(past, past + n, dtype=np.int32)
            seq_ids, outputs = [(0,)] * n, [True] * n
            peer.run(Batch(np.array(ids, np.int32), None, pos, seq_ids, outputs), encode)

        def decode(ids: Sequence[int]) -> Values:
            run_batch(ids)
            return peer.logits(len(ids)) if has_logits else np.zeros((0, 0), np.float32)

        if start is not None:
            run_batch(prompt, encode=True)
        feed(run, decode, prompt if start is None else [start], n_decode)
    return run
