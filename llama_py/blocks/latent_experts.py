"""Experts in a smaller latent space (common to models/kimi-k3.cpp and nemotron-h.cpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

from ggml_py.ops import add, cont, view
from ggml_py.tensor import Tensor
from llama_py.blocks.experts import Experts
from llama_py.graph.builder import GraphBuilder
from llama_py.graph.linear import Norm
from llama_py.hparams import HParams
from llama_py.hparams.shard import Shard, Steps, run_steps
from llama_py.weights import Weights

if TYPE_CHECKING:
    from typing_extensions import Self


class LatentExpertHParams(HParams):
    """Hyperparameters of latent experts.

    n_expert_latent  dimensions of the experts' input; 0: n_embd
    n_embd_routed, first_routed   dimensions that are projected back: number and first index
    latent_stem  prefix of the names of both projections
    """

    latent_stem: ClassVar[str]
    n_expert_latent: int = 0

    @property
    def n_embd_latent(self) -> int:
        """Dimensions of the experts' input."""
        return self.n_expert_latent or self.n_embd

    def set_latent(self, n: int, first: int) -> None:
        self.n_embd_routed, self.first_routed = n, first

    def shared(self, share: Shard) -> Self:
        hp, n, stem = super().shared(share), self.n_expert_latent, f"{self.latent_stem}_up"
        hp.set_latent(
            share.count_own(n, 1, stem) if n else 0, share.count_preceding(n, 1, stem) if n else 0
        )
        return hp


class Shared(Protocol):
    """Shared feed-forward network, which processes every token."""

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply the network: [n_embd, n] -> same shape."""


class LatentExperts:
    """Routed experts in a latent space, and a shared expert."""

    parts_keep = None

    def __init__(
        self,
        w: Weights,
        hp: LatentExpertHParams,
        experts: Experts,
        shared: Shared | None,
        *,
        norm: Norm | None = None,
    ) -> None:
        """Declare the weights of both projections.

        experts  routed experts with n_embd_latent dimensions
        norm     norm of the experts' sum before it is projected back
        """
        self.experts, self.shared, self.norm = experts, shared, norm
        experts.router.prec = "default"  # llama.cpp computes these logits outside build_moe_ffn
        self.first, self.n_routed = hp.first_routed, hp.n_embd_routed
        self.down = self.up = None
        if hp.n_expert_latent:
            stem = hp.latent_stem
            self.down = w.linear(f"{stem}_down", hp.n_embd, hp.n_expert_latent, scaled=False)
            self.up = w.linear(f"{stem}_up", self.n_routed, hp.n_embd, scaled=False)

    def __call__(self, g: GraphBuilder, cur: Tensor, il: int) -> Tensor:
        """Apply routed and shared experts: [n_embd, n_tokens] -> same shape."""
        return run_steps(self.steps(g, cur, il))

    def steps(self, g: GraphBuilder, cur: Tensor, il: int) -> Steps:
        """Apply the experts, and yield their sum before it is projected back."""
        routed = cur if self.down is None else self.down(g, cur)
        moe = self.experts(g, routed, il, self.experts.route(g, cur, il))
        if self.up is not None:
            moe = self.project_back(g, (yield moe), il)
        if self.shared is not None:
            moe = add(moe, self.shared(g, cur, il))
        return g.cb(moe, "ffn_out", il)

    def project_back(self, g: GraphBuilder, moe: Tensor, il: int) -> Tensor:
        """Normalize the experts' sum, if there is a norm, and project it back to n_embd.

        [n_expert_latent, n_tokens] -> [n_embd, n_tokens], of this device's latent dimensions.
        """
        assert self.up is not None
        if self.norm is not None:
            moe = self.norm(g, moe, il=il)
        if self.n_routed < moe.ne[0]:
            moe = cont(view(moe, (self.n_routed, moe.ne[1]), (moe.ne[0],), self.first))
        return self.up(g, moe)
