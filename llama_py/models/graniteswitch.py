"""Granite Switch: Granite with built-in adapters that certain tokens switch to
(models/granite-switch.cpp).

llama.cpp takes up to 4,096 adapters, though its cache rounds numbers above 2,048; here there may be
2,048. In llama.cpp adapters from other files work on the head alone, here on all matrices.
"""

from __future__ import annotations

from ggml_py.ops import scale
from ggml_py.tensor import Tensor
from llama_py.blocks.switched_lora import (
    IDS,
    Router,
    SwitchedAttention,
    SwitchedFeedForward,
    SwitchHParams,
)
from llama_py.gguf.keys import Keys, number, uint, uints
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.inputs.adapter import Switches
from llama_py.hparams import MAX_LAYERS
from llama_py.hparams.layer_shape import Rope
from llama_py.models.granite import SwitchedHParams
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.models.trunks.rules import QuantizeRules
from llama_py.weights import Weights

MAX_ADAPTERS = 2**11  # largest integer range of F16
MAX_RANK = 4096  # granite-switch.cpp's bound
MAX_GAIN = 65504.0  # largest F16
TOKENS, READ_AS = (f"adapters.token_ids_{x}" for x in ("activate", "substitute"))


def _n_adapters(hp: GraniteSwitchHParams) -> int:
    return hp.n_adapters


class GraniteSwitchHParams(SwitchedHParams, SwitchHParams):
    """Hyperparameters; an extra layer without weights keeps the router's keys and values.

    switch_tokens, read_as  tokens that choose an adapter, in order; tokens with their
                            embeddings
    router_gain   weight of switch tokens for the router, compared with other tokens
    """

    mixes_embd = False
    n_adapters: int = uint("adapters.count", most=MAX_ADAPTERS)
    n_lora_rank: int = uint("adapters.lora_rank", least=1, most=MAX_RANK)
    router_gain: float = number("adapters.router_gain", 15.0, least=0, most=MAX_GAIN)
    switch_tokens: tuple[int, ...] = uints(TOKENS, count=_n_adapters)
    read_as: tuple[int, ...] = uints(READ_AS, count=_n_adapters)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if any(token >= self.n_vocab for token in self.read_as):
            raise keys.error(
                READ_AS, f"items must each be less than the vocabulary size {self.n_vocab}"
            )
        n = self.n_layer
        if n >= MAX_LAYERS:
            raise keys.error("block_count", f"must be less than {MAX_LAYERS}")
        for key, values in (("head_count", self.n_head), ("head_count_kv", self.n_head_kv)):
            if not all(values[:n]):
                raise keys.error(f"attention.{key}", "must be at least 1 in every layer")
        self.n_layer_all, self.n_layer_nextn, self.n_layer_bare = n + 1, 0, 1
        self.n_head, self.n_head_kv = (*self.n_head[:n], 1), (*self.n_head_kv[:n], 1)
        self.n_ff, self.n_expert_used = (*self.n_ff[:n], 0), (*self.n_expert_used[:n], 0)

    def rope(self, il: int) -> Rope | None:
        return super().rope(il) if il < self.n_layer else None


class GraniteSwitch(Decoder):
    arch = "graniteswitch"
    HParams = GraniteSwitchHParams
    hp: GraniteSwitchHParams
    sizes = {(40, 4096): "8B", 40: "3B", 64: "30B"}
    names = {"hidden_scaled": "", "hidden_scaled_ffn": ""}
    quantize_rules = QuantizeRules(counted_layers=lambda n_layer, n_nextn: n_layer - n_nextn + 1)

    def declare(self, w: Weights) -> None:
        hp = self.hp
        switches = Switches(hp.n_vocab, hp.switch_tokens, hp.read_as)
        self.router = Router(switches, hp.router_gain, hp.n_adapters, hp.n_layer)
        super().declare(w)

    def declare_nextn(self, w: Weights) -> None:
        """Declare no tensors: this model has no NextN layers."""

    def embed(self, g: GraphBuilder) -> Tensor:
        cur, ids = self.router.embed(g, self.token_embd)
        g.shared(IDS, lambda: ids)
        if self.hp.embedding_scale:
            cur = scale(cur, self.hp.embedding_scale)
        return g.cb(cur, "inp_embd")

    def layer(self, w: Weights, il: int) -> Layer:
        hp, n_embd = self.hp, self.hp.n_embd
        return Layer(
            w.norm("attn_norm", n_embd),
            SwitchedAttention(w, hp, hp.attention_scale),
            w.norm("ffn_norm", n_embd),
            SwitchedFeedForward(w, hp),
            residual_scale=hp.residual_scale,
        )
