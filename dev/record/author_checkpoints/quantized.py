"""Checkpoints with quantized weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dev.record.author_checkpoints.shapes import (
    FE,
    HEADS,
    SIZES,
    Checkpoint,
    E,
    K,
    S,
    Shapes,
    attention,
    build,
    experts,
    mlp,
    model,
)  # fmt: skip

WIDE, FF = 128, 192  # whole blocks of all types


def widen(shapes: Shapes) -> Shapes:
    """Replace rows of 64 values, and feed-forward layers of 96 and 48."""
    sizes = {64: WIDE, 96: FF, FE: 64}
    return {k: [sizes.get(n, n) for n in s] for k, s in shapes.items()}


def quantize(shapes: Shapes, change: Callable[[str, int, int], Shapes]) -> Shapes:
    """Replace the matrices of layers by quantized tensors."""
    made: Shapes = {}
    for name, shape in shapes.items():
        is_matrix = len(shape) == 2 and ".layers." in name and ".gate." not in name
        base = name.removesuffix(".weight")
        made |= change(base, *shape) if is_matrix else {name: shape}
    return made


def gptq(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.qweight": ["I32", [n_in // 8, n]], f"{base}.scales": ["F16", [n_in // 32, n]],
            f"{base}.qzeros": ["I32", [n_in // 32, n // 8]],
            f"{base}.g_idx": ["I32", [n_in], [i // 32 for i in range(n_in)]]}  # fmt: skip


def bitnet(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight": ["U8", [n // 4, n_in]], f"{base}.weight_scale": ["BF16", [1]]}


def store_rows(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight": ["F8_E4M3", [n, n_in]], f"{base}.weight_scale": ["BF16", [n, 1]]}


def integers(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight_packed": ["I32", [n, n_in // 8]],
            f"{base}.weight_scale": ["BF16", [n, n_in // 32]],
            f"{base}.weight_zero_point": ["I32", [n // 8, n_in // 32]],
            f"{base}.weight_shape": ["I64", [2], [n, n_in]]}  # fmt: skip


def store_whole(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight": ["F8_E4M3", [n, n_in]], f"{base}.weight_scale": ["F32", []],
            f"{base}.input_scale": ["F32", []]}  # fmt: skip


def nvfp4(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight": ["U8", [n, n_in // 2]],
            f"{base}.weight_scale": ["F8_E4M3", [n, n_in // 16]],
            f"{base}.weight_scale_2": ["F32", []], f"{base}.input_scale": ["F32", []]}  # fmt: skip


def nvfp4_compressed(base: str, n: int, n_in: int) -> Shapes:
    return {f"{base}.weight_packed": ["U8", [n, n_in // 2]],
            f"{base}.weight_scale": ["F8_E4M3", [n, n_in // 16]],
            f"{base}.weight_global_scale": ["F32", [1]],
            f"{base}.input_global_scale": ["F32", [1]]}  # fmt: skip


def checkpoints() -> dict[str, Checkpoint]:
    dense = widen(build(attention() | mlp(), attention() | mlp()))
    sizes = {
        "hidden_size": WIDE,
        "intermediate_size": FF,
        "head_dim": None,
        "num_key_value_heads": K,
    }
    dense = {
        k: [K * WIDE // SIZES["num_attention_heads"], WIDE]
        if "k_proj" in k or "v_proj" in k
        else [WIDE, WIDE]
        if "q_proj" in k or "o_proj" in k
        else s
        for k, s in dense.items()
    }
    moe = attention() | HEADS | experts() | {"mlp.gate.weight": [E, 64]}
    group = {"weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32}}
    row = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}
    methods: dict[str, tuple[Any, dict[str, Any]]] = {
        "gptq": (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False}),
        "bitnet": (bitnet, {"quant_method": "bitnet"}),
        "fp8-rows": (
            store_rows,
            {
                "quant_method": "compressed-tensors",
                "format": "float-quantized",
                "config_groups": {"group_0": row},
            },
        ),
        "int4": (
            integers,
            {
                "quant_method": "compressed-tensors",
                "format": "pack-quantized",
                "config_groups": {"group_0": group},
            },
        ),
        "modelopt-fp8": (store_whole, {"quant_method": "modelopt", "quant_algo": "FP8"}),
        "nvfp4": (nvfp4, {"quant_method": "modelopt", "quant_algo": "NVFP4"}),
        "nvfp4-w4a16": (nvfp4, {"quant_method": "modelopt", "quant_algo": "W4A16_NVFP4"}),
        "nvfp4-compressed": (
            nvfp4_compressed,
            {
                "quant_method": "compressed-tensors",
                "format": "nvfp4-pack-quantized",
                "config_groups": {"group_0": {"format": "nvfp4-pack-quantized"}},
            },
        ),
    }
    made = {
        f"llama-{name}": model(
            "LlamaForCausalLM", {**sizes, "quantization_config": quant}, quantize(dense, change)
        )
        for name, (change, quant) in methods.items()
    }
    sparse = {
        k: [WIDE if n == 64 else 64 if n == FE else n for n in s]
        for k, s in build(moe, moe).items()
    }
    made["qwen3moe-nvfp4"] = model(
        "Qwen3MoeForCausalLM",
        {
            "hidden_size": WIDE,
            "num_experts": E,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "head_dim": S,
            "quantization_config": methods["nvfp4"][1],
        },
        quantize(sparse, nvfp4),
    )
    return made  # fmt: skip
