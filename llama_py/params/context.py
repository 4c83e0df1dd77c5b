"""How a context runs its model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from ggml_py.errors import ContextError
from ggml_py.types import BY_NAME
from llama_py.params import texts
from llama_py.params.option import Params, option
from llama_py.params.rules import Integers, Numbers, OneOf

if TYPE_CHECKING:
    from ggml_py.tensor import Tensor

MAX_SEQ = 256  # LLAMA_MAX_SEQ

# fused: as one op. Else one token is computed by the rule as written down, and many
#   autoregressive: each by that rule, so that graphs grow with n_ubatch;
#   chunked: in chunks, each a triangular system (arXiv 2412.06464);
#   blocks: in chunks of 64, whatever the gates, whose scores are put together of 4 x 4 blocks.
DeltaNetForm = Literal["fused", "autoregressive", "chunked", "blocks"]
DELTA_NET_FORMS: tuple[DeltaNetForm, ...] = get_args(DeltaNetForm)


@dataclass(frozen=True, kw_only=True)
class ContextParams(Params):
    """How a context runs its model: the arguments of `Context`."""

    error = ContextError

    n_ctx: int | None = option(
        None, "-c", "--ctx-size", env="LLAMA_ARG_CTX_SIZE", parse=texts.above_zero,
        check=Integers(1), help="context size in tokens, of all sequences together"
        " (default, or -c 0: the model's own)",
    )  # fmt: skip
    n_batch: int = option(
        2048, "-b", "--batch-size", env="LLAMA_ARG_BATCH", check=Integers(1),
        help="tokens of one logical batch",
    )  # fmt: skip
    n_ubatch: int = option(
        512, "-ub", "--ubatch-size", env="LLAMA_ARG_UBATCH", check=Integers(1),
        help="tokens computed at once, by one graph",
    )  # fmt: skip
    n_threads: int | None = option(
        None, "-t", "--threads", env="LLAMA_ARG_THREADS", parse=texts.above_zero,
        check=Integers(1), help="threads (default, or -t 0: one per core)",
    )  # fmt: skip
    flash_attn: bool | Literal["auto", "on", "off"] = option(
        "auto", "-fa", "--flash-attn", env="LLAMA_ARG_FLASH_ATTN", parse=texts.on_off_auto,
        check=OneOf(("auto", "on", "off", True, False)), metavar="on|off|auto",
        help="fused attention; auto: where the device can",
    )  # fmt: skip
    type_k: str = option(
        "f16", "-ctk", "--cache-type-k", env="LLAMA_ARG_CACHE_TYPE_K", check=OneOf(BY_NAME),
        metavar="TYPE", help="type of the K cache",
    )  # fmt: skip
    type_v: str = option(
        "f16", "-ctv", "--cache-type-v", env="LLAMA_ARG_CACHE_TYPE_V", check=OneOf(BY_NAME),
        metavar="TYPE", help="type of the V cache",
    )  # fmt: skip
    offload_kqv: bool = option(
        True, "-kvo", "--kv-offload", off=("-nkvo", "--no-kv-offload"), env="LLAMA_ARG_KV_OFFLOAD",
        help="keep the memory of a layer on its device; off: on the host",
    )  # fmt: skip
    delta_net: DeltaNetForm | Literal["auto"] = option(
        "auto", "--delta-net", env="LLAMA_ARG_DELTA_NET", choices=("auto", *DELTA_NET_FORMS),
        help="how gated delta nets are computed; auto: fused where the device can",
    )  # fmt: skip
    check: str | None = option(
        None, "--check", env="LLAMA_ARG_CHECK", metavar="ref|cpu",
        help="compute every node on this device too, and stop at the first that differs",
    )  # fmt: skip

    n_seq_max: int = option(1, check=Integers(1, MAX_SEQ), help="how many sequences there may be")
    n_rs_seq: int = option(
        0, check=Integers(0),
        help="tokens a recurrent model can be rolled back (where the architecture supports it)",
    )  # fmt: skip
    kv_unified: bool = option(
        False, help="sequences share all cells, instead of each having its own part"
    )
    embeddings: bool = option(
        False, help="also keep the last hidden state of each token, in `Context.embd`"
    )
    mtp: bool = option(False, help="run the NextN layers instead of the trunk")
    rope_freq_base: float = option(0.0, check=Numbers(0), help="of RoPE (0: the model's own)")
    rope_freq_scale: float = option(0.0, check=Numbers(0), help="of RoPE (0: the model's own)")
    fuse: bool = option(True, help="let the device run several nodes as one")
    progress: Callable[[int, int, str], None] | None = option(
        None, help="called as progress(done, total, what) while kernels are compiled"
    )
    watch: Callable[[Tensor], None] | None = option(
        None,
        help="called with every node's tensor once its value is there; slow, nothing is fused",
    )
