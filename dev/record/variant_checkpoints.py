"""Variants of recorded checkpoints: with layers that draft tokens, or with another class name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_py.checkpoint.converter import Converter
from llama_py.checkpoint.mmproj import media_converters
from llama_py.checkpoint.models import converters

Shapes = dict[str, Any]
Record = Mapping[str, Any]
PARAMS = "params.json"
MODES = ("nextn", "mtp")  # with the layers that draft tokens, and only these
# Modules of these layers, and their shapes as multiples of the width
ORDINARY = {"eh_proj": (1, 2), "enorm": (1,), "hnorm": (1,), "shared_head.norm": (1,)}
QWEN = {"fc": (1, 2), "pre_fc_norm_embedding": (1,), "pre_fc_norm_hidden": (1,), "norm": (1,)}
HEAD = {name: (1,) for name in ("hc_head_base", "hc_head_scale")}
NEXTN, STEP = {"num_nextn_predict_layers": 1}, "transformer.shared_head."
# By record: number of the copied layer, path of the copies, path of other modules, shapes of other
# modules, changes of config.json
DRAFTS: dict[str, tuple[int, str, str, Shapes, Shapes]] = {
    "cohere2moe": (3, "model.layers.4", "model.layers.4", ORDINARY, NEXTN),
    "glm-dsa": (1, "model.layers.2", "model.layers.2", ORDINARY, NEXTN),
    "glm5-next": (1, "model.layers.2", "model.layers.2", ORDINARY, NEXTN),
    "hy_v3": (1, "model.layers.2", "model.layers.2", {
        **{k: ORDINARY[k] for k in ("eh_proj", "enorm", "hnorm")}, "final_layernorm": (1,)}, NEXTN),
    "step35": (1, "model.layers.2", "model.layers.2", {
        **ORDINARY, f"{STEP}norm": (1,), f"{STEP}output": (2, 1)}, NEXTN),
    "qwen3next": (3, "mtp.layers.0", "mtp", QWEN, {}),
    "qwen35": (3, "mtp.layers.0", "mtp", QWEN, {"mtp_num_hidden_layers": 1}),
    "qwen35moe": (3, "mtp.layers.0", "mtp", QWEN, {"mtp_num_hidden_layers": 1}),
    "mimo2": (1, "model.mtp.layers.{}", "model.mtp.layers.{}", {
        "eh_proj": (1, 2), "enorm": (1,), "hnorm": (1,), "final_layernorm": (1,)}, {}),
    "dots3note": (0, "model.layers.2", "model.layers.2", ORDINARY, {}),
    "deepseek4": (1, "mtp.0", "mtp.0", {
        "e_proj": (1, 1), "h_proj": (1, 1), "enorm": (1,), "hnorm": (1,), "norm": (1,)}, NEXTN),
}  # fmt: skip
COPIES = {"mimo2": 3}
# Class names without a record: llama.cpp lacks these names, or DRAFTS covers the class
UNNAMED = ("PhimoeForCausalLM", "Qwen3ForSequenceClassification", "MptForCausalLM",
           "MiniMaxM3VLForConditionalGeneration", "DeepseekV4DSparkModel")  # fmt: skip
STORED_DRAFTS = ("bailingmoe3", "deepseek32", "glm4moe", "glm4moelite", "nemotron_h_moe")
DSPARK = {
    "dspark_block_size": 5, "dspark_target_layer_ids": [0, 1], "dspark_noise_token_id": 7,
}  # fmt: skip


def with_drafts(name: str, record: Record) -> tuple[Shapes, Shapes]:
    """Return config.json and tensors of a recorded model with layers that draft tokens."""
    config, tensors = dict(record["config"]), dict(record["tensors"])
    if name not in DRAFTS:
        return config, tensors
    layer, path, outer, modules, changes = DRAFTS[name]
    n, dtype = config["hidden_size"], "BF16" if name == "deepseek4" else "F32"
    source = f"layers.{layer}."
    found = {k.partition(source)[2]: v for k, v in tensors.items() if source in k}
    for i in range(COPIES.get(name, 1)):
        tensors |= {f"{path.format(i)}.{module}": value for module, value in found.items()}
        for module, shape in modules.items():
            tensors[f"{outer.format(i)}.{module}.weight"] = [dtype, [n * k for k in shape]]
    if name == "dots3note":
        tensors["model.mtp.embed_tokens.weight"] = [dtype, [2 * n, n]]
    if name == "deepseek4":
        tensors |= {f"mtp.0.{k}": v for k, v in tensors.items() if k.startswith("hc_head_")}
    return config | changes, tensors


def with_dspark(record: Record) -> tuple[Shapes, Shapes]:
    """Return config.json and tensors of a DeepSeek-V4 with a DSpark model of two layers."""
    config, tensors = with_drafts("deepseek4", record)
    drafts = {k.removeprefix("mtp.0."): v for k, v in tensors.items() if k.startswith("mtp.0.")}
    kept = {k: v for k, v in drafts.items() if k.startswith(("attn", "ffn", "hc_attn", "hc_ffn"))}
    kept = {k: v for k, v in kept.items() if "indexer" not in k and "compressor" not in k}
    n = config["hidden_size"]
    roots = {"main_proj": [n, 2 * n], "main_norm": [n], "norm": [n], "confidence_head.proj": [1, n],
             "markov_head.markov_w1": [8, 8], "markov_head.markov_w2": [8, 8]}  # fmt: skip
    plain = {k: v for k, v in tensors.items() if not k.startswith("mtp.")}
    for i in range(2):
        plain |= {f"mtp.{i}.{k}": v for k, v in kept.items()}
    plain |= {f"mtp.1.{k}.weight": ["BF16", shape] for k, shape in roots.items()}
    heads = {k: v for k, v in drafts.items() if k.startswith("hc_head")}
    return config | DSPARK, plain | {f"mtp.1.{k}": v for k, v in heads.items()}


def rename_class(record: Record, name: str) -> tuple[Shapes, Shapes]:
    """Return a record's config.json and tensors with another class of the model or of its vision
    encoder. Models without an output have names without a prefix."""
    config, tensors = dict(record["config"]), record["tensors"]
    if name in ("LlamaModel", "Qwen2Model", "Qwen3Model"):
        bare = {n.removeprefix("model."): t for n, t in tensors.items() if "lm_head" not in n}
        return config | {"architectures": [name]}, bare
    vision = config.get("vision_config")
    if isinstance(vision, dict) and vision.get("architectures"):
        return config | {"vision_config": {**vision, "architectures": [name]}}, tensors
    return config | {"architectures": [name]}, tensors


def name_class(name: str, record: Record) -> str:
    """Return the name of the class that converts a recorded model, or its encoders."""
    config = record["config"]
    if not config:
        return "PocketTTSModel"
    if name.startswith("mmproj"):
        vision = config.get("vision_config") or {}
        return str((vision.get("architectures") or config.get("architectures") or [PARAMS])[0])
    if config.get("model_type") == "mistral4":
        return "Mistral4ForCausalLM"
    if "architectures" in config:
        return str(config["architectures"][0])
    kind = next((key for key in ("moe", "llama_4_scaling") if key in config), "")
    return f"{PARAMS}: {kind}" if kind else PARAMS


def list_classes(records: Mapping[str, Record]) -> dict[str, tuple[str, str]]:
    """Return the classes that no record names, with a record of the same converter: a key, the
    record, the class."""
    found = dict[str, tuple[str, str]]()
    for prefix, known in (("", converters()), ("mmproj-", media_converters())):
        named = dict[str, str]()
        for name, one in sorted(records.items(), key=lambda pair: len(pair[0])):
            if "config" in one and name.startswith("mmproj") == bool(prefix):
                named.setdefault(name_class(name, one), name)
        for name, kind in known.items():
            if (
                name not in (*named, *UNNAMED)
                and (base := _find_base(kind, known, named)) is not None
            ):
                found[f"{prefix}{name}"] = base, name
    return found


def _find_base(
    kind: type[Converter], known: Mapping[str, type[Converter]], named: Mapping[str, str]
) -> str | None:
    """Return a record of a converter, or of its base class."""
    for parent in kind.__mro__:
        for name, record in named.items():
            if known.get(name) is parent:
                return record
    return None
