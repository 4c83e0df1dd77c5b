"""Weights: declarations against the file, everything told at once; placing on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dev.tiny_models import Tiny
from dev.tiny_models._invent import Invented
from ggml_py.backend import Bytes, HostBuffer, aligned_bytes
from ggml_py.backend.null import NullDevice
from ggml_py.errors import HParamsError, WeightsError
from ggml_py.ops import add, mul, mul_mat_id, repeat
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from llama_py.blocks.attention import Projections
from llama_py.gguf.file import TensorInfo
from llama_py.graph.linear import Linear
from llama_py.hparams.layer_shape import LayerShape
from llama_py.model import Model
from llama_py.params.like import LIKE, TRANSFORMERS
from llama_py.weights import Weights
from llama_py.weights.declarations import SMALL
from tests.support.graph_models import declared, file_of, info

FILE = {"a.weight": (4, 3), "a.bias": (3,), "a.scale": (1,), "norm.weight": (4,)}


class RecordingDevice(NullDevice):
    """Remembers what it is asked to prepare; without `can_wrap` bytes must be copied."""

    def __init__(self, can_wrap: bool = True) -> None:
        self.can_wrap = can_wrap
        self.prepared: list[tuple[Tensor, tuple[str, ...]]] = []

    def wrap(self, data: Bytes) -> HostBuffer | None:
        return HostBuffer(data) if self.can_wrap else None

    def alloc(self, size: int) -> HostBuffer:
        return HostBuffer(aligned_bytes(size))

    def prepare_weight(self, weight: Tensor, uses: Any) -> None:
        assert weight.buffer is not None
        self.prepared.append((weight, tuple(uses)))

    def uses(self, name: str) -> list[tuple[str, ...]]:
        return [uses for t, uses in self.prepared if t.name == name]


def loader(shapes: dict[str, tuple[int, ...]]) -> Weights:
    return Weights({name: info(name, ne) for name, ne in shapes.items()}, "m.gguf")


def refusal(w: Weights) -> str:
    with pytest.raises(WeightsError) as caught:
        w.finish()
    message = str(caught.value)
    assert message.startswith("m.gguf: tensors do not fit the model: ")
    assert "\n" not in message
    return message


def test_all_problems_are_told_in_one_error() -> None:
    w = loader(FILE)
    w.tensor("a.weight", 4, 5)
    w.tensor("b.weight", 4)
    w.tensor("c.weight", 4)
    w.optional_tensor("d.weight", 4)
    message = refusal(w)
    assert "2 missing: b.weight, c.weight" in message
    assert "3 unused: a.bias, a.scale, norm.weight" in message
    assert "1 misshapen: tensor 'a.weight' has wrong shape; expected 4, 5, got 4, 3" in message


def test_names_move_no_cursor() -> None:
    assert r"1 unused: \x1b[2J\nx;" in refusal(loader({"\x1b[2J\nx": (1,)})) + ";"


def test_long_lists_are_cut_after_ten() -> None:
    w = loader({f"t{i}": (1,) for i in range(25)})
    for i in range(300):
        w.tensor(f"missing{i}", 1)
    message = refusal(w)
    assert "300 missing: missing0, " in message
    assert "missing9, and 290 more" in message
    assert "25 unused: t0, " in message
    assert len(message) < 600


@pytest.mark.parametrize("ne", [(4, 3), (4, 3, 1), (4, 3, 1, 1)])
def test_ones_at_the_end_of_a_shape_do_not_matter(ne: tuple[int, ...]) -> None:
    w = loader({"a.weight": (4, 3)})
    w.tensor("a.weight", *ne)
    w.finish()


@pytest.mark.parametrize("ne", [(4,), (3, 4), (4, 3, 2), (4, 1, 3)])
def test_other_shapes_do(ne: tuple[int, ...]) -> None:
    w = loader({"a.weight": (4, 3)})
    w.optional_tensor("a.weight", *ne)
    shown = ", ".join(map(str, ne))
    assert f"tensor 'a.weight' has wrong shape; expected {shown}, got 4, 3" in refusal(w)


def test_a_tensor_may_have_one_of_two_shapes() -> None:
    for ne in ((4, 3), (12,)):
        w = loader({"a.weight": ne})
        assert w.tensor("a.weight", 4, 3, other=(12,)).ne[: len(ne)] == ne
        w.finish()


def test_linear_brings_what_comes_with_it() -> None:
    w = loader({**FILE, "a.input_scale": (1,)})
    a = w.linear("a", 4, 3, bias=True)
    w.tensor("norm.weight", 4)
    w.finish()
    assert [t.name for t in (a.weight, a.bias, a.scale) if t] == ["a.weight", "a.bias", "a.scale"]


def test_bias_of_a_model_without_biases_is_unused() -> None:
    w = loader(FILE)
    w.linear("a", 4, 3)
    w.tensor("norm.weight", 4)
    assert "1 unused: a.bias" in refusal(w)


def test_a_bias_may_be_needed() -> None:
    w = loader({"a.weight": (4, 3), "n.weight": (4,)})
    w.linear("a", 4, 3, bias="needed")
    w.norm("n", 4, bias="needed")
    assert "2 missing: a.bias, n.bias" in refusal(w)


UNREAD = {"a.weight": (64, 3), "a.scale": (1,), "a.bias": (3,)}


def unread(kind: str, like: str) -> tuple[Weights, Linear]:
    """A matrix whose scale and bias llama.cpp leaves out of its graph."""
    infos = {name: info(name, ne, kind if ne[1:] else "f32") for name, ne in UNREAD.items()}
    w = Weights(infos, "m.gguf", like)
    made = w.linear("a", 64, 3, bias="unread", scaled=False)
    w.finish()
    return w, made


@pytest.mark.parametrize("like", LIKE)
@pytest.mark.parametrize("kind", ["f32", "q4_0", "nvfp4"])
def test_what_llama_cpp_leaves_out_is_applied_like_transformers(kind: str, like: str) -> None:
    w, made = unread(kind, like)
    applied = {t.name for t in (made.scale, made.bias) if t is not None}
    if like == TRANSFORMERS:
        assert applied == {"a.scale", "a.bias"} and not w.ignored_names
    else:
        assert applied == ({"a.scale"} if kind == "nvfp4" else set())
        assert {*w.ignored_names} == {"a.scale", "a.bias"} - applied
    assert [*w.restored_names] == ["a.scale"] * (kind == "nvfp4")


def test_what_is_ignored_has_its_shape_all_the_same() -> None:
    w = loader({"a.weight": (4, 3), "a.scale": (2,)})
    w.linear("a", 4, 3, scaled=False)
    assert "1 misshapen: tensor 'a.scale' has wrong shape" in refusal(w)


def test_what_llama_cpp_leaves_out_is_not_made_up() -> None:
    made_up = Invented(Tiny(keys={}))
    Weights(made_up, "tiny").linear("a", 4, 3, bias="unread", scaled=False)
    assert list(made_up.keys()) == ["a.weight"]


def test_experts_have_a_scale_each() -> None:
    w = loader({"e.weight": (4, 3, 2), "e.scale": (2,), "e.bias": (3, 2)})
    e = w.experts("e", 4, 3, 2, bias=True)
    w.finish()
    assert e.scale is not None and e.scale.ne[0] == 2
    assert e.bias is not None and e.bias.ne[:2] == (3, 2)


def test_what_is_optional() -> None:
    w = loader({"c": (1,)})
    w.skip("c")
    assert w.optional_linear("a", 4, 3) is None
    assert w.optional_norm("n", 4) is None
    assert w.linear("b", 4, 3).weight.ne == (4, 3, 1, 1)  # a stand-in
    assert "1 missing: b.weight" in refusal(w)


def test_layer_names_weights_as_the_file_does() -> None:
    w = loader(
        {"blk.7.attn_q.weight": (4, 3), "blk.7.ssm_a": (3,), "dec.blk.7.nextn.enorm.weight": (4,)}
    )
    blk = w.layer(7)
    assert (w.il, blk.il) == (-1, 7)
    assert blk.linear("attn_q", 4, 3).weight.name == "blk.7.attn_q.weight"
    assert blk.has("ssm_a") and not w.has("ssm_a")
    assert blk.tensor("ssm_a", 3).name == "blk.7.ssm_a"
    norm = w.layer(7, "dec.").scope("nextn.").norm("enorm", 4).weight
    assert norm is not None and norm.name == "dec.blk.7.nextn.enorm.weight"
    w.finish()


def test_layers_may_be_left_alone() -> None:
    w = loader({"blk.1.a": (4,), "blk.10.a": (4,)})
    w.skip_layers([1])
    assert "1 unused: blk.10.a" in refusal(w)


QKV = {"blk.0.attn_q": 4, "blk.0.attn_k": 2, "blk.0.attn_v": 2}


def qkv(shapes: dict[str, tuple[int, ...]]) -> tuple[Weights, Projections]:
    w = loader(shapes)
    shape = LayerShape(n_head=4, n_head_kv=2, n_embd_head_k=1, n_embd_head_v=1, n_ff=0)
    return w, Projections(w.layer(0), 8, shape)


def test_query_key_value_in_three_matrices() -> None:
    w, found = qkv({f"{k}.weight": (8, n) for k, n in QKV.items()} | {"blk.0.attn_k.bias": (2,)})
    w.finish()
    assert found.joint is None
    assert [part.bias is not None for part in found.parts] == [False, True, False]


def test_query_key_value_in_one_matrix() -> None:
    w, found = qkv({"blk.0.attn_qkv.weight": (8, 8), "blk.0.attn_qkv.bias": (8,)})
    w.finish()
    assert found.joint is not None and found.joint.bias is not None
    old = {f"{k}.bias": (n,) for k, n in QKV.items()}
    w, found = qkv({"blk.0.attn_qkv.weight": (8, 8), **old})
    w.finish()
    assert found.joint is not None and found.joint.bias is None
    assert [b.name for b in found.old_biases if b is not None] == list(old)


def test_a_vocabulary_alone() -> None:
    w = Weights({}, "m.gguf")
    w.tensor("a", 16)
    with pytest.raises(WeightsError, match=r"^m.gguf: file has a vocabulary but no tensors;"):
        w.finish()


def test_query_key_value_missing() -> None:
    w, _ = qkv({"blk.0.attn_out.weight": (8, 8)})
    assert "3 missing: blk.0.attn_q.weight, blk.0.attn_k.weight" in refusal(w)


@pytest.mark.parametrize("n", [SMALL // 4, SMALL // 4 + 1])
def test_bytes_are_the_files_own_where_the_device_can_read_them(n: int) -> None:
    """Of small tensors it has its own."""
    data = np.arange(n, dtype=np.float32).view(np.uint8)
    infos = {"a": TensorInfo("a", info("a", (n,)).type, (n, 1, 1, 1), 0, 4 * n, data)}
    for can_wrap in (True, False):
        w = Weights(infos, "m.gguf")
        t = w.tensor("a", n)
        w.finish()
        device = RecordingDevice(can_wrap)
        w.place(lambda *_, device=device: device, {})
        assert isinstance(t.buffer, HostBuffer)
        assert np.shares_memory(t.buffer.data, data) == (can_wrap and data.size > SMALL)
        assert bytes(t.buffer.read(t.offset, 4 * n)) == data.tobytes()
        assert w.sizes == {device.name: 4 * n}
        w.release()
        assert t.buffer is None


@pytest.mark.parametrize("keeps", [True, False])
def test_the_file_is_let_go_of_what_a_device_has_copied(
    keeps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it was loaded, or when it was given another layout."""
    gone: list[str] = []
    made = HostBuffer(np.zeros(64, np.uint8))
    if not keeps:
        repack = lambda self, weight, uses: setattr(weight, "buffer", made)  # noqa: E731
        monkeypatch.setattr(RecordingDevice, "prepare_weight", repack)
    monkeypatch.setattr(TensorInfo, "let_go", lambda self: gone.append(self.name))
    for can_wrap in (True, False):
        w = loader({"a": (SMALL,)})
        w.tensor("a", SMALL)
        w.finish()
        device = RecordingDevice(can_wrap)
        gone.clear()
        w.place(lambda *_, device=device: device, {})
        assert set(gone) == (set() if can_wrap and keeps else {"a"})


