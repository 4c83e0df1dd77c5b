"""GroveMoE: a second, smaller set of experts, each for a group of the first set's
(models/grovemoe.cpp).

The second set gets the result of the first. An expert of the second set has the weight of the
first set's expert with the same number.
"""

from __future__ import annotations

from typing_extensions import Self

from ggml_py.ops import add, cast, cont, scale
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py.blocks.experts import UNSCALED, Experts, ExpertSet, Routing
from llama_py.gguf.keys import Keys, number, uint
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Linear
from llama_py.hparams import RMS_EPS
from llama_py.hparams.layer_shape import ROPE_NEOX
from llama_py.hparams.shard import Shard, Steps
from llama_py.models.qwen3 import Qwen3
from llama_py.models.trunks.decoder import Block
from llama_py.models.trunks.experts import ExpertHParams
from llama_py.weights import Weights


class GroveMoeHParams(ExpertHParams):
    """n_ff_chexp, expert_group_scale  hidden size of the second set, and a factor on its result
    n_group_experts  experts of the first set for each of the second"""

    rope_type = ROPE_NEOX
    required_heads = equal_heads = whole_rope = True
    f_norm_rms_eps: float = number(RMS_EPS, least=0)
    n_ff_chexp: int = uint("expert_chunk_feed_forward_length", 0)
    expert_group_scale: float = number("expert_group_scale")
    n_group_experts: int = uint("experts_per_group", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.n_ff_chexp = self.n_ff_chexp or self.n_embd_head_k
        if self.n_expert % self.n_group_experts:
            raise keys.error("experts_per_group", f"must divide expert_count = {self.n_expert}")

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        hp.n_ff_chexp = share.count_own(self.n_ff_chexp, 1, "ffn_down_chexps")
        return hp


class GroveMoe(Qwen3):
    arch = "grovemoe"
    HParams = GroveMoeHParams
    hp: GroveMoeHParams
    sizes = {48: "30B.A3B"}
    reranks = False

    def feed_forward(self, w: Weights, il: int) -> Block:
        return TwoSets(w, self.hp)


class GroupExperts(Experts):
    """The second set: each expert represents a group of the chosen experts."""

    def __init__(self, w: Weights, hp: GroveMoeHParams, router: Linear) -> None:
        self.n_each = hp.n_group_experts
        n = hp.n_expert // self.n_each
        super().__init__(
            w,
            hp,
            hp.n_ff_chexp,
            experts=ExpertSet(scaled=False, count=n, suffix="chexps"),
            routing=Routing(choose_by="sigmoid"),
            router=router,
        )

    def _select(self, g: GraphBuilder, logits: Tensor, il: int) -> tuple[Tensor, Tensor]:
        probs, ids = super()._select(g, logits, il)
        if self.n_each == 1:
            return probs, ids
        return probs, cast(scale(cast(ids, F32), 1.0 / self.n_each), I32)


class TwoSets:
    """Experts, and the second set's result on theirs."""

    parts_keep = None

    def __init__(self, w: Weights, hp: GroveMoeHParams) -> None:
        self.experts = Experts(
            w, hp, hp.n_ff_exp[w.il], experts=UNSCALED, routing=Routing(choose_by="sigmoid")
        )
        self.groups = GroupExperts(w, hp, self.experts.router)
        self.scale = hp.expert_group_scale

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Add the results of both sets of experts: [n_embd, n] -> same shape."""
        logits = self.experts.route(g, cur, il)
        moe = self.experts(g, cur, il, logits)
        return g.cb(add(moe, self._add_adjugates(g, moe, logits, il)), "ffn_final_moe_out", il)

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply a share of both sets, yielding the sum of the first, which the second set reads."""
        logits = self.experts.route(g, cur, il)
        mine = self.experts(g, cur, il, logits)
        moe = yield cont(mine)
        return add(mine, self._add_adjugates(g, moe, logits, il))

    def _add_adjugates(self, g: GraphBuilder, moe: Tensor, logits: Tensor, il: int) -> Tensor:
        adjusted = self.groups(g, moe, il, logits)
        return scale(g.cb(adjusted, "ffn_adj_moe_out", il), self.scale)
