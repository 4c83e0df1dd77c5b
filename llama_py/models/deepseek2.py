"""DeepSeek-V2, -V3 and similar models: latent attention, experts after the first layers, optionally
a NextN layer that drafts (models/deepseek2.cpp)."""

from __future__ import annotations

from ggml_py.tensor import Tensor
from llama_py.blocks.experts import GATING_FUNCS
from llama_py.blocks.functions import scale_by_position
from llama_py.blocks.latent_attention import LatentAttention
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.hparams.layer_shape import ROPE_NORMAL
from llama_py.memory.specs import KVCacheSpec
from llama_py.models.trunks.decoder import Layer
from llama_py.models.trunks.dsa import DRAFT_NAMES_DSA
from llama_py.models.trunks.latent import Latent, YarnLatentHParams, kq_scale, turn
from llama_py.models.trunks.nextn import EarlyDrafter
from llama_py.weights import Weights

NAMES = {"qr": "q"}
DRAFT_NAMES = DRAFT_NAMES_DSA | {
    "q_a": "mtp_q_a",
    "q_a_norm": "mtp_q_a_norm",
    "q": "mtp_q_b",
    "q_pe_rope": "mtp_q_pe_rope",
    "k_pe_rope": "mtp_k_pe_rope",
    "kv_cmpr_norm": "mtp_kv_cmpr_norm",
}
GLM_4_7_LITE = (47, 48), 154880  # layers, vocabulary: its files do not name the gating function


class Deepseek2HParams(YarnLatentHParams):
    rope_type = ROPE_NORMAL
    attn_temp_scale: float = number("attention.temperature_scale", 0.0)
    attn_temp_length: int = uint("attention.temperature_length", 0)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        if self.rope_yarn_log_mul not in (0, 1):
            self.rope_yarn_mscale = self.rope_yarn_log_mul
        if self.attn_temp_scale and not self.attn_temp_length:
            raise keys.error("attention.temperature_length", "must be at least 1")

    def default_gating(self, keys: Keys) -> int:
        layers, n_vocab = GLM_4_7_LITE
        glm = self.n_layer in layers and self.n_vocab == n_vocab
        return 1 + GATING_FUNCS.index("sigmoid" if glm else "softmax")


class DeepseekAttention(LatentAttention):
    parts_keep = KVCacheSpec

    def scale_queries(self, g: GraphBuilder, q: Tensor, il: int) -> Tensor:
        assert isinstance(g.hp, Deepseek2HParams)
        length, factor = g.hp.attn_temp_length, g.hp.attn_temp_scale
        if not factor:
            return q
        return g.cb(scale_by_position(g, q, length, factor), "Qcur_attn_temp_scaled", il)


class TrunkAttention(DeepseekAttention):
    """Queries are split into heads, also where these are views of a row."""

    parts_keep = KVCacheSpec

    def _queries(self, g: GraphBuilder, small: Tensor, il: int) -> Tensor:
        q = super()._queries(g, small, il)
        return self._split(g, q, il) if self.absorbed else q


class Deepseek2(EarlyDrafter, Latent):
    arch = "deepseek2"
    HParams = Deepseek2HParams
    sizes = {27: "16B", 47: "30B.A3B", 60: "236B", 61: "671B"}
    hp: Deepseek2HParams
    names = NAMES
    draft_names = DRAFT_NAMES

    def layer(self, w: Weights, il: int) -> Layer:
        hp, drafts = self.hp, il >= self.hp.n_layer
        output = w.linear("attn_output", hp.n_embd_values(il), hp.n_embd)
        return Layer(
            w.norm("attn_norm", hp.n_embd),
            (DeepseekAttention if drafts else TrunkAttention)(
                w,
                hp.latent(il),
                absorbed=self.absorbed,
                output=output,
                turn=turn,
                kq_scale=kq_scale,
                name="attn_out" if drafts else "",
            ),
            w.norm("ffn_norm", hp.n_embd),
            self.feed_forward(w, il, need_shexp=hp.n_expert_shared > 0),
        )

    def declare_nextn(self, w: Weights) -> None:
        nextn = range(self.hp.n_layer, self.hp.n_layer_all)
        if not any(w.layer(il).has("nextn.eh_proj.weight") for il in nextn):
            self.load_mtp = False  # files may count such layers without having them
        super().declare_nextn(w)