def test_what_came_along_is_let_go_of_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading one tensor brings back pages of those beside it, which were let go of before."""
    gone: list[str] = []
    monkeypatch.setattr(TensorInfo, "let_go", lambda self: gone.append(self.name))
    w = loader({"a": (SMALL,), "b": (SMALL,)})
    for name in ("a", "b"):
        w.tensor(name, SMALL)
    w.finish()
    device = RecordingDevice(can_wrap=False)
    w.place(lambda *_: device, {})
    assert gone == ["a", "b", "a", "b"]


def test_device_is_told_how_weights_are_used_and_progress_is_made() -> None:
    w = loader({"a.weight": (4, 3, 2), "a.scale": (2,), "b": (5,)})
    a, b = w.experts("a", 4, 3, 2), w.tensor("b", 5)
    assert w.tensor("b", 5) is b  # however often it is declared
    w.finish()
    assert a.scale is not None
    ids, x, y = Tensor(I32, (1, 2)), Tensor(F32, (4, 1, 2)), Tensor(F32, (5,))
    readers = {
        id(a.weight): [mul_mat_id(a.weight, x, ids)],
        id(a.scale): [repeat(a.scale, Tensor(F32, (2, 2)))],
        id(b): [mul(y, b), add(y, b), mul(y, b)],
    }
    steps: list[tuple[int, int, str]] = []
    device = RecordingDevice()
    w.place(lambda *_: device, readers, lambda *step: steps.append(step))
    assert device.uses("a.weight") == [("MUL_MAT_ID",)]
    assert device.uses("a.scale") == [("REPEAT",)]
    assert device.uses("b") == [("MUL", "ADD")]
    assert steps == [(96, 124, "a.weight"), (104, 124, "a.scale"), (124, 124, "b")]
    assert (w.n_params, w.n_bytes) == (31, 124)


def load(name: str, change: dict[str, Any] | None = None, **options: Any) -> Any:
    metadata, shapes = declared(name)
    for key, ne in (change or {}).items():
        shapes.pop(key, None)
        if ne is not None:
            shapes[key] = ne
    device = RecordingDevice()
    return Model(file_of(metadata, shapes), device, **options), device


def test_tied_head_is_a_second_tensor_on_the_same_bytes() -> None:
    model, device = load("llama-dense", {"output.weight": None})
    head, embd = model.architecture.output.weight, model.architecture.token_embd
    assert head is not embd
    assert (head.name, head.ne, head.buffer) == ("token_embd.weight", embd.ne, embd.buffer)
    assert device.uses("token_embd.weight") == [("MUL_MAT", "GET_ROWS")]


@pytest.mark.parametrize("for_both", [True, False])
def test_a_tied_head_is_there_once_in_a_layout_that_serves_all_or_as_it_is(
    monkeypatch: pytest.MonkeyPatch, for_both: bool
) -> None:
    def lay_out(self: RecordingDevice, weight: Tensor, uses: Any) -> None:
        if "MUL_MAT" in uses and (for_both or len(uses) == 1) and not weight.layout:
            weight.buffer, weight.layout = HostBuffer(aligned_bytes(weight.nbytes + 64)), "panels"

    monkeypatch.setattr(RecordingDevice, "prepare_weight", lay_out)
    model, _ = load("llama-dense", {"output.weight": None})
    head, embd = model.architecture.output.weight, model.architecture.token_embd
    assert embd.buffer is head.buffer
    assert head.layout == embd.layout == ("panels" if for_both else "")


def test_all_that_are_tied_have_one_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def lay_out(self: RecordingDevice, weight: Tensor, uses: Any) -> None:
        weight.buffer, weight.layout = HostBuffer(aligned_bytes(weight.nbytes)), "panels"
        made.append(weight.name)

    monkeypatch.setattr(RecordingDevice, "prepare_weight", lay_out)
    w = loader({"a": (64, 512)})
    first, *others = w.tensor("a", 64, 512), w.tied_tensor("a"), w.tied_tensor("a")
    w.finish()
    device = RecordingDevice()
    w.place(lambda *_: device, {})
    assert made == ["a"]
    assert all(t.buffer is first.buffer and t.layout == "panels" for t in others)


def test_head_has_a_scale_in_one_type_only() -> None:
    shapes = {"output.weight": (64, 8), "output.scale": (1,)}
    for kind, scaled in (("nvfp4", True), ("f32", False)):
        infos = {name: info(name, ne, kind if ne[1:] else "f32") for name, ne in shapes.items()}
        w = Weights(infos, "m.gguf")
        head = w.output(64, 8)
        assert (head.scale is not None) == scaled
        if scaled:
            w.finish()
        else:
            assert "1 unused: output.scale" in refusal(w)


def test_head_of_its_own() -> None:
    model, device = load("qwen2-dense")
    assert model.architecture.output.weight.name == "output.weight"
    assert device.uses("output.weight") == [("MUL_MAT",)]
    assert device.uses("token_embd.weight") == [("GET_ROWS",)]


def test_nothing_is_placed_when_tensors_do_not_fit() -> None:
    metadata, shapes = declared("qwen35moe-moe")
    shapes |= {"stray": (1,), "blk.0.ssm_a": (3,)}
    del shapes["blk.1.attn_q_norm.weight"]
    device = RecordingDevice()
    with pytest.raises(WeightsError) as caught:
        Model(file_of(metadata, shapes), device)
    message = str(caught.value)
    assert "1 missing: blk.1.attn_q_norm.weight; 1 unused: stray; 1 misshapen" in message
    assert "tensor 'blk.0.ssm_a' has wrong shape; expected 4, got 3" in message
    assert device.prepared == []


@pytest.mark.parametrize("key", ["embedding_length", "feed_forward_length", "vocab_size"])
def test_sizes_that_lie_are_told_by_the_tensors(key: str) -> None:
    metadata, shapes = declared("llama-dense")
    metadata[f"llama.{key}"] = 2**32 - 1
    del metadata["tokenizer.ggml.tokens"]
    with pytest.raises(WeightsError, match="has wrong shape; expected"):
        Model(file_of(metadata, shapes), RecordingDevice())


def test_layers_that_are_not_there_are_told() -> None:
    metadata, shapes = declared("llama-dense")
    metadata["llama.block_count"] = 512
    with pytest.raises(WeightsError, match=r"4590 missing: blk\.2\.attn_norm\.weight, "):
        Model(file_of(metadata, shapes), RecordingDevice())
    metadata["llama.block_count"] = 2**31
    with pytest.raises(
        HParamsError, match=r"llama\.block_count must be from 1 to 512, got 2147483648"
    ):
        Model(file_of(metadata, shapes), RecordingDevice())


def test_nextn_layers_are_loaded_when_asked_for() -> None:
    without, _ = load("qwen35moe-mtp")
    assert not without.architecture.load_mtp
    model, device = load("qwen35moe-mtp", load_mtp=True)
    (layer,) = model.architecture.drafts
    assert layer.eh_proj.weight.ne == (128, 64, 1, 1)
    assert layer.head is None
    assert device.uses("blk.2.nextn.eh_proj.weight") == [("MUL_MAT",)]
    assert model.n_params > without.n_params
