"""EmbeddingGemma: Gemma 3's layers with a symmetric window
(models/gemma-embedding.cpp)."""

from __future__ import annotations

from llama_py.gguf.keys import Keys, uint
from llama_py.models.gemma3 import Gemma3, Gemma3HParams
from llama_py.models.trunks.encoder import Encoder
from llama_py.weights import Weights


class GemmaEmbeddingHParams(Gemma3HParams):
    """dense_2, dense_3  input and output sizes of two projections after pooling; 0: disabled"""

    window_kind = "symmetric"
    causal_attn = cached = False
    n_layer_27b = 0
    final_logit_softcap = 0.0
    dense_2_feat_in: int = uint("dense_2_feat_in", 0)
    dense_2_feat_out: int = uint("dense_2_feat_out", 0)
    dense_3_feat_in: int = uint("dense_3_feat_in", 0)
    dense_3_feat_out: int = uint("dense_3_feat_out", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        for key in ("dense_2_feat_in", "dense_3_feat_out"):
            if getattr(self, key) not in (0, self.n_embd):
                raise keys.error(key, f"must be embedding_length = {self.n_embd}")


class GemmaEmbedding(Encoder, Gemma3):
    arch = "gemma-embedding"
    HParams = GemmaEmbeddingHParams
    hp: GemmaEmbeddingHParams
    sizes = {24: "0.3B"}
    names = Gemma3.names
    result = "result_norm"
    post_ffn_il = (False, False)

    def declare_ends(self, w: Weights) -> None:
        super().declare_ends(w)
        n_embd, hp = self.hp.n_embd, self.hp
        dense = (
            w.optional_linear("dense_2", n_embd, hp.dense_2_feat_out, scaled=False),
            w.optional_linear("dense_3", hp.dense_3_feat_in, n_embd, scaled=False),
        )
        self.dense_out = [linear for linear in dense if linear is not None]
