"""Hyperparameters of Kimi models and GLM5-Next, with delta nets in layers without key heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llama_py.gguf.keys import Keys, uint
from llama_py.hparams.layer_shape import ROPE_NONE
from llama_py.hparams.shard import Shard
from llama_py.models.trunks.latent import LatentHParams

if TYPE_CHECKING:
    from typing_extensions import Self


class KimiHParams(LatentHParams):
    """Hyperparameters of models with Kimi Delta Attention (KDA).

    n_head_kda, n_embd_head_kda   heads of a delta net, and their size S

    Layers without key heads are delta nets.
    """

    rope_type = ROPE_NONE
    ssm_d_conv: int = uint("ssm.conv_kernel", least=1)
    n_embd_head_kda: int = uint("kda.head_dim", least=1)

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self._set_heads(self.n_head_first)
        self.l2_eps = self.delta_net_eps()

    def _set_heads(self, n: int) -> None:
        """Set the sizes of a delta net with n heads."""
        self.n_head_kda, n_inner = n, n * self.n_embd_head_kda
        self.n_embd_r = 3 * (self.ssm_d_conv - 1) * n_inner
        self.n_embd_s = self.n_embd_head_kda * n_inner

    def shared(self, share: Shard) -> Self:
        hp = super().shared(share)
        for il in filter(self.is_recr, range(self.n_layer)):
            hp._set_heads(
                share.count_own(self.n_head_kda, self.n_embd_head_kda, "attn_output", il=il)
            )
        return hp

    @property
    def state_sections(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Sizes of the stored inputs of queries, keys and values."""
        return (self.n_embd_r // 3,) * 3, ()

    def is_recr(self, il: int) -> bool:
        return il < self.n_layer and self.n_head_kv[il] == 0

    @property
    def kda_sizes(self) -> tuple[int, int, int]:
        """Number of heads of a delta net, their size, and the width of the convolution."""
        return self.n_head_kda, self.n_embd_head_kda, self.ssm_d_conv


class BoundedKimiHParams(KimiHParams):
    """Hyperparameters of models that may bound the decays of delta nets.

    gate_lower_bound  decays are exp(gate_lower_bound * sigmoid); None: exp of a softplus, like in
                      Kimi Linear
    """

    def load(self, keys: Keys) -> None:
        super().load(keys)
        bound = "kda.gate_lower_bound"
        self.gate_lower_bound = keys.number(bound) if keys.has(bound) else None
