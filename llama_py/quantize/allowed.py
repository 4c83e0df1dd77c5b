"""Rules of quantization: which tensors and types are allowed.

Tensors that are quantized (llama-quant.cpp:tensor_allows_quantization), fallback types for other
row lengths, and types that need an importance matrix.
"""

from __future__ import annotations

from ggml_py.errors import GGUFError
from ggml_py.types import BY_NAME, GGMLType
from llama_py.gguf.file import TensorInfo
from llama_py.quantize.mix import EMBEDDINGS, OUTPUT
from llama_py.quantize.model import QuantizedModel

# Parts of names, and whole names: small tensors, and tensors outside matrix multiplications.
KEPT = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
)
KEPT_NAMES = ("position_embd.weight", "token_types.weight")
INSTEAD = {
    "iq1_s": "iq4_nl",
    "iq1_m": "iq4_nl",
    "iq2_xxs": "iq4_nl",
    "iq2_xs": "iq4_nl",
    "iq2_s": "iq4_nl",
    "iq3_xxs": "iq4_nl",
    "iq3_s": "iq4_nl",
    "iq4_xs": "iq4_nl",
    "q2_0": "q4_0",
    "q2_K": "q4_0",
    "q3_K": "q4_0",
    "tq1_0": "q4_0",
    "tq2_0": "q4_0",
    "q4_K": "q5_0",
    "q5_K": "q5_1",
    "q6_K": "q8_0",
}
WANT_IMATRIX = {"iq3_xxs", "iq2_xxs", "iq2_xs", "iq2_s", "iq1_m", "iq1_s"}


def is_allowed(t: TensorInfo, model: QuantizedModel, leave_output: bool) -> bool:
    if max((i + 1 for i, n in enumerate(t.ne) if n > 1), default=1) < 2:
        return False
    if not t.name.endswith("weight") or t.name in KEPT_NAMES:
        return False
    if leave_output and t.name == OUTPUT:
        return False
    return not any(part in t.name for part in (*KEPT, *model.rules.never))


def fitting(t: TensorInfo, type: GGMLType) -> GGMLType:
    """Return the type, or a fallback if rows are not a multiple of its block.

    Raises GGUFError if the type has no fallback.
    """
    if t.ne[0] % type.block_size == 0:
        return type
    instead = INSTEAD.get(type.name)
    if instead is None and type.block_size > 32:
        raise GGUFError(
            f"{t.name}: row length {t.ne[0]} is not a multiple of {type.block_size}, which "
            f"{type.name} needs, and has no replacement type; set one with --tensor-type"
        )
    found = BY_NAME[instead] if instead else type
    return found if t.ne[0] % found.block_size == 0 else BY_NAME["f16"]


def wants_imatrix(name: str, type: GGMLType, ftype: str) -> bool:
    """Return True if the type needs an importance matrix (tensor_requires_imatrix)."""
    if name in EMBEDDINGS or name == OUTPUT:
        return False
    return type.name in WANT_IMATRIX or (type.name == "q2_K" and ftype == "Q2_K_S")
