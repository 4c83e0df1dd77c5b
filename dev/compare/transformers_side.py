#!/usr/bin/env python3
"""Part of dev/compare/judge_transformers.py that runs in an environment with transformers: makes
tiny random models, their logits, and GGUF files by llama.cpp's converter.

    pip install torch==2.13.0 transformers==5.23.0 accelerate==1.15.0 rwkv==0.8.32
    python -m dev.compare.transformers_side LLAMA_CPP OUT [NAME ...]

LLAMA_CPP is a folder with llama.cpp's source. OUT gets NAME.gguf and NAME.npz (ids, logits), or
NAME.txt with the reason for their absence.
"""

from __future__ import annotations

import json
import logging
import sys
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from dev.compare import transformers_files, transformers_rwkv
from dev.compare.transformers_models import join_tables

N_TOKENS, N_VOCAB = 300, 128
SIZES = {
    "vocab_size": N_VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 48}
DELTA = {
    "head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "full_attention"] * 2,
}
YARN = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
    "rope_theta": 150000.0,
}
FALCON_H1 = {
    "mamba_d_ssm": 128,
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "head_dim": 16,
}
FULL = ["full_attention"]
# Keys of config.json that the converter needs and transformers 5 no longer writes.
MAMBA = {"layer_types": ["mamba", "attention"] * 2}
CONVERTER: dict[str, dict[str, Any]] = {
    "granitehybrid": MAMBA,
    "granitehybrid-rope": MAMBA,
    "cohere2": {"rotary_pct": 1.0},
    "gpt2": {"n_ctx": 1024},
    "mpt": {"architectures": ["MPTForCausalLM"]},
    "deepseek3": {"scoring_func": "sigmoid"},
    "deepseek3-fp8": {"scoring_func": "sigmoid"},
    "kimi-linear": {
        "first_k_dense_replace": 1,
        "moe_router_activation_func": "sigmoid",
        "linear_attn_config": {
            "full_attn_layers": [3, 4],
            "kda_layers": [1, 2],
            "head_dim": 16,
            "num_heads": 4,
            "short_conv_kernel_size": 4,
        },
    },
}
HYBRID = {
    **MAMBA,
    "mamba_n_heads": 4,
    "mamba_d_head": 32,
    "mamba_d_state": 16,
    "mamba_n_groups": 1,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "shared_intermediate_size": 48,
}
GPT_OSS = {
    "head_dim": 64,
    "sliding_window": 128,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "rope_parameters": YARN,
}
DEEPSEEK = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 48,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "num_key_value_heads": 4,
}
WIDE = {"hidden_size": 256, "intermediate_size": 384}  # several blocks of FP8
GPT = {"n_embd": 64, "n_layer": 4, "n_head": 4, "n_positions": 1024}

