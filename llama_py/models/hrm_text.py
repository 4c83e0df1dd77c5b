"""HRM-Text: two stacks of layers run alternately, several times, each pass with separate keys and
values; both read the other's result (models/hrm-text.cpp)."""

from __future__ import annotations

from ggml_py.ops import add, mul, sigmoid
from ggml_py.tensor import Tensor
from llama_py.blocks.attention import Attention, Projections
from llama_py.blocks.feed_forward import FeedForward
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import RMS_EPS, HParams
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.models.trunks.architecture import AnyHParams
from llama_py.models.trunks.decoder import Decoder, Layer
from llama_py.weights import Weights


class HrmTextHParams(HParams):
    """Layers are counted once for each turn.

    n_hrm_layers_per_stack   number of layers with weights in each of the two stacks
    n_hrm_h_cycles   turns of the high stack
    n_hrm_l_cycles   turns of the low stack before each turn of the high stack
    """

    rope_type = ROPE_NEOX
    required_heads = equal_heads = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    embedding_scale: float = number("embedding_scale", 0.0)
    n_hrm_layers_per_stack: int = uint("hrm.layers_per_stack", least=1)
    n_hrm_h_cycles: int = uint("hrm.h_cycles", least=1)
    n_hrm_l_cycles: int = uint("hrm.l_cycles", least=1)

    def load(self, keys: Keys) -> None:
        n = self.n_hrm_layers_per_stack * self.n_hrm_h_cycles * (self.n_hrm_l_cycles + 1)
        if self.n_layer != n:
            raise keys.error("block_count", f"must be {n}, the layers of all cycles")


class GatedChannels(Attention):
    """Attention with a gate per dimension. Each turn has separate keys, so devices do not share
    the layer."""

    def __init__(self, w: Weights, hp: HParams, turn: Weights) -> None:
        """turn  weights of the turn: llama.cpp reads each turn's scales under its number"""
        self.out_scaled = own = turn.il == w.il
        qkv = Projections(w, hp.n_embd, hp.layers[w.il], scaled=own)
        super().__init__(w, hp, qkv=qkv, name="attn_out")
        if not own:
            joint = qkv.joint
            parts = zip("qkv", qkv.parts, strict=True) if joint is None else [("qkv", joint)]
            for stem, part in (*parts, ("output", self.output)):
                part.scale = part.scale or turn.scale(f"attn_{stem}", 1, part.weight, True)
        n_values = hp.layers[w.il].n_embd_v_out
        self.gate = w.linear("attn_gate", hp.n_embd, n_values, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Attend and gate: [n_embd, n_tokens] -> same shape."""
        gate = g.cb(self.gate(g, cur), "attn_gate_proj", il)
        found = g.cb(self.attend(g, self.project(g, cur, il), il), "attn_pregate", il)
        gate = g.cb(sigmoid(gate), "attn_gate_sigmoid", il)
        cur = self.output(g, g.cb(mul(found, gate), "attn_gated", il))
        return g.cb(cur, self.name, il)


class HrmText(Decoder):
    arch = "hrm_text"
    HParams = HrmTextHParams
    hp: HrmTextHParams
    layer_sum = "ffn_add"
    names = {"ffn_inp": "attn_add"}

    @classmethod
    def size_name(cls, hp: AnyHParams) -> str:
        return "1B" if hp.n_embd == 1536 else super().size_name(hp)

    def declare_ends(self, w: Weights) -> None:
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab)
        self.z_l_init = w.tensor("hrm.z_l_init", self.hp.n_embd)

    def declare_trunk(self, w: Weights) -> None:
        hp, n = self.hp, self.hp.n_hrm_layers_per_stack
        w.skip_layers(range(2 * n, hp.n_layer))
        self.of_turn = w.layer
        stacks = [*range(n)] * hp.n_hrm_l_cycles + [*range(n, 2 * n)]
        self.layers = [
            self.layer(w.layer(il), turn) for turn, il in enumerate(stacks * hp.n_hrm_h_cycles)
        ]

    def layer(self, w: Weights, il: int) -> Layer:
        """Declare turn `il` of the layer that `w` names."""
        hp, n_embd = self.hp, self.hp.n_embd
        feed_forward = FeedForward(w, n_embd, hp.layers[w.il].n_ff, scaled=False)
        return Layer(Norm(), GatedChannels(w, hp, self.of_turn(il)), Norm(), feed_forward)

    def build(self, g: GraphBuilder) -> None:
        hp, high = self.hp, self.embed(g)
        low, first = self.z_l_init, 0
        for _ in range(hp.n_hrm_h_cycles):
            for _ in range(hp.n_hrm_l_cycles):
                low, first = self._stack(g, add(high, low), first)
            high, first = self._stack(g, add(high, low), first)
        g.res.t_embd = g.cb(g.outputs(high)[0], "result_norm")
        self.head(g, g.res.t_embd)

    def _stack(self, g: GraphBuilder, cur: Tensor, first: int) -> tuple[Tensor, int]:
        """Run one stack from layer `first` on; return its result and the next layer's number."""
        end = first + self.hp.n_hrm_layers_per_stack
        for il in range(first, end):
            cur = g.layer_out(self.layers[il](g, cur, il, False), il, self.layer_sum)
        return Norm()(g, cur, "stack_norm", first), end
