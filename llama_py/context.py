"""A model at work: batches in, logits out (llama-context.cpp)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ggml_py.backend import Bytes, CompileOptions, Device
from ggml_py.check import Checker
from ggml_py.errors import ContextError
from ggml_py.plan import Plan
from ggml_py.registry import device as find_device
from ggml_py.sched import Scheduler
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, GGMLType
from llama_py.batch import F32, I32, Batch, BatchSplitter, UBatch, Wanted, ubatch_reserve
from llama_py.control_vector import ControlVector
from llama_py.cparams import CParams, make_cparams
from llama_py.forms import check as check_forms
from llama_py.forms import forms
from llama_py.graph.cross import Cross
from llama_py.graph.params import GraphParams, GraphResult, GraphType
from llama_py.hparams import POOLING, HParams
from llama_py.memory import GroupContext, MemoryGroup, Placing, create_memory
from llama_py.memory.k_shift import shift_keys
from llama_py.outputs import Outputs

if TYPE_CHECKING:
    from llama_py.model import Model

log = logging.getLogger("llama_py")

MAX_GRAPHS = 4  # built graphs that are kept for reuse
NOTHING = MemoryGroup({}, None, {})  # what an encoder keeps


@dataclass(frozen=True, slots=True)
class ContextParams:
    """How a context runs its model: the arguments of `Context`.

    n_ctx        cells of all sequences together, None for what the model was trained with;
                 rounded up to a multiple of 256 per sequence
    n_ubatch     tokens that one graph computes at most; also at most n_batch
    n_seq_max    how many sequences there may be
    n_rs_seq     tokens a recurrent model can be rolled back (where the architecture supports it)
    flash_attn   "auto": where the device can
    type_k, type_v   types of the KV cache
    kv_unified   sequences share all cells, instead of each having its own part
    embeddings   also keep the last hidden state of each token, in `Context.embd`
    pooling      how a sequence's rows become one, one of hparams.POOLING; "auto": as the model says
    forms        how blocks are built that can be built in several ways: form by kind, as in
                 {"delta_net": "chunked"}; what is left open is one op where the device can
    mtp          run the NextN layers instead of the trunk
    n_threads    None leaves the device's
    progress     called as progress(done, total, what) while kernels are compiled
    fuse         let the device run several nodes as one
    offload_kqv  keep the memory of a layer on its device; False: all on the host
    check        name of a device that computes every node too; CheckFailed at the first whose
                 values differ too much; slow
    watch        called with every node's tensor once its value is there; slow, and nothing is fused
    """

    n_ctx: int | None = None
    n_batch: int = 2048
    n_ubatch: int = 512
    n_seq_max: int = 1
    n_rs_seq: int = 0
    flash_attn: bool | Literal["auto", "on", "off"] = "auto"
    type_k: str = "f16"
    type_v: str = "f16"
    kv_unified: bool = False
    embeddings: bool = False
    pooling: str = "auto"
    forms: Mapping[str, str] = field(default_factory=dict)
    mtp: bool = False
    rope_freq_base: float = 0.0
    rope_freq_scale: float = 0.0
    n_threads: int | None = None
    progress: Callable[[int, int, str], None] | None = None
    fuse: bool = True
    offload_kqv: bool = True
    check: str | None = None
    watch: Callable[[Tensor], None] | None = None


class Context:
    """The memory of a model's sequences, and the graphs that advance it.

    embd      F32 [n_outputs, n_embd] of the last batch, with `embeddings`
    h_nextn   F32 rows that seed the NextN layers, after `set_embeddings_nextn`
    n_reused  how often a graph was used again
    embd_seq  with `embeddings`, F32 [n_embd] of each sequence of the last batch, or of a reranker
              its scores; empty for pooling "none"
    checker   counts the nodes that `check` compared
    on_graph  called with each graph, built or used again, and its ubatch before it is run
    """

    def __init__(self, model: Model, **options: Any) -> None:
        """options are the fields of ContextParams.

        Raises ContextError for sizes that make no sense, AllocError for too large ones.
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
        self.on_graph: Callable[[GraphResult, UBatch], None] | None = None
        self._graphs: list[tuple[GraphResult, Plan]] = []
        if p.n_threads is not None:
            if p.n_threads < 1:
                raise ContextError(f"n_threads is {p.n_threads}; it must be at least 1")
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
        types = _cache_type("type_k", p.type_k), _cache_type("type_v", p.type_v)
        if types[1].block_size > 1 and not self.cparams.flash_attn:
            raise ContextError(f"type_v = {p.type_v} needs flash attention; use f16 or flash_attn")
        layers = range(hp.n_layer, hp.n_layer_all) if p.mtp else range(hp.n_layer)
        how = Placing(self.cparams, self._memory_device, *types, n_pos=hp.n_pos_per_embd)
        return create_memory({il: arch.keeps(il) for il in layers}, how)

    def _memory_device(self, il: int) -> Device:
        model = self.model
        return model.layer_devices[il] if self.cparams.offload_kqv else model.placement.host

    def decode(self, tokens: Sequence[int] | I32 | Batch, logits: Wanted = "last") -> F32:
        """Advance the sequences of a batch. -> F32 [n, n_vocab], the rows in the batch's order

        tokens   ids that continue sequence 0, or a Batch
        logits   of which tokens, unless the batch says itself

        Raises ContextError, before anything is computed, for a batch that is malformed or does not
        fit. If the computation is interrupted, the sequences stand where the last complete ubatch
        left them; those of a recurrent model are empty.
        """
        splitter = self._checked(tokens, logits)
        self._apply_shift()
        return self._run(splitter, self.memory)

    def encode(self, tokens: Sequence[int] | I32 | Batch) -> F32:
        """Read a text as a whole. -> F32 [n_tokens, n_embd], what the encoder made of it

        An encoder-decoder then decodes with that in view; models that only encode give their
        embeddings, as `decode` does.
        """
        if "encoder" not in self.model.architecture.gtypes:
            return self.decode(tokens, "all")
        decoding, self.gtype = (self.gtype, self.cparams), "encoder"
        self.cparams = replace(self.cparams, causal_attn=False, embeddings=True, pooling="none")
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
        batch = tokens if isinstance(tokens, Batch) else Batch(tokens)
        if logits not in ("last", "all", "none"):
            raise ContextError(f'logits must be "last", "all" or "none", not {logits!r}')
        hp, cp = self.model.hparams, self.cparams
        splitter = BatchSplitter(
            batch, n_vocab=hp.n_vocab, n_embd=hp.n_embd, n_seq_max=cp.n_seq_max,
            n_pos=hp.n_pos_per_embd, memory=memory or self.memory, outputs=logits,
            output_all=cp.embeddings,
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

    def _full_graph(self, n_tokens: int, n_seqs: int, n_outputs: int) -> GraphResult:
        """The largest graph for so many tokens: as if the memory were full."""
        n_seq_tokens = -(-n_tokens // n_seqs)
        ubatch = ubatch_reserve(n_seq_tokens, n_seqs, self.model.hparams.n_pos_per_embd)
        params = self._graph_params(ubatch, self.memory.init_full(n_seqs), n_outputs)
        if "encoder" in self.model.architecture.gtypes:
            params = replace(params, encoded=_longest_text(self.model.hparams))
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


def _several_in_flight(model: Model, p: ContextParams) -> bool:
    """Whether ubatches may follow one another through the devices (llama_context::llama_context);
    it takes memory, and works only where nothing has to go back to the host.
    """
    place, n_layers = model.placement, len(model.layer_devices)
    everything = place.n_offloaded(n_layers - 1) == n_layers and not place.overrides
    return len(place.offload) > 1 and everything and p.offload_kqv


def _checker(model: Model, device: str) -> Checker:
    """Checks nodes on the device of that name, where weights have the bytes of the file."""

    def plain(name: str) -> Bytes | None:
        info = model.infos.get(name)
        return None if info is None else info.data

    return Checker(find_device(device), plain)


def _cache_type(name: str, value: str) -> GGMLType:
    found = BY_NAME.get(value)
    if found is None:
        raise ContextError(f"{name} = {value!r} is no type; known are {', '.join(BY_NAME)}")
    return found


def _cparams(model: Model, p: ContextParams) -> CParams:
    if p.n_ctx is not None and p.n_ctx <= 0:
        raise ContextError(f"n_ctx is {p.n_ctx}; it must be at least 1, or None for the model's")
    if p.flash_attn not in (True, False, "auto", "on", "off"):
        raise ContextError(f'flash_attn must be "auto", "on" or "off", not {p.flash_attn!r}')
    check_forms(p.forms)
    if p.pooling not in ("auto", *POOLING):
        raise ContextError(f"pooling is {p.pooling!r}; it must be auto or one of {POOLING}")
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