# By name: the class of the config, and differences from SIZES.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {}),
    "qwen2": ("Qwen2Config", {}),
    "qwen3": ("Qwen3Config", {"head_dim": 16}),
    "qwen3moe": ("Qwen3MoeConfig", {"head_dim": 16, "norm_topk_prob": True, **EXPERTS}),
    "qwen3moe-raw": ("Qwen3MoeConfig", {"head_dim": 16, "norm_topk_prob": False, **EXPERTS}),
    "gemma2": (
        "Gemma2Config",
        {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 64,
         "tie_word_embeddings": True},
    ),
    "gpt-oss": ("GptOssConfig", GPT_OSS),
    "gpt-oss-mxfp4": ("GptOssConfig", GPT_OSS),
    "deepseek3": ("DeepseekV3Config", DEEPSEEK),
    "deepseek3-fp8": (
        "DeepseekV3Config",
        {**DEEPSEEK, **WIDE, "moe_intermediate_size": 128, "kv_lora_rank": 112,
         "q_lora_rank": 128},
    ),
    "qwen3-fp8": ("Qwen3Config", {**WIDE, "head_dim": 64}),
    "t5-tied": (
        "T5Config",
        {"vocab_size": N_VOCAB, "d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2,
         "num_heads": 4, "feed_forward_proj": "relu", "tie_word_embeddings": True,
         "decoder_start_token_id": 0},
    ),
    "exaone4": ("Exaone4Config", {"sliding_window": 64, "sliding_window_pattern": 4}),
    "granitehybrid": ("GraniteMoeHybridConfig", HYBRID),
    "granitehybrid-rope": ("GraniteMoeHybridConfig", {**HYBRID, "position_embedding_type": "rope"}),
    "falcon-h1": ("FalconH1Config", FALCON_H1),
    "falcon-h1-gated": (
        "FalconH1Config", {**FALCON_H1, "mamba_rms_norm": True, "mamba_norm_before_gate": False},
    ),
    "falcon-h1-normed": (
        "FalconH1Config", {**FALCON_H1, "mamba_rms_norm": True, "mamba_norm_before_gate": True},
    ),
    "cohere2": (
        "Cohere2Config",
        {"sliding_window": 64, "logit_scale": 0.25, "tie_word_embeddings": True},
    ),
    "mpt": (
        "MptConfig",
        {"vocab_size": N_VOCAB, "d_model": 64, "n_heads": 4, "n_layers": 4, "max_seq_len": 1024},
    ),
    "qwen3next": ("Qwen3NextConfig", {**DELTA, **EXPERTS, "shared_expert_intermediate_size": 48}),
    "qwen35": ("Qwen3_5TextConfig", {**DELTA, "head_dim": 256}),
    "qwen35moe": (
        "Qwen3_5MoeTextConfig",
        {**DELTA, **EXPERTS, "head_dim": 256, "shared_expert_intermediate_size": 48},
    ),
    "kimi-linear": (
        "KimiLinearConfig",
        {"layer_types": ["linear_attention", "linear_attention", "full_attention", *FULL],
         "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"], "moe_intermediate_size": 48,
         "num_key_value_heads": 4, "num_local_experts": 6, "num_experts_per_tok": 2,
         "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 16, "v_head_dim": 16,
         "linear_head_dim": 16, "linear_num_heads": 4},
    ),
    "mamba2": (
        "Mamba2Config",
        {"num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1, "expand": 2,
         "intermediate_size": 128},
    ),
    "olmo2": ("Olmo2Config", {}),
    "phi3": ("Phi3Config", {}),
    "stablelm": ("StableLmConfig", {}),
    "gpt2": ("GPT2Config", {"vocab_size": N_VOCAB, **GPT}),
    "bloom": ("BloomConfig", {"vocab_size": N_VOCAB, "hidden_size": 64, "n_layer": 4, "n_head": 4}),
    "starcoder2": ("Starcoder2Config", {}),
    "ernie4_5": ("Ernie4_5Config", {"head_dim": 16}),
    "smollm3": ("SmolLM3Config", {}),
    "lfm2": ("Lfm2Config", {"layer_types": ["conv", "full_attention"] * 2}),
    "granite": ("GraniteConfig", {}),
}  # fmt: skip
CLASSES: dict[str, str] = join_tables("CLASSES")  # of models without logits
MODELS |= join_tables("MODELS")
CONVERTER |= join_tables("CONVERTER")
FILES: dict[str, dict[str, Any]] = join_tables("FILES")  # content of JSON files
STORED = {"gpt-oss-mxfp4": "mxfp4", "deepseek3-fp8": "fp8", "qwen3-fp8": "fp8"}
NAMES = (*MODELS, "rwkv7")
OWN_SIZES = (
    "T5Config", "UMT5Config", "MptConfig", "GPT2Config", "BloomConfig", "GPTBigCodeConfig",
    "DbrxConfig",
)  # fmt: skip


def main(llama_cpp: str, out: str, *names: str) -> int:
    logging.disable(logging.WARNING)
    sys.path[:0] = [llama_cpp, f"{llama_cpp}/gguf-py"]
    for name in names or NAMES:
        try:
            folder = make(name, Path(out))
            convert(folder, Path(out) / f"{name}.gguf")
            said = "made"
        except Exception as e:
            said = f"{type(e).__name__}: {e}".splitlines()[0][:200]
            (Path(out) / f"{name}.txt").write_text(said + "\n")
        print(name, said, flush=True)
    return 0


