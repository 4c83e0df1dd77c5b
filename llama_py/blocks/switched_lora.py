"""LoRA adapters built into a model, chosen by token (models/granite-switch.cpp)."""

from __future__ import annotations

from ggml_py.errors import ContextError
from ggml_py.ops import add, cast, clamp, cont, mul, mul_mat_id, pad, reshape, round, silu, view
from ggml_py.tensor import Tensor
from ggml_py.types import I32
from llama_py.blocks.attention import QKV, Projections, attend
from llama_py.blocks.functions import inv_sqrt
from llama_py.blocks.rope import rope
from llama_py.blocks.softmax import Scores
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.adapter import InputSwitch, Switches
from llama_py.hparams import HParams
from llama_py.weights import Weights

IDS, LAST_IDS = "adapter_ids", "adapter_ids of outputs"


class SwitchHParams(HParams):
    """n_adapters   number of adapters, without number 0: no adapter
    n_lora_rank  rank of all adapters
    """

    n_adapters: int
    n_lora_rank: int


class Router:
    """Search for each token's adapter: the last switch token up to that token chooses it.
    It is an attention head in a layer without weights; several matches give their mean number.

    n_adapters  numbers start at 1; 0 before the first switch token
    il          index of the layer that stores keys and values
    """

    def __init__(self, switches: Switches, gain: float, n_adapters: int, il: int) -> None:
        self.switches, self.gain, self.n_adapters, self.il = switches, gain, n_adapters, il

    def embed(self, g: GraphBuilder, token_embd: Tensor) -> tuple[Tensor, Tensor]:
        """Return token embeddings [n_embd, n_tokens] and adapters I32 [n_tokens].

        Raises ContextError if the input is embeddings."""
        if g.ubatch.token is None:
            raise ContextError(
                "this model selects its adapters by token ids, so it cannot decode embeddings; "
                "pass tokens"
            )
        inp = g.add_input(InputSwitch(self.switches, self.gain, g.n_tokens))
        return g.rows(token_embd, inp.tokens), self._route(g, inp)

    def _route(self, g: GraphBuilder, inp: InputSwitch) -> Tensor:
        size, il = g.hp.layers[self.il].n_embd_head_v, self.il

        def head(x: Tensor) -> Tensor:  # only its first dimension is used
            return pad(reshape(x, 1, 1, g.n_tokens), size - 1, 0, 0, 0)

        cur = attend(g, QKV(head(inp.q), head(inp.k), head(inp.v)), il, Scores(1.0))
        cur = g.cb(cur, "router_out", il)
        cur = cont(view(cur, (1, g.n_tokens), (size,)))
        cur = clamp(reshape(cur, g.n_tokens), 0.0, float(self.n_adapters))
        return g.cb(cast(round(cur), I32), "adapter_ids")


class SwitchedLora:
    """Low-rank terms that the adapters add to a matrix product: B (A x), by token."""

    def __init__(self, w: Weights, hp: SwitchHParams, stem: str, n_in: int, n_out: int) -> None:
        n = hp.n_adapters + 1
        self.a = w.tensor(f"{stem}.lora_a", n_in, hp.n_lora_rank, n)
        self.b = w.tensor(f"{stem}.lora_b", hp.n_lora_rank, n_out, n)

    def __call__(self, x: Tensor, ids: Tensor) -> Tensor:
        """Apply each token's adapter: x [n_in, n], ids I32 [n] -> [n_out, n]."""
        n = x.ne[1]
        by_token, ids = reshape(x, x.ne[0], 1, n), reshape(ids, 1, n)
        added = mul_mat_id(self.b, mul_mat_id(self.a, by_token, ids), ids)
        return reshape(added, added.ne[0], n)


class SwitchedLinear:
    """A matrix with adapters."""

    def __init__(self, w: Weights, hp: SwitchHParams, stem: str, n_in: int, n_out: int) -> None:
        self.base = w.linear(stem, n_in, n_out, scaled=False)
        self.lora = SwitchedLora(w, hp, stem, n_in, n_out)

    def __call__(self, g: GraphBuilder, x: Tensor, ids: Tensor) -> Tensor:
        """Apply the matrix and each token's adapter: x [n_in, n], ids I32 [n] -> [n_out, n]."""
        return add(self.base(g, x), self.lora(x, ids))


class SwitchedAttention:
    """Attention, queries, keys and values by one matrix."""

    def __init__(self, w: Weights, hp: SwitchHParams, kq_scale: float) -> None:
        shape, n_embd = hp.layers[w.il], hp.n_embd
        self.qkv = Projections(w, n_embd, shape, joined=True, bias=False, scaled=False)
        self.loras = [
            SwitchedLora(w, hp, f"attn_{x}", n_embd, d * n)
            for x, (d, n) in zip("qkv", self.qkv.heads, strict=True)
        ]
        self.output = SwitchedLinear(w, hp, "attn_output", shape.n_embd_v_out, n_embd)
        self.kq_scale = kq_scale or inv_sqrt(shape.n_embd_head_k)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend with each token's adapter: [n_embd, n_tokens] -> same shape."""
        ids, rows = g.get_shared(IDS), self.qkv.rows(g, cur, il)
        q, k, v = (
            reshape(add(x, lora(cur, ids)), d, n, g.n_tokens)
            for x, lora, (d, n) in zip(rows, self.loras, self.qkv.heads, strict=True)
        )
        q, k = rope(g, q, il), rope(g, k, il)
        qkv = QKV(g.cb(q, "Qcur", il), g.cb(k, "Kcur", il), g.cb(v, "Vcur", il))
        found = g.cb(attend(g, qkv, il, Scores(self.kq_scale)), "attn_pre_o", il)
        return g.cb(self.output(g, found, ids), "attn_out", il)


class SwitchedFeedForward:
    def __init__(self, w: Weights, hp: SwitchHParams) -> None:
        n_embd, n_ff = hp.n_embd, hp.layers[w.il].n_ff
        self.gate, self.up = (
            SwitchedLinear(w, hp, f"ffn_{x}", n_embd, n_ff) for x in ("gate", "up")
        )
        self.down = SwitchedLinear(w, hp, "ffn_down", n_ff, n_embd)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the feed-forward network with adapters: [n_embd, n] -> same shape (last layer:
        outputs only)."""
        ids = g.get_shared(IDS)
        if il == g.hp.n_layer - 1:
            ids = g.shared(LAST_IDS, lambda: of_outputs(g, ids))
        gate, up = self.gate(g, cur, ids), self.up(g, cur, ids)
        return g.cb(self.down(g, mul(silu(gate), up), ids), "ffn_out", il)


def of_outputs(g: GraphBuilder, ids: Tensor) -> Tensor:
    """Select the ids of the output tokens: I32 [n_tokens] -> I32 [n_outputs]."""
    return reshape(g.outputs(reshape(ids, 1, ids.ne[0]))[0], g.n_outputs)
