"""QRWKV: Qwen2 with gated linear attention over mixed tokens instead of attention
(models/rwkv6qwen2.cpp).

llama.cpp stores the wrong tokens if it decodes several sequences together; here each sequence has
its own.
"""

from __future__ import annotations

from llama_py.blocks.time_mix import GatedTimeMix, TimeMixHParams
from llama_py.gguf.keys import Keys
from llama_py.models.trunks.rwkv import SIZES_6, ShiftedDecoder
from llama_py.weights import Weights


class Rwkv6Qwen2HParams(TimeMixHParams):
    n_shifts = 1

    def load(self, keys: Keys) -> None:
        super().load(keys)
        self.wkv_n_head_kv = self.n_head_kv[0] or self.wkv_n_head
        if self.wkv_n_head % self.wkv_n_head_kv:
            raise keys.error("attention.head_count_kv", f"must divide the {self.wkv_n_head} heads")


class Rwkv6Qwen2(ShiftedDecoder):
    arch = "rwkv6qwen2"
    HParams = Rwkv6Qwen2HParams
    hp: Rwkv6Qwen2HParams
    sizes = SIZES_6

    def declare_ends(self, w: Weights) -> None:
        self.output_norm = w.norm("output_norm", self.hp.n_embd, bias=True)
        self.output = w.output(self.hp.n_embd, self.hp.n_vocab)

    def time_mix(self, w: Weights) -> GatedTimeMix:
        return GatedTimeMix(w, self.hp)