def make(name: str, out: Path) -> Path:
    """Store a random model and its logits. -> the model's folder"""
    torch = import_module("torch")
    torch.manual_seed(0)
    ids = torch.randint(3, N_VOCAB, (1, N_TOKENS))
    make_kind = transformers_rwkv.make if name == "rwkv7" else partial(make_hub, name)
    folder, logits = make_kind(out, ids, N_VOCAB)
    if logits is not None:
        np.savez(out / f"{name}.npz", ids=ids[0].numpy(), logits=logits)
    return folder


def make_hub(name: str, out: Path, ids: Any, n_vocab: int) -> tuple[Path, Any]:
    """Store a random model of transformers in a folder. -> the folder, logits of `ids`"""
    torch, hub = import_module("torch"), import_module("transformers")
    kind, keys = MODELS[name]
    has_sizes = kind in OWN_SIZES or "text_config" in keys
    config = getattr(hub, kind)(**keys if has_sizes else {**SIZES, **keys})
    config._attn_implementation = "eager"
    auto = hub.AutoModelForSeq2SeqLM if kind == "T5Config" else hub.AutoModelForCausalLM
    chosen = getattr(hub, CLASSES[name]) if name in CLASSES else None
    model = (chosen(config) if chosen else auto.from_config(config)).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread(torch, parameter)
    folder = out / name
    model.save_pretrained(folder)
    if name in STORED:
        reader = transformers_files.quantize(STORED[name], folder)
        model = auto.from_pretrained(
            folder, quantization_config=reader, dtype=torch.float32, attn_implementation="eager"
        )
    more = {"decoder_input_ids": ids[:, :40]} if kind == "T5Config" else {}
    with torch.no_grad():
        logits = None if chosen else model(input_ids=ids, **more).logits[0].numpy()
    transformers_files.rename(name, folder)
    stored = folder / "config.json"
    stored.write_text(json.dumps(json.loads(stored.read_text()) | CONVERTER.get(name, {})))
    for file, content in FILES.get(name, {}).items():
        (folder / file).write_text(json.dumps(content))
    return folder, logits


def spread(torch: Any, parameter: Any) -> None:
    """Make a parameter significant: matrices keep their scale, biases and norms change slightly."""
    if parameter.ndim == 1:
        parameter.add_(0.1 * torch.randn_like(parameter))
    else:  # an expert is one matrix, a convolution a whole tensor
        n_in = parameter.shape[-1] if parameter.ndim == 3 and parameter.shape[1] > 1 else 0
        parameter.copy_(torch.randn_like(parameter) / (n_in or parameter[0].numel()) ** 0.5)


@cache
def block_names() -> dict[Any, Any]:
    """Return gguf-py's names of tensors in layers, which some architectures change for all later
    conversions of the process."""
    return dict(import_module("gguf.tensor_mapping").TensorNameMap.block_mappings_cfg)


def convert(
    folder: Path, path: Path, outtype: str = "ALL_F32", mode: str = "", **options: Any
) -> None:
    """Convert a model without a vocabulary (convert_hf_to_gguf.py). The names of folders with
    encoders begin with mmproj.

    outtype  name of gguf-py's LlamaFileType
    mode     "": without layers that draft tokens; "nextn": with them; "mtp", "dspark": only these
    options  of ModelBase, such as split_max_tensors
    """
    base, script = import_module("conversion.base"), import_module("convert_hf_to_gguf")
    registered = import_module("conversion")
    import_module("gguf.tensor_mapping").TensorNameMap.block_mappings_cfg = dict(block_names())
    is_mistral = (folder / "params.json").is_file()
    hparams = base.ModelBase.load_hparams(folder, is_mistral)
    stored_type = script.gguf.LlamaFileType[outtype]
    if folder.name.startswith("mmproj"):
        base._mistral_common_installed = True
        media_class(hparams, is_mistral)(folder, stored_type, path).write()
        return
    if is_mistral:
        mistral = import_module("conversion.mistral")
        base._mistral_common_installed = True  # its tokenizers are not used here
        kind = mistral.MistralMoeModel if "moe" in hparams else mistral.MistralModel
        (folder / "config.json").write_text("{}")  # its class for experts reads both
    else:
        arch = registered.get_model_architecture(hparams, registered.ModelType.TEXT)
        arch = "DeepseekV4DSparkModel" if mode == "dspark" else arch
        kind = registered.get_model_class(arch, mmproj=False)

    def set_vocab(self: Any) -> None:
        self._set_vocab_none()
        for key in (f"{self.gguf_writer.arch}.vocab_size", "tokenizer.chat_template"):
            self.gguf_writer.kv_data[0].pop(key, None)
        self.gguf_writer.add_vocab_size(N_VOCAB)

    if kind.__name__ == "Mistral3Model":  # a shell of two others
        is_latent = hparams.get("model_type") == "mistral4"
        kind = kind.Mistral4Model if is_latent else kind.Ministral3Model
    without = type(kind.__name__, (kind,), {"set_vocab": set_vocab, "model_arch": kind.model_arch})
    without.no_mtp, without.mtp_only = mode == "", mode == "mtp"
    if kind.__name__ in CORRECTED:
        setattr(without, *CORRECTED[kind.__name__])
    target = folder / "target"
    options["target_model_dir"] = target if target.is_dir() else None
    without(folder, stored_type, path, **options).write()
    if is_mistral:
        (folder / "config.json").unlink()


