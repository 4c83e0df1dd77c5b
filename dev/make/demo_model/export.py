"""Model <-> GGUF: the file llama.cpp's converter and quantizer would write, byte for byte.

Like them it orders tensors by layer and name, keeps vectors, the router and the convolutions in
F32, and puts every other matrix into the chosen type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import LlamaFileType as FileType
from torch import Tensor

from dev.make.demo_model.model import Attention, Block, Config, DeltaNet, Model, MoE
from dev.make.demo_model.template import TEMPLATE
from dev.make.demo_model.tokenizer import PRE_NAME, Vocabulary

ARCH = "qwen35moe"
FILE_TYPES = {"F32": FileType.ALL_F32, "F16": FileType.MOSTLY_F16, "Q8_0": FileType.MOSTLY_Q8_0}
KEPT_IN_F32 = ("ffn_gate_inp.weight", "ssm_conv1d.weight")


def write(model: Model, vocabulary: Vocabulary, path: Path, kind: str) -> None:
    """Write `model` with its matrices in `kind`: F32, F16 or Q8_0."""
    writer = gguf.GGUFWriter(str(path), ARCH)
    writer.add_name("Shakespeare demo qwen35moe")
    _add_sizes(writer, model.c)
    _add_vocabulary(writer, vocabulary)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(FILE_TYPES[kind])
    arrays = {name: _to_file(name, view) for name, view in views(model)}
    for name in sorted(arrays, key=_file_order):
        x = arrays[name]
        stored = Type[kind] if x.ndim >= 2 and not name.endswith(KEPT_IN_F32) else Type.F32
        writer.add_tensor(name, gguf.quants.quantize(x, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@torch.no_grad()
def load(path: Path) -> Model:
    """Return the torch model with the dequantized weights of a file from `write`."""
    model = Model(Config())
    stored = {t.name: t for t in gguf.GGUFReader(path).tensors}
    for name, view in views(model):
        if name not in stored:
            raise ValueError(f"{path}: no tensor {name}; not a file of this recipe")
        x = gguf.quants.dequantize(stored[name].data, stored[name].tensor_type)
        if x.shape != tuple(view.shape):
            raise ValueError(f"{path}: {name} is {x.shape}, the recipe has {tuple(view.shape)}")
        x = torch.from_numpy(x.astype(np.float32))
        view.copy_(torch.log(-x) if name.endswith("ssm_a") else x)
    return model


def views(model: Model) -> Iterator[tuple[str, Tensor]]:
    """Yield (name in the file, part of a parameter); ssm_a's part has log(-ssm_a)."""
    yield "token_embd.weight", model.embd.weight
    yield "output_norm.weight", model.out_norm.weight
    nextn, n = model.mtp, model.c.n_layer
    for i, block in enumerate([*model.blocks, nextn.block]):
        for name, view in _block(block):
            yield f"blk.{i}.{name}", view
    yield f"blk.{n}.nextn.eh_proj.weight", nextn.eh_proj.weight
    yield f"blk.{n}.nextn.enorm.weight", nextn.enorm.weight
    yield f"blk.{n}.nextn.hnorm.weight", nextn.hnorm.weight
    yield f"blk.{n}.nextn.shared_head_norm.weight", nextn.norm.weight


def _block(block: Block) -> Iterator[tuple[str, Tensor]]:
    yield "attn_norm.weight", block.attn_norm.weight
    yield "post_attention_norm.weight", block.ffn_norm.weight
    mixer = block.mixer
    yield from _attention(mixer) if isinstance(mixer, Attention) else _delta_net(mixer)
    yield from _moe(block.moe)


def _attention(m: Attention) -> Iterator[tuple[str, Tensor]]:
    yield "attn_q.weight", m.q.weight
    yield "attn_k.weight", m.k.weight
    yield "attn_v.weight", m.v.weight
    yield "attn_output.weight", m.out.weight
    yield "attn_q_norm.weight", m.q_norm.weight
    yield "attn_k_norm.weight", m.k_norm.weight


def _delta_net(m: DeltaNet) -> Iterator[tuple[str, Tensor]]:
    yield "attn_qkv.weight", m.qkv.weight
    yield "attn_gate.weight", m.gate.weight
    yield "ssm_alpha.weight", m.alpha.weight
    yield "ssm_beta.weight", m.beta.weight
    yield "ssm_norm.weight", m.norm.weight
    yield "ssm_out.weight", m.out.weight
    yield "ssm_conv1d.weight", m.conv
    yield "ssm_dt.bias", m.dt_bias
    yield "ssm_a", m.A_log


def _moe(m: MoE) -> Iterator[tuple[str, Tensor]]:
    gate, up = m.gate_up.chunk(2, 1)
    shared_gate, shared_up = m.sh_gate_up.weight.chunk(2, 0)
    yield "ffn_gate_inp.weight", m.router.weight
    yield "ffn_gate_exps.weight", gate
    yield "ffn_up_exps.weight", up
    yield "ffn_down_exps.weight", m.down
    yield "ffn_gate_shexp.weight", shared_gate
    yield "ffn_up_shexp.weight", shared_up
    yield "ffn_down_shexp.weight", m.sh_down.weight
    yield "ffn_gate_inp_shexp.weight", m.sh_gate.weight[0]


def _to_file(name: str, view: Tensor) -> np.ndarray:
    x = view.detach()
    return (-x.exp() if name.endswith("ssm_a") else x).contiguous().numpy()


def _file_order(name: str) -> tuple[int, str]:
    layer = re.match(r"blk\.(\d+)\.", name)
    return (int(layer[1]) if layer else -1), name


def _add_sizes(w: gguf.GGUFWriter, c: Config) -> None:
    w.add_context_length(c.n_ctx)
    w.add_embedding_length(c.n_embd)
    w.add_block_count(c.n_layer + 1)
    w.add_nextn_predict_layers(1)
    w.add_feed_forward_length(c.ff_expert)
    w.add_head_count(c.n_head)
    w.add_head_count_kv(c.n_head_kv)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.eps)
    w.add_rope_freq_base(c.rope_base)
    w.add_rope_dimension_count(c.rope_dim)
    w.add_rope_dimension_sections(list(c.rope_sections))
    w.add_expert_count(c.n_expert)
    w.add_expert_used_count(c.n_used)
    w.add_expert_feed_forward_length(c.ff_expert)
    w.add_expert_shared_feed_forward_length(c.ff_shared)
    w.add_ssm_conv_kernel(c.d_conv)
    w.add_ssm_inner_size(c.d_state * c.v_heads)
    w.add_ssm_state_size(c.d_state)
    w.add_ssm_time_step_rank(c.v_heads)
    w.add_ssm_group_count(c.k_heads)
    w.add_full_attention_interval(c.interval)
    w.add_vocab_size(c.n_vocab)


def _add_vocabulary(w: gguf.GGUFWriter, v: Vocabulary) -> None:
    types = [gguf.TokenType.NORMAL] * len(v.tokens)
    types[v.end_of_text] = gguf.TokenType.CONTROL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(PRE_NAME)
    w.add_token_list(v.tokens)
    w.add_token_types(types)
    w.add_token_merges(v.merges)
    w.add_bos_token_id(v.end_of_text)
    w.add_eos_token_id(v.end_of_text)
    w.add_pad_token_id(v.end_of_text)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
