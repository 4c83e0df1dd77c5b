"""Builder of one graph: order, names, inputs (llama-graph.cpp:llm_graph_context)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar

from ggml_py._moved import Former
from ggml_py.ops import cont, dup, get_rows, mul, mul_mat, pad, scale, set_rows, view
from ggml_py.tensor import Tensor
from llama_py.graph.inputs.attention import InputAttnKV, InputAttnNoCache, InputCross
from llama_py.graph.inputs.recurrent import InputRS, InputSlots
from llama_py.graph.inputs.tokens import (
    InputEmbd,
    InputMixed,
    InputOutIds,
    InputPos,
    InputScaleRows,
)
from llama_py.graph.params import GraphParams
from llama_py.graph.result import GraphResult, Input
from llama_py.graph.rotations import Rotations
from llama_py.hparams.layer_shape import Window
from llama_py.hparams.variants import Variant
from llama_py.memory.specs import INDEX

Made = TypeVar("Made")


class GraphBuilder:
    """Builder of one graph, passed to all blocks: `g.cb(t, name, il)` names tensors, `g.expand(t)`
    fixes the order of execution, and inputs are created when a block first reads them.

    Shapes in comments are in ggml's order; n_tokens is the ubatch's.
    names  other names for tensors of shared blocks in this graph;
           "" keeps a tensor's automatic name
    """

    def __init__(self, params: GraphParams, names: Mapping[str, str]) -> None:
        self.params = params
        self.names = names
        self.hp = params.hparams
        self.cparams = params.cparams
        self.ubatch = params.ubatch
        self.mctx = params.mctx
        self.res = GraphResult(params)
        folded = self.hp.hadamard
        self.rotations = None if folded is None else Rotations(folded, self.res)
        self.gf = self.res.graph
        self.expand = self.gf.build_forward_expand
        self.n_tokens = params.ubatch.n_tokens
        self.n_outputs = params.n_outputs
        self.per_seq = params.ubatch.n_seq_tokens, params.ubatch.n_seqs
        self._attn: dict[str, InputAttnKV] = {}
        self._no_cache: dict[Window | None, InputAttnNoCache] = {}
        self._shared: dict[str, Any] = {}

    def cb(self, t: Tensor, name: str, il: int = -1) -> Tensor:
        """Name a tensor like llama.cpp, and return it."""
        if name == "norm" and il >= 0:
            self.res.in_layer.append((t, il))
        name = self.names.get(name, name)
        if name:
            t.name = f"{name}-{il}" if il >= 0 else name
        return t

    def form(self, kind: Variant) -> str:
        """Return the chosen variant of a block."""
        return self.cparams.form(kind.kind, kind.names[0])

    def mark_fused(self, kind: str, t: Tensor) -> Tensor:
        """Note a node with an alternative for devices that cannot run it."""
        self.res.fused[kind].append(t)
        return t

    def add_input(self, inp: Input) -> Input:
        return self.res.add_input(inp)

    def input_embd(self, token_embd: Tensor) -> Tensor:
        """Return embeddings of the tokens, or the batch's embeddings: [n_embd, n_tokens]."""
        names = ("inp_tokens", "inp_embd")
        inp = self.add_input(InputEmbd(self.hp.n_embd_inp, self.n_tokens, names))
        self.inp_tokens = inp.tokens
        choices = [self._input_rows(token_embd, inp.tokens), inp.embd]
        given = self.ubatch.token is None
        if self.ubatch.is_embd is not None:
            choices.append(self._mixed_embd(token_embd))
        cur = self.gf.select(choices, len(choices) - 1 if self.ubatch.has_embd else 0)
        more = self.hp.n_embd_inp - self.hp.n_embd
        self.inp_embd = cur = view(cur, (self.hp.n_embd, self.n_tokens)) if more else cur
        if self.hp.embedding_scale and not (given and more):  # embeddings of images are not scaled
            cur = cur if cur.is_contiguous() else cont(cur)
            factor = self.hp.embedding_scale
            cur = self.scale_tokens(cur, factor) if more else scale(cur, factor)
        return self.expand(self.cb(cur, "embd"))

    def _input_rows(self, token_embd: Tensor, ids: Tensor) -> Tensor:
        """Look up tokens' rows, padded to input embeddings. -> [n_embd_inp, n]"""
        rows, more = self.rows(token_embd, ids), self.hp.n_embd_inp - self.hp.n_embd
        return pad(rows, more, 0, 0, 0) if more else rows

    def _mixed_embd(self, token_embd: Tensor) -> Tensor:
        """Return embeddings of a mixed ubatch. -> [n_embd_inp, n_tokens]"""
        inp = self.add_input(InputMixed(self.hp.n_embd_inp, self.ubatch))
        rows = self._input_rows(token_embd, inp.tokens)
        return set_rows(dup(inp.embd), rows, inp.slots)

    def scale_tokens(self, cur: Tensor, factor: float) -> Tensor:
        """Scale the embeddings of tokens, but not rows of embd: [n_embd, n_tokens]."""
        if self.ubatch.is_embd is None:
            return scale(cur, factor if self.ubatch.token is not None else 1.0)
        return mul(cur, self.add_input(InputScaleRows(factor, self.n_tokens)).rows)

    def deepstack(self, i: int) -> Tensor:
        """Return the part of input embeddings for a later layer, [n_embd, n_tokens].

        i  index from 1; 0 is the part for the first layer
        """
        return view(self.inp_embd, self.inp_embd.ne[:2], offset=i * self.hp.n_embd)

    def rows(self, table: Tensor, ids: Tensor) -> Tensor:
        """Look up rows of an embedding table, with adapters applied: ids I32 [n] -> [n_embd, n]."""
        rows = get_rows(table, ids)
        if self.rotations is not None:
            rows = self.rotations.restore_rows(table, rows)
        return self.params.loras.add_to_rows(rows, table, ids)

    def rotate(self, weight: Tensor, x: Tensor) -> Tensor:
        """Return a weight's input for x: x itself, unless the weight is folded."""
        return x if self.rotations is None else self.rotations.rotate(weight, x)

    def mm(
        self, weight: Tensor, x: Tensor, prec: str = "default", scale: Tensor | None = None
    ) -> Tensor:
        """Compute scale * (weight x), with adapters (build_lora_mm): [n_in, n] -> [n_out, n]."""
        res = mul_mat(weight, self.rotate(weight, x), prec)
        res = res if scale is None else mul(res, scale)
        return self.params.loras.add_terms(res, weight, x)

    @cached_property
    def inp_pos(self) -> Tensor:
        """Positions. I32 [n_tokens * n_pos_per_embd]"""
        hp = self.hp
        inp = InputPos(hp.n_pos_per_embd, self.n_tokens, hp.time_last, hp.position_axes)
        return self.add_input(inp).pos

    @cached_property
    def inp_out_ids(self) -> Tensor:
        """Indices of the output tokens, I32 [n_outputs]."""
        return self.add_input(InputOutIds(self.n_outputs)).out_ids

    @cached_property
    def inp_rs(self) -> InputRS:
        """Input that selects the recurrent states to start from."""
        return self.add_input(InputRS(self.params))

    @cached_property
    def inp_slots(self) -> InputSlots:
        """Input that selects the slots of the recurrent states."""
        return self.add_input(InputSlots(self.params))

    @cached_property
    def inp_cross(self) -> InputCross:
        """Input with the encoder's result."""
        return self.add_input(InputCross(self.params))

    def inp_attn(self, il: int) -> InputAttnKV:
        """Return inputs of the cache that stores keys and values of layer il."""
        return self.inp_cache(self.mctx.cache_name(il), self.cparams.flash_attn)

    def inp_index(self, fused: bool) -> InputAttnKV:
        """Return inputs of the cache of index keys; fused: they are scored by one op."""
        return self.inp_cache(INDEX, fused)

    def inp_cache(self, part: str, f16: bool) -> InputAttnKV:
        """Return inputs of the cache `part`; f16: its mask is F16."""
        if part not in self._attn:
            self._attn[part] = self.add_input(InputAttnKV(self.params, part, f16))
        return self._attn[part]

    def inp_no_cache(self, window: Window | None) -> InputAttnNoCache:
        """Return inputs of attention within the ubatch."""
        if window not in self._no_cache:
            self._no_cache[window] = self.add_input(InputAttnNoCache(self.params, window))
        return self._no_cache[window]

    def outputs(self, *tensors: Tensor) -> list[Tensor]:
        """Select the output rows of each tensor: [n, n_tokens] -> [n, n_outputs]."""
        return [get_rows(t, self.inp_out_ids) for t in tensors]

    def layer_out(self, cur: Tensor, il: int, before: str = "") -> Tensor:
        """Name a layer's result and apply the control vector, if any (build_cvec).

        before  name of the result before the control vector
        """
        if self.params.cvec is not None:
            cur = self.params.cvec.add_direction(self.cb(cur, before, il) if before else cur, il)
        return self.cb(cur, "l_out", il)

    def shared(self, key: str, make: Callable[[], Made]) -> Made:
        """Return the value for `key` that several layers share; the first caller creates it."""
        if key not in self._shared:
            self._shared[key] = make()
        made: Made = self._shared[key]
        return made

    def get_shared(self, key: str) -> Any:
        """Return the value for `key` that `shared` has created."""
        return self._shared[key]

    fused = Former("mark_fused")
    made = Former("get_shared")
