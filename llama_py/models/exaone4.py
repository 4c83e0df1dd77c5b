"""EXAONE 4: only the results of blocks are normed; in the larger model three of four layers use
sliding-window attention and the others have no RoPE (models/exaone4.cpp)."""

from __future__ import annotations

from llama_py.blocks.attention import Attention, head_norms
from llama_py.gguf.keys import Keys, number, uint
from llama_py.hparams import RMS_EPS, HParams, WindowedHParams
from llama_py.hparams.layer_shape import ROPE_NEOX, Rope
from llama_py.models.trunks.decoder import Layer, LongDecoder
from llama_py.models.trunks.plain import PlainDecoder
from llama_py.weights import Weights

N_LAYER_WINDOWED = 64  # layers of the model with windows; llama.cpp reads no other model's
UNREAD = f"attention.sliding_window is ignored in models without {N_LAYER_WINDOWED} layers"


class Exaone4HParams(WindowedHParams):
    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    n_pattern = 4
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_swa: int = uint("attention.sliding_window", 4096)

    def load(self, keys: Keys) -> None:
        if self.n_layer != N_LAYER_WINDOWED:
            given = keys.uint("attention.sliding_window", 0)
            self.n_swa = given if given and self.differs(UNREAD) else 0
        super().load(keys)

    def rope(self, il: int) -> Rope | None:
        """Return RoPE as trained, ignoring the file's parameters for windows like llama.cpp."""
        return HParams.rope(self, il) if self.swa_layers[il] or not self.n_swa else None


class Exaone4(PlainDecoder, LongDecoder):
    """NextN layers are ignored, like in llama.cpp."""

    arch = "exaone4"
    HParams = Exaone4HParams
    sizes = {30: "1.2B", 64: "32B"}

    def layer(self, w: Weights, il: int) -> Layer:
        hp = self.hp
        return Layer(
            None,
            Attention(w, hp, norms=head_norms(w, hp), factors=self.factors, name="attn_out"),
            None,
            self.feed_forward(w, il),
            attn_post_norm=w.norm("post_attention_norm", hp.n_embd),
            ffn_post_norm=w.norm("post_ffw_norm", hp.n_embd),
            post_ffn_il=(False, False),
        )
