"""Keys of weights that were rotated before they were stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

FFN = ("ffn_gate", "ffn_up", "ffn_down")
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
DELTA_NET = ("attn_qkv", "attn_gate", "ssm_out")


def folded_keys(
    layers: Sequence[Sequence[str]],
    widths: Sequence[int] = (),
    *,
    version: int = 1,
    block: int = 16,
    head: bool = True,
    table: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """Return the keys for folded weights.

    layers  their names by layer, without `.weight`
    widths  their input sizes, for explicit signs
    head    `output.weight` is folded
    table   the token embeddings are folded
    """
    names = [f"blk.{il}.{stem}.weight" for il, stems in enumerate(layers) for stem in stems]
    keys: dict[str, Any] = {
        "version": version,
        "block_size": block,
        "transform": "normalized-sylvester-walsh-hadamard",
        "axis": "input-last-dimension",
        "sign_mode": "explicit" if widths else "identity",
        "weight_names": [*names, "output.weight"] if head else names,
    }
    if table:
        keys["inverse_weight_names"] = ["token_embd.weight"]
    if widths:
        keys["sign_widths"] = list(widths)
        keys["sign_values"] = [-1 if (i * i + n) % 3 else 1 for n in widths for i in range(n)]
    return {f"/prism.hadamard.{key}": value for key, value in {**keys, **more}.items()}
