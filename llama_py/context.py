"""A model at work: batches in, logits out (llama-context.cpp)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from ggml_py.backend import Bytes, CompileOptions, Device
from ggml_py.check import Checker
from ggml_py.errors import ContextError
from ggml_py.plan import Plan
from ggml_py.registry import device as find_device
from ggml_py.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME
from llama_py import state
from llama_py.batch import F32, I32, Batch, BatchSplitter, UBatch, Wanted, ubatch_reserve
from llama_py.closing import Closing
from llama_py.control_vector import ControlVector
from llama_py.cparams import CParams, make_cparams
from llama_py.forms import check as check_forms
from llama_py.forms import forms
from llama_py.graph.cross import Cross
from llama_py.graph.params import GraphParams, GraphType
from llama_py.graph.result import GraphResult
from llama_py.hparams import HParams
from llama_py.loaded import Loaded
from llama_py.memory import GroupContext, MemoryGroup, Placing, create_memory
from llama_py.memory.k_shift import shift_keys
from llama_py.outputs import Outputs
from llama_py.params import ContextParams
from llama_py.signature import takes

log = logging.getLogger("llama_py")

MAX_GRAPHS = 4  # built graphs that are kept for reuse
NOTHING = MemoryGroup({}, None, {})  # what an encoder keeps


class Context(Closing):
    """The memory of a model's sequences, and the graphs that advance it.

    embd      F32 [n_outputs, n_embd] of the last batch, with `embeddings`
    h_nextn   F32 rows that seed the NextN layers, after `set_embeddings_nextn`
    n_reused  how often a graph was used again
    embd_seq  with `embeddings`, F32 [n_embd] of each sequence of the last batch, or of a reranker
              its scores; empty for pooling "none"
    checker   counts the nodes that `check` compared
    on_graph  called with each graph, built or used again, and its ubatch before it is run
    """

    @takes(ContextParams)
    def __init__(self, model: Loaded, **options: Any) -> None:
        """options are the fields of ContextParams.

        Raises ContextError for values that make no sense, AllocError for too large sizes.
        """
        self.model = model
        self.params = p = ContextParams(**options)
        self.cparams = _cparams(model, p)
        self.gtype: GraphType = "decoder_mtp" if p.mtp else "decoder"
        self.embd: F32 | None = None
        self.embd_seq: dict[int, F32] = {}
        self.h_nextn: F32 | None = None
        self.n_reused = 0
        self._cvec: ControlVector | None = None
        self._encoded: Cross | None = None
        self._closed = False
        self.on_graph: Callable[[GraphResult, UBatch], None] | None = None
        self._graphs: list[tuple[GraphResult, Plan]] = []
        if p.n_threads is not None:
            for device in self.devices:
                device.set_threads(p.n_threads)
        how = CompileOptions(p.progress, p.fuse and p.watch is None and not p.check)
        self.checker = _checker(model, p.check) if p.check else None
        self._sched = Scheduler(
            list(self.devices), how, p.watch, self.checker, _several_in_flight(model, p)
        )
        self.memory = self._create_memory()
        self._resolve_fused_ops()
        self._reserve()

    @property
    def devices(self) -> Sequence[Device]:
        """Those in use; the last is the host."""
        return self.model.placement.devices

    @property
    def n_ctx(self) -> int:
        return self.cparams.n_ctx

    @property
    def n_vocab(self) -> int:
        return self.model.hparams.n_vocab

    def _create_memory(self) -> MemoryGroup:
        p, arch, hp = self.params, self.model.architecture, self.model.hparams
        types = BY_NAME[p.type_k], BY_NAME[p.type_v]
        if types[1].block_size > 1 and not self.cparams.flash_attn:
            raise ContextError(f"type_v = {p.type_v} needs flash attention; use f16 or flash_attn")
        layers = range(hp.n_layer, hp.n_layer_all) if p.mtp else range(hp.n_layer)
        how = Placing(self.cparams, self._memory_device, *types, n_pos=hp.n_pos_per_embd)
        return create_memory({il: arch.keeps(il) for il in layers}, how)

    def _memory_device(self, il: int) -> Device:
        model = self.model
        return model.layer_devices[il] if self.cparams.offload_kqv else model.placement.host

    def decode(
        self, tokens: Sequence[int] | I32 | Batch, logits: Wanted = "last", seq_id: int = 0
    ) -> F32:
        """Advance the sequences of a batch. -> F32 [n, n_vocab], the rows in the batch's order

        tokens   ids that continue sequence `seq_id`, or a Batch
        logits   of which tokens, unless the batch says itself

        Raises ContextError, before anything is computed, for a batch that is malformed or does not
        fit. If the computation is interrupted, the sequences stand where the last complete ubatch
        left them; those of a recurrent model are empty.
        """
        if seq_id and not isinstance(tokens, Batch):
            tokens = Batch(tokens, seq_ids=[(seq_id,)] * len(tokens))
        splitter = self._checked(tokens, logits)
        self._apply_shift()
        return self._run(splitter, self.memory)

    def encode(self, tokens: Sequence[int] | I32 | Batch) -> F32:
        """Read a text as a whole. -> F32 [n_tokens, n_embd], what the encoder made of it

        An encoder-decoder then decodes with that in view; models that only encode give their
        embeddings, as `decode` does.
        """
        if not self.model.has_encoder:
            return self.decode(tokens, "all")
        decoding, self.gtype = (self.gtype, self.cparams), "encoder"
        self.cparams = replace(self.cparams, causal_attn=False)
        try:
            splitter = self._checked(tokens, "all", NOTHING)
            self._run(splitter, NOTHING)
        finally:
            self.gtype, self.cparams = decoding
        assert self.embd is not None
        self._encoded = Cross(self.embd, splitter.seq_id)
        return self.embd

    def _run(self, splitter: BatchSplitter, memory: MemoryGroup) -> F32:
        cparams = self.cparams
        whole = cparams.embeddings or not cparams.causal_attn
        mctx = memory.init_batch(splitter, cparams.n_ubatch, whole)
        outputs = Outputs(splitter, cparams)
        while True:
            ubatch = mctx.get_ubatch()
            try:
                res = self._process_ubatch(ubatch, mctx)
            except BaseException:
                self._discard(ubatch, memory)
                raise
            outputs.add(res, ubatch)
            if not mctx.next():
                break
        self.embd, self.embd_seq = outputs.embd.values, outputs.by_seq
        self.h_nextn = outputs.h_nextn.values
        return outputs.logits.get(self.n_vocab)

    def clear(self) -> None:
        """Forget all sequences."""
        self.memory.clear()

    def save_state(
        self, seq_id: int = -1, *, partial: bool = False, tokens: Sequence[int] = ()
    ) -> bytes:
        """The state of one sequence, or of all (-1); see llama_py.state.save."""
        return state.save(self, seq_id, partial=partial, tokens=tokens)

    def load_state(
        self, data: bytes | memoryview, seq_id: int = -1, *, partial: bool = False
    ) -> list[int]:
        """Put a saved state in place; the tokens saved with it. See llama_py.state.load."""
        return state.load(self, data, seq_id, partial=partial)

    def close(self) -> None:
        """Give memory back. Nothing can be decoded after that."""
        self.memory, self._graphs, self._closed = NOTHING, [], True

    def __repr__(self) -> str:
        cp = self.cparams
        sequences = f"{cp.n_seq_max} sequences" if cp.n_seq_max > 1 else "1 sequence"
        return f"<Context of {self.n_ctx} cells, {sequences}, {self.model.arch}>"

    def set_embeddings_nextn(self, value: bool, masked: bool = False) -> None:
        """Whether decode also gives `h_nextn`: a row per token, or with `masked` per output."""
        self.cparams = replace(
            self.cparams, embeddings_nextn=value, embeddings_nextn_masked=value and masked
        )

    def set_control_vector(self, directions: F32 | None, layers: range | None = None) -> None:
        """From now on add directions [n, n_embd], layer 1's first, to the results of layers (None:
        of all); without directions no longer. ContextError for another n_embd."""
        hp, devices = self.model.hparams, self.model.layer_devices
        self._cvec = None
        if directions is not None:
            self._cvec = ControlVector(directions, devices[: hp.n_layer], hp.n_embd, layers)

    def memory_breakdown(self) -> dict[str, dict[str, int]]:
        """Bytes by device and use: model, context (memory), compute."""
        model, memory = self.model.sizes, self.memory.memory_breakdown()
        return {
            d.name: {"model": model.get(d.name, 0), "context": memory.get(d.name, 0), "compute": n}
            for d, n in zip(self.devices, self._sched.compute_sizes(), strict=True)
        }

    def _checked(
        self, tokens: Sequence[int] | I32 | Batch, logits: Wanted, memory: MemoryGroup | None = None
    ) -> BatchSplitter:
        if self._closed:
            raise ContextError("the context is closed; make a new one")
        batch = tokens if isinstance(tokens, Batch) else Batch(tokens)
        if logits not in ("last", "all", "none"):
            raise ContextError(f'logits must be "last", "all" or "none", not {logits!r}')
        hp, cp = self.model.hparams, self.cparams
        splitter = BatchSplitter(
            batch, n_vocab=hp.n_vocab, n_embd=hp.n_embd, n_seq_max=cp.n_seq_max,
            n_pos=hp.n_pos_per_embd, memory=memory or self.memory, outputs=logits,
            output_all=cp.embeddings or memory is NOTHING,
        )  # fmt: skip
        pooled = cp.embeddings and cp.pooling not in ("none", "last")
        if (pooled or not cp.causal_attn) and splitter.n_tokens > cp.n_ubatch:
            what = f"pooling {cp.pooling}" if pooled else "a model that attends in both directions"
            raise ContextError(
                f"{what} needs the batch in one piece: {splitter.n_tokens} tokens,"
                f" n_ubatch = {cp.n_ubatch}; use a larger n_ubatch"
            )
        return splitter

    def _apply_shift(self) -> None:
        """Rotate the cached keys whose positions were moved since."""
        architecture, cparams = self.model.architecture, self.cparams
        for kv in self.memory.caches.values():
            if kv.has_shift():
                shift_keys(kv, cparams, lambda _: architecture.rope_factors(cparams), self.devices)

    def _process_ubatch(self, ubatch: UBatch, mctx: GroupContext) -> GraphResult:
        mctx.apply()
        n_outputs = int(np.count_nonzero(ubatch.output))
        params = self._graph_params(ubatch, mctx, n_outputs)
        res, plan = self._reusable(params) or self._build(params)
        res.set_inputs(ubatch)
        if self.on_graph is not None:
            self.on_graph(res, ubatch)
        plan.run()
        return res

    def _graph_params(self, ubatch: UBatch, mctx: GroupContext, n_outputs: int) -> GraphParams:
        return GraphParams(
            self.model.hparams, self.cparams, ubatch, mctx, n_outputs, self.gtype, self._cvec,
            self._encoded,
        )  # fmt: skip

    def _reusable(self, params: GraphParams) -> tuple[GraphResult, Plan] | None:
        for i, built in enumerate(self._graphs):
            if built[0].can_reuse(params):
                if i:
                    self._graphs.insert(0, self._graphs.pop(i))
                self.n_reused += 1
                return built
        return None

    def _build(self, params: GraphParams) -> tuple[GraphResult, Plan]:
        res = self.model.architecture.graph(params)
        log.debug("graph of %d tokens: %d nodes", params.ubatch.n_tokens, len(res.graph.nodes))
        built = res, self._sched.plan(res.graph, self._pins(res))
        self._graphs = [built, *self._graphs[: MAX_GRAPHS - 1]]
        return built

    def _discard(self, ubatch: UBatch, memory: MemoryGroup) -> None:
        lost = memory.discard(ubatch)
        if lost:
            log.info("interrupted: sequences %s had to be removed from the memory", lost)

    def _full_graph(
        self, n_tokens: int, n_seqs: int, n_outputs: int, gtype: GraphType | None = None
    ) -> GraphResult:
        """The largest graph for so many tokens: as if the memory were full."""
        n_seq_tokens = -(-n_tokens // n_seqs)
        ubatch = ubatch_reserve(n_seq_tokens, n_seqs, self.model.hparams.n_pos_per_embd)
        n_outputs = ubatch.n_tokens if n_outputs == n_tokens else n_outputs  # all of them
        params = self._graph_params(ubatch, self.memory.init_full(n_seqs), n_outputs)
        if self.model.has_encoder:
            encoded = _longest_text(self.model.hparams)
            params = replace(params, gtype=gtype or self.gtype, encoded=encoded)
        return self.model.architecture.graph(params)

    def _resolve_fused_ops(self) -> None:
        """Where the caller left it open, do without the fused ops that the device cannot run."""
        n_seqs, p = self.cparams.n_seq_max, self.params
        fused = self._full_graph(n_seqs, n_seqs, n_seqs).fused
        refused = {
            what: f"{d.name}: {why}"
            for d in dict.fromkeys(self.model.layer_devices[:-1])
            for what, nodes in fused.items()
            for why in filter(None, map(d.why_not, nodes))
        }
        if "flash_attn" in refused and p.flash_attn == "auto":
            self.cparams = replace(self.cparams, flash_attn=False)
            self.memory = self._create_memory()
        for kind in refused.keys() - {"flash_attn"}:
            if p.forms.get(kind, "auto") == "auto" and not self.cparams.n_rs_seq:
                chosen = dict(self.cparams.forms) | {kind: forms()[kind].names[1]}
                self.cparams = replace(self.cparams, forms=tuple(sorted(chosen.items())))
        for what, why in refused.items():
            log.warning("%s cannot be one op: %s", what, why)

    def _pins(self, res: GraphResult) -> list[tuple[Tensor, Device]]:
        """Nodes whose device is not left to the scheduler (llama_context::graph_get_cb)."""
        model = self.model
        pins = [(t, model.placement.host) for t in res.on_host]
        n_layers = len(model.layer_devices)
        full_offload = model.placement.n_offloaded(n_layers - 1) == n_layers
        if full_offload or res.params.ubatch.n_tokens < 32:
            pins += [(t, model.layer_devices[il]) for t, il in res.in_layer]
        return pins

    def _reserve(self) -> None:
        """Compute buffers for the largest graphs, so that decode allocates nothing."""
        start = perf_counter()
        n_seqs = self.cparams.n_seq_max
        n_tokens = min(self.cparams.n_ctx, self.cparams.n_ubatch)
        if self.model.has_encoder:
            res = self._full_graph(n_tokens, 1, n_tokens, "encoder")
            self._sched.reserve(res.graph, self._pins(res))
        graphs: dict[int, tuple[int, int]] = {}  # (nodes, splits) by tokens
        # one sequence alone can need more than all together: some inputs grow with its length
        for tokens, seqs in dict.fromkeys([(n_tokens, n_seqs), (n_tokens, 1), (n_seqs, n_seqs)]):
            res = self._full_graph(tokens, seqs, tokens)
            self._sched.reserve(res.graph, self._pins(res))
            graphs[tokens] = len(res.graph.nodes), self._sched.n_splits
        for device, size in zip(self.devices, self._sched.compute_sizes(), strict=True):
            log.info(
                "sched_reserve: %10s compute buffer size = %8.2f MiB", device.name, size / 2**20
            )
        for what, counts in zip(
            ("nodes", "splits"), zip(*graphs.values(), strict=True), strict=True
        ):
            same = len(set(counts)) == 1
            each = ", ".join(f"{n} (with bs={bs})" for bs, n in zip(graphs, counts, strict=True))
            log.info("sched_reserve: graph %s = %s", what, counts[0] if same else each)
        log.info(
            "sched_reserve: reserve took %.2f ms, sched copies = %d",
            (perf_counter() - start) * 1e3, self._sched.n_copies,
        )  # fmt: skip


def _longest_text(hp: HParams) -> Cross:
    """As if a text of the length the model was trained with had been encoded."""
    rows = np.broadcast_to(np.float32(0), (hp.n_ctx_train, hp.n_embd))
    return Cross(rows, [(0,)] * hp.n_ctx_train)


def _several_in_flight(model: Loaded, p: ContextParams) -> bool:
    """Whether ubatches may follow one another through the devices (llama_context::llama_context);
    it takes memory, and works only where nothing has to go back to the host.
    """
    place, n_layers = model.placement, len(model.layer_devices)
    everything = place.n_offloaded(n_layers - 1) == n_layers and not place.overrides
    return len(place.offload) > 1 and everything and p.offload_kqv


def _checker(model: Loaded, device: str) -> Checker:
    """Checks nodes on the device of that name, where weights have the bytes of the file."""

    def plain(name: str) -> Bytes | None:
        info = model.file.tensors.get(name)
        return None if info is None else info.data

    return Checker(find_device(device), plain)


def _cparams(model: Loaded, p: ContextParams) -> CParams:
    check_forms(p.forms)
    if p.mtp and not model.architecture.load_mtp:
        raise ContextError("mtp needs a model with NextN layers, loaded with load_mtp=True")
    n_rs_seq = p.n_rs_seq
    if n_rs_seq > 0 and not model.architecture.supports_rs_rollback:
        log.debug("n_rs_seq = %d is not supported by %s; using 0", n_rs_seq, model.arch)
        n_rs_seq = 0
    chosen = {kind: form for kind, form in p.forms.items() if form != "auto"}
    for kind, form in chosen.items():
        if n_rs_seq > 0 and form != forms()[kind].names[0]:
            raise ContextError(
                f"n_rs_seq = {n_rs_seq} needs {kind} {forms()[kind].names[0]}: {form} keeps no"
                " earlier states"
            )
    cparams = make_cparams(
        model.hparams, n_ctx=p.n_ctx or 0, n_batch=p.n_batch, n_ubatch=p.n_ubatch,
        n_seq_max=p.n_seq_max, n_rs_seq=n_rs_seq, flash_attn=p.flash_attn not in (False, "off"),
        kv_unified=p.kv_unified, rope_freq_base=p.rope_freq_base,
        rope_freq_scale=p.rope_freq_scale,
    )  # fmt: skip
    if n_rs_seq and cparams.n_ubatch <= n_rs_seq + 1:
        raise ContextError(
            f"n_ubatch = {cparams.n_ubatch} must be above n_rs_seq + 1 = {n_rs_seq + 1}"
        )
    return replace(
        cparams,
        embeddings=p.embeddings,
        offload_kqv=p.offload_kqv,
        pooling=model.hparams.pooling if p.pooling == "auto" else p.pooling,
        forms=tuple(sorted(chosen.items())),
    )
