"""K-EXAONE: experts after the first layers, with a shared one; most layers use sliding-window
attention, and only these use RoPE (models/exaone-moe.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, head_norms
from llama_py.gguf.keys import Keys, number, uint
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.models.trunks.experts import LeadingDenseHParams, expert_layer
from llama_py.weights import Weights


class ExaoneMoeHParams(WindowedHParams, LeadingDenseHParams):
    """Hyperparameters; a frequency base for windows is ignored, like in llama.cpp."""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", least=1)
    n_expert_shared: int = uint("expert_shared_count", 0)
    n_ff_shexp: int = uint("expert_shared_feed_forward_length", 0)

    def shared_size(self, keys: Keys) -> int:
        return self.n_ff_shexp or self.n_ff_exp[0]

    def rope(self, il: int) -> Rope | None:
        return HParams.rope(self, il) if self.swa_layers[il] else None


class ExaoneMoe(LongDecoder):
    """NextN layers are ignored, like in llama.cpp."""

    arch = "exaone-moe"
    HParams = ExaoneMoeHParams
    hp: ExaoneMoeHParams
    sizes = {32: "30B.A3B", 48: "235B.A22B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            Attention(w, hp, norms=head_norms(w, hp), factors=self.factors, name="attn_out"),
            w.norm("ffn_norm", hp.n_embd),
            expert_layer(w, hp, il),
        )
