"""Context: processes batches of tokens and returns logits (llama-context.cpp)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ggml_py._moved import Former
from ggml_py.backend import Device
from ggml_py.errors import ContextError
from ggml_py.machine.garbage import collected_later
from ggml_py.machine.shield import Shield, let_through, postpone_interrupts
from ggml_py.types import BY_NAME
from llama_py.adapters.control_vector import PlacedDirections
from llama_py.adapters.lora import NO_LORAS, Adapter, AdapterChoice, Loras
from llama_py.batch import F32, I32, Batch, UBatch, Wanted
from llama_py.batch.splitter import BatchSplitter, create_splitter
from llama_py.context import state
from llama_py.context.checks import resolve_cparams, without_refused
from llama_py.context.companions import HasCompanions
from llama_py.context.graph_reserve import full_params, reserve_params
from llama_py.context.inspection import InspectionMixin
from llama_py.context.next_token import NextTokenPath, next_token_path
from llama_py.context.runner import OnGraph, Runner, set_threads
from llama_py.context.setting import Setting
from llama_py.context.spare import leave_spare, take_spare
from llama_py.graph.cross import Cross
from llama_py.graph.linear import Linear
from llama_py.graph.outputs import Outputs, read_rows
from llama_py.graph.params import GraphParams, GraphType
from llama_py.graph.result import GraphResult
from llama_py.loading.model import LoadedModel
from llama_py.memory import GroupContext, MemoryGroup, Placing, SharedMemory, create_memory
from llama_py.params import ContextParams
from llama_py.support.resource import Resource
from llama_py.support.signature import takes

log = logging.getLogger("llama_py")

NOTHING = MemoryGroup({}, None, {})  # memory of an encoder


def log_removed(seqs: list[int]) -> None:
    if seqs:
        log.info("decode failed, so sequences %s were removed from memory", seqs)


class Context(Resource, HasCompanions, InspectionMixin):
    """The memory of a model's sequences, and the graphs that advance it.

    embd      F32 [n_outputs, n_embd] of the last batch, with `embeddings`
    h_nextn   F32 input rows of the NextN layers, after `set_embeddings_nextn`
    layer_inp  F32 [n_tokens, n_embd] by layer, after `set_embeddings_layer_inp`
    embd_seq  with `embeddings`, F32 [n_embd] of each sequence of the last batch, or the scores of
              a reranker; empty for pooling "none"
    checker   counts the nodes that `check` compared
    runner    has the graphs
    on_graph  called with each graph, built or reused, and its ubatch before it runs
    n_followed  number of batches on the fast path of next tokens
    """

    if not TYPE_CHECKING:  # a descriptor would hide the attributes' types
        cparams, gtype, on_graph, _cvec, _encoded, _head = (Setting() for _ in range(6))

    @takes(ContextParams)
    @collected_later()
    def __init__(self, model: LoadedModel, **options: Any) -> None:
        """Create a context; options are the fields of ContextParams.

        Raises ContextError for invalid values, AllocError for sizes that are too large.
        """
        super().__init__()
        self.n_settings, self.model = 0, model
        self.params = p = ContextParams(**options)
        self.cparams = resolve_cparams(model, p)
        self._lent = None if p.target is None else p.target.model.architecture.tensors_for_draft()
        self.gtype: GraphType = "decoder_mtp" if p.mtp else "decoder"
        self.embd: F32 | None = None
        self.embd_seq: dict[int, F32] = {}
        self.h_nextn: F32 | None = None
        self.layer_inp: dict[int, F32] = {}
        self._cvec: PlacedDirections | None = None
        self._encoded: Cross | None = None
        self._adapters = AdapterChoice()
        self._head: Linear | None = None
        self._loras: list[Loras] = [NO_LORAS]  # index: kind of ubatch
        self._closed, self.n_followed = False, 0
        self._next: NextTokenPath | None = None
        self._at_work = threading.Lock()
        self.on_graph: OnGraph | None = None
        set_threads(self.devices, p)
        spare = take_spare(model, p)
        if spare is not None:
            self.runner, self.memory, self.cparams = spare.runner, spare.memory, spare.cparams
        else:
            self.runner = Runner(model, p)
            self.memory = self._create_memory()
            self._reserve(self._resolve_fused_ops())
        self.checker = self.runner.checker
        self._initial_cparams = self.cparams

    @property
    def devices(self) -> Sequence[Device]:
        """The devices in use; the last one is the host."""
        return self.model.placement.devices

    @property
    def epoch(self) -> int:
        """Counter of changes, except next tokens: settings, other batches, changes of the memory,
        other graphs. If two epochs are equal, no change happened between them."""
        return self.n_settings + self.memory.changes + self.runner.n_changes

    @property
    def n_ctx(self) -> int:
        return self.cparams.n_ctx

    @property
    def n_reused(self) -> int:
        """Number of times that a graph was reused."""
        return self.runner.n_reused

    @property
    def n_vocab(self) -> int:
        return self.model.hparams.n_vocab

    def _create_memory(self) -> MemoryGroup:
        p, arch, hp = self.params, self.model.architecture, self.model.hparams
        if arch.draft_rules.shares_memory:
            return self._shared_memory(p.target)
        types = BY_NAME[p.type_k], BY_NAME[p.type_v]
        if types[1].block_size > 1 and not self.cparams.flash_attn:
            why = f"type_v = {p.type_v} needs flash attention"
            raise ContextError(f"{why}; use type_v f16, or flash_attn")
        layers = [hp.n_layer + p.nextn_layer] if p.mtp else hp.kept_layers
        how = Placing(
            self.cparams,
            self._memory_device,
            *types,
            n_pos=hp.n_pos_per_embd,
            parts=self.model.placement.group,
        )
        return create_memory({il: arch.sharded_memory_spec(il) for il in layers}, how)

    def _shared_memory(self, target: Context) -> MemoryGroup:
        """Return the memory of a draft model that attends to the target model's cache."""
        theirs, hp = target.model, self.model.hparams
        self.cparams = replace(self.cparams, flash_attn=target.cparams.flash_attn)
        specs = map(theirs.architecture.sharded_memory_spec, range(theirs.hparams.n_layer))
        layers = self.model.architecture.reads(dict(enumerate(specs)))
        return SharedMemory(target.memory, layers, {il: hp.layers[il].window for il in layers})

    def _memory_device(self, il: int) -> Device:
        model = self.model
        return model.layer_devices[il] if self.cparams.offload_kqv else model.placement.host

    def decode(
        self,
        tokens: Sequence[int] | I32 | Batch,
        logits: Wanted = "last",
        seq_id: int = 0,
        copy: bool = True,
    ) -> F32:
        """Advance the sequences of a batch. -> F32 [n, n_vocab], the rows in the batch's order

        tokens   ids that continue sequence `seq_id`, or a Batch
        logits   tokens to return logits for, unless the batch specifies them
        copy     False: rows are read-only, and valid until the next computation

        Raises ContextError before the computation if the batch is malformed or does not fit, and
        if another thread decodes: create one context per thread. After Ctrl-C or an error,
        sequences end at the last complete ubatch; a recurrent model's sequences are empty.
        Exceptions from other signal handlers or debuggers may corrupt the memory.
        """
        self._refuse_others()
        with self._at_work:
            before, self._next = self._next, None
            if before is not None and before.epoch == self.epoch:
                ubatch = before.next(tokens, logits, seq_id)
                if ubatch is not None:
                    return self._follow(before, ubatch, copy)
            if seq_id and not isinstance(tokens, Batch):
                tokens = Batch(tokens, seq_ids=[(seq_id,)] * len(tokens))
            splitter = self._check_tokens(tokens, logits)
            self._apply_shift()
            with self.memory.share_first_sequence(splitter):
                return self._run(splitter, self.memory, copy)

    def encode(self, tokens: Sequence[int] | I32 | Batch) -> F32:
        """Encode a text as a whole (llama.h:llama_encode).

        The decoder of an encoder-decoder model then attends to the result. Models without a
        separate encoder run like in `decode`.

        Returns:
            The last hidden state of each token, `(n_tokens, n_embd)`, not pooled or normalized.

        Raises:
            ContextError: Malformed or oversized batch, or a second thread decodes.
        """
        if not self.model.has_encoder:
            return self._token_embeddings(tokens)
        self._refuse_others()
        with self._at_work:
            return self._encode(tokens)

    def _refuse_others(self) -> None:
        """Raise ContextError if another thread or a callback is using this context."""
        if self._at_work.locked():
            raise ContextError(
                "this context is already decoding, in another thread or a callback; create one "
                "context per thread with model.context()"
            )

    @postpone_interrupts
    def _token_embeddings(self, tokens: Sequence[int] | I32 | Batch) -> F32:
        """Decode, and return the embeddings of all tokens."""
        before = self.cparams
        self.cparams = replace(before, embeddings=True)
        try:
            self.decode(tokens, "all")
        finally:
            self.cparams = before
        assert self.embd is not None
        return self.embd

    @postpone_interrupts
    def _encode(self, tokens: Sequence[int] | I32 | Batch) -> F32:
        decoding, self.gtype = (self.gtype, self.cparams), "encoder"
        self.cparams = replace(self.cparams, causal_attn=False)
        try:
            splitter = self._check_tokens(tokens, "all", NOTHING)
            self._run(splitter, NOTHING)
        finally:
            self.gtype, self.cparams = decoding
        assert self.embd is not None
        self._encoded = Cross(self.embd, splitter.seq_id)
        return self.embd

    def _run(self, splitter: BatchSplitter, memory: MemoryGroup, copy: bool = True) -> F32:
        cparams = self.cparams
        whole = cparams.embeddings or not cparams.causal_attn
        plan = self._adapters.plan(splitter)
        if plan.kinds is not None:
            splitter.set_kinds(plan.kinds)
        self._loras = plan.loras
        mctx = memory.init_batch(splitter, cparams.n_ubatch, whole)
        outputs = Outputs(splitter, cparams, copy or len(mctx.ubatches) > 1)
        while True:
            ubatch = mctx.get_ubatch()
            self._process_ubatch(ubatch, memory, mctx, outputs)
            if not mctx.next():
                break
        self._adapters.keep(plan)
        if not plan.heard:  # any token may activate an adapter
            self._next = next_token_path(splitter, mctx, self.epoch, self.n_vocab)
        return self._result(outputs)

    def _follow(self, before: NextTokenPath, ubatch: UBatch, copy: bool) -> F32:
        """Decode the tokens after `before`."""
        with Shield():
            try:
                before.mctx.follow(ubatch)
                res = self.runner.run_again(ubatch, self.on_graph)
                rows = self._rows(before.splitter, ubatch, res, copy)
                before.ubatch, self._next = ubatch, before
            except BaseException:
                log_removed(self.memory.discard(ubatch))
                raise
        self.n_followed += 1
        return rows

    def _rows(self, splitter: BatchSplitter, ubatch: UBatch, res: GraphResult, copy: bool) -> F32:
        """Read the logits of a batch of one ubatch."""
        if res.t_logits is not None and not self.cparams.gives_more:
            here = res.logits_here
            if here is None:
                return read_rows(res.t_logits, ubatch.n_tokens)
            return here.copy() if copy else here[:]
        outputs = Outputs(splitter, self.cparams, copy)
        outputs.add(res, ubatch)
        return self._result(outputs)

    def _result(self, outputs: Outputs) -> F32:
        self.embd, self.embd_seq = outputs.embd.values, outputs.by_seq
        self.h_nextn, hp = outputs.h_nextn.values, self.model.hparams
        self.layer_inp = {il: r.get(hp.n_embd) for il, r in outputs.layer_inp.items()}
        return outputs.logits.get(self.n_vocab)

    def prepare(self, n_tokens: int | Iterable[int], n_seqs: int = 1) -> None:
        """Compile all kernels for batches of n_tokens tokens of n_seqs sequences, with all logits
        and of the last tokens, in a full and in an empty memory, without computing."""
        each = [n_tokens] if isinstance(n_tokens, int) else n_tokens
        self.runner.prepare(self._shape_params((n, n_seqs) for n in each))

    def prepare_once(self, shapes: Sequence[tuple[int, int]], force: bool = False) -> None:
        """Do `prepare` for (tokens, sequences), unless an earlier process did and its kernels are
        still cached: then only one graph is built.

        force   prepare in any case
        """
        key = self.runner.graph_key(next(self._shape_params([(1, 1)])), shapes)
        if force or not self.runner.sched.has_provided(key):
            self.runner.prepare(self._shape_params(shapes), key)

    def _shape_params(self, shapes: Iterable[tuple[int, int]]) -> Iterator[GraphParams]:
        for n, n_seqs in shapes:
            for n_used in (None, n):
                full = full_params(self.model, self._graph_params, self.memory, n, n_seqs, n_used)
                yield from (replace(full, n_outputs=i) for i in {full.n_outputs, n_seqs})

    def clear(self) -> None:
        """Remove all sequences from memory."""
        self.memory.clear()

    def save_state(
        self, seq_id: int = -1, *, partial: bool = False, tokens: Sequence[int] = ()
    ) -> bytes:
        """Return the state of one sequence, or of all (-1); see llama_py.context.state.save."""
        return state.save(self, seq_id, partial=partial, tokens=tokens)

    def load_state(
        self, data: bytes | memoryview, seq_id: int = -1, *, partial: bool = False
    ) -> list[int]:
        """Restore a saved state; return its tokens. See llama_py.context.state.load."""
        return state.load(self, data, seq_id, partial=partial)

    def close(self) -> None:
        """Release the memory. The context cannot decode after that. On Linux the next context with
        the same options starts with this memory; until then the system can reclaim its pages."""
        self.close_companions()
        if not self._closed:
            leave_spare(self.runner, self.params, self._initial_cparams, self.memory)
        self.memory, self.runner.graphs, self._closed, self._next = NOTHING, [], True, None

    def __repr__(self) -> str:
        cp = self.cparams
        sequences = f"{cp.n_seq_max} sequences" if cp.n_seq_max > 1 else "1 sequence"
        return f"<Context of {self.n_ctx} cells, {sequences}, {self.model.arch}>"

    def adapter_key(self, seq_id: int) -> Hashable | None:
        """Return the cache key of a sequence (adapters and control vector), or None if results
        depend on how tokens are batched."""
        loras = self._adapters.get_loras(seq_id)
        return None if self._adapters.has_activated(seq_id) else (loras, self._cvec)

    def set_embeddings_nextn(
        self, value: bool, masked: bool = False, pre_norm: bool = False
    ) -> None:
        """Set if decode also returns `h_nextn`: a row per token, or with `masked` per output; from
        the last norm's result, or with `pre_norm` its input."""
        self.cparams = replace(
            self.cparams,
            embeddings_nextn=value,
            embeddings_nextn_masked=value and masked,
            nextn_pre_norm=value and pre_norm,
        )

    def set_head(self, head: Linear | None) -> None:
        """Set the LM head for logits [n_embd, n] with up to the model's number of rows; None:
        the model's LM head."""
        self._head = head

    def set_control_vector(
        self, directions: npt.ArrayLike | None, layers: range | None = None
    ) -> None:
        """Set directions [n, n_embd] to add to the results of layers, from layer 1 on (None: all
        layers); None removes them. A `llama_py.steering.ControlVector` is accepted. ContextError
        for another n_embd."""
        hp, devices = self.model.hparams, self.model.layer_devices
        self._cvec = None
        if directions is not None:
            values = np.asarray(directions, np.float32)
            self._cvec = PlacedDirections(values, devices[: hp.n_layer], hp.n_embd, layers)

    def set_adapters(
        self, adapters: Mapping[Adapter, float] | None = None, seq_id: int | None = None
    ) -> None:
        """Set the adapters of a sequence, from `model.load_adapter`, each with a scale; None
        removes them. Cached tokens are not computed again.

        seq_id  None: all sequences

        Raises ContextError for another model's adapter, a scale that is not finite, a sequence out
        of range.
        """
        for adapter in adapters or {}:
            if adapter not in self.model.adapters:
                raise ContextError(f"{adapter} belongs to another model; use model.load_adapter")
        if seq_id is not None and not 0 <= seq_id < self.cparams.n_seq_max:
            raise ContextError(f"seq_id must be in [0, {self.cparams.n_seq_max}), got {seq_id}")
        self._adapters.set(adapters or {}, seq_id)
        self.n_settings += 1

    def memory_breakdown(self) -> dict[str, dict[str, int]]:
        """Return bytes by device and use: model, context (memory), compute, and on the host reuse
        (saved states)."""
        model, memory = self.model.sizes, self.memory.memory_breakdown()
        use = {
            d.name: {"model": model.get(d.name, 0), "context": memory.get(d.name, 0), "compute": n}
            for d, n in zip(self.devices, self.runner.compute_sizes(), strict=True)
        }
        use[self.devices[-1].name]["reuse"] = self.host_bytes
        return use

    def _check_tokens(
        self, tokens: Sequence[int] | I32 | Batch, logits: Wanted, memory: MemoryGroup | None = None
    ) -> BatchSplitter:
        if self._closed:
            raise ContextError("the context is closed; create another with model.context()")
        return create_splitter(
            tokens,
            logits,
            self.model.hparams,
            self.cparams,
            memory or self.memory,
            reads=memory is NOTHING,
            hidden=self.gtype == "decoder_mtp"
            or self.model.architecture.draft_rules.continues_states,
        )

    def _apply_shift(self) -> None:
        """Rotate the cached keys of moved positions."""
        from llama_py.memory.k_shift import plan_shift

        factors = partial(self.model.architecture.rope_factors, self.cparams)
        for kv in self.memory.caches.values():
            if not kv.has_shift():
                continue
            with Shield():
                plan = let_through(partial(plan_shift, kv, self.cparams, factors, self.devices))
                try:
                    plan.run()
                except BaseException:  # some keys may be rotated, others not
                    for seq_id in (seqs := kv.moved_seqs()):
                        self.memory.seq_rm(seq_id)
                    log_removed(seqs)
                    raise
                finally:
                    kv.forget_shift()

    def _process_ubatch(
        self, ubatch: UBatch, memory: MemoryGroup, mctx: GroupContext, outputs: Outputs
    ) -> None:
        """Compute a ubatch and read its rows; after an error, restore the memory."""
        with Shield():
            try:
                mctx.apply()
                n_outputs = int(np.count_nonzero(ubatch.output))
                outputs.add(self._run_graph(ubatch, mctx, n_outputs), ubatch)
            except BaseException:
                log_removed(memory.discard(ubatch))
                raise

    def _run_graph(self, ubatch: UBatch, mctx: GroupContext, n_outputs: int) -> GraphResult:
        return self.runner.run(self._graph_params(ubatch, mctx, n_outputs), self.on_graph)

    def _graph_params(self, ubatch: UBatch, mctx: GroupContext, n_outputs: int) -> GraphParams:
        return GraphParams(
            self.model.hparams,
            self.cparams,
            ubatch,
            mctx,
            n_outputs,
            self.gtype,
            self._cvec,
            self._encoded,
            self._loras[ubatch.kind],
            self._head,
            self._lent,
        )

    def _resolve_fused_ops(self) -> GraphResult:
        """Disable fused ops that the device cannot run, if the caller chose "auto".

        Returns the graph for the next token.
        """
        res, before = self._next_token_graph(), self.cparams
        self.cparams = without_refused(self.params, before, self.runner.unsupported_ops(res.fused))
        if self.cparams.flash_attn != before.flash_attn:
            self.memory = self._create_memory()
        return res if self.cparams == before else self._next_token_graph()

    def _next_token_graph(self) -> GraphResult:
        n = self.cparams.n_seq_max
        full = full_params(self.model, self._graph_params, self.memory, n, n)
        return self.model.architecture.graph(full)

    def _reserve(self, next_token: GraphResult) -> None:
        """Compute buffers for the largest graphs, so that decode does not allocate."""
        full = reserve_params(self.model, self._graph_params, self.memory, self.cparams)
        self.runner.reserve(full, next_token)

    computed_with = Former("adapter_key")