def baichuan_tensors(self: Any, data: Any, name: str, bid: int | None) -> Any:
    """Yield tensors of Baichuan; llama.cpp's method calls itself without an end."""
    base = import_module("conversion.base")
    kind = import_module("conversion.baichuan").BaichuanModel
    source = kind if "W_pack" in name else base.TextModel
    yield from source.modify_tensors(self, data, name, bid)


def bitnet_weights(self: Any, weight: Any) -> Any:
    """Return rounded weights; a sum of float32 depends on its order."""
    values = weight.float()
    inverse = 1 / values.abs().double().mean().float().clamp(min=1e-5)
    return ((values * inverse).round().clamp(-1, 1) / inverse).type(weight.dtype)


# Methods that replace those of llama.cpp's classes: faults, last bits, and files of tokenizers
CORRECTED: dict[str, tuple[str, Any]] = {
    "BaichuanModel": ("modify_tensors", baichuan_tensors),
    "BitnetModel": ("weight_quant", bitnet_weights),
    "MiniMaxText01Model": ("_get_suppress_tokens", lambda self: None),
}


def media_class(hparams: dict[str, Any], is_mistral: bool) -> Any:
    """Return the class that converts encoders, without four faults of llama.cpp's converter. It
    gives norms of Llama 4 and Granite Speech the names of norms of other models, looks for the
    row of [IMG_BREAK] after it has dropped the text model's tensors, and looks for the layers of
    Qwen3-Omni under another path."""
    registered, llava = import_module("conversion"), import_module("conversion.llava")
    kind = import_module("conversion.pixtral").PixtralModel
    if not is_mistral:
        arch = registered.get_model_architecture(hparams, registered.ModelType.MMPROJ)
        kind = registered.get_model_class(arch, mmproj=True)
    names = import_module("gguf.tensor_mapping")
    known, tensor = names.TensorNameMap.block_mappings_cfg, names.MODEL_TENSOR
    if kind.__name__ == "Llama4VisionModel":
        known.pop(tensor.V_ENC_ATTN_POST_NORM)
    if kind.__name__.startswith("GraniteSpeech"):
        known[tensor.A_ENC_CONV_NORM] = ("encoder.layers.{bid}.conv.batch_norm",)
        known.pop(tensor.A_ENC_CONV_NORM_VAR)
    has_rows = issubclass(kind, llava.LlavaVisionModel)
    sound = import_module("conversion.qwenvl").Qwen25AudioModel
    if not has_rows and not issubclass(kind, sound):
        return kind

    def generate_extra_tensors(self: Any) -> Any:
        zeros = import_module("torch").zeros(1500, self.hparams_audio["hidden_size"])
        yield "audio_tower.embed_positions.weight", zeros

    def filter_tensors(cls: Any, item: Any) -> Any:
        name, make = item
        if has_rows and "embed_tokens" in name:
            return item
        item = name.replace("thinker.visual.", "visual."), make
        return super(without, cls).filter_tensors(item)

    without = type(kind.__name__, (kind,), {"filter_tensors": classmethod(filter_tensors)})
    without.model_arch = kind.model_arch
    if issubclass(kind, sound):  # sines differ in the last bit
        without.generate_extra_tensors = generate_extra_tensors
    return without


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
