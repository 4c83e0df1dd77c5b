"""Launchers, sources and reasons: what needs no OpenCL at all."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.resources import files

import pytest

import ggml_opencl.backend  # noqa: F401  (declares launchers)
from ggml_opencl.kernels import find_types, quantized_types, source
from ggml_opencl.ops import matrix
from ggml_opencl.program import TENSOR, first_error, shape_bytes
from ggml_opencl.table import WG, Launch, table
from ggml_py import ops
from ggml_py.tensor import Tensor
from ggml_py.types import BY_NAME, F16, F32, GGMLType

Q4_K = BY_NAME["q4_K"]


def test_import_is_light() -> None:
    """Listing backends must not load pyopencl."""
    code = "import sys, ggml_opencl, ggml_opencl.backend; sys.exit('pyopencl' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["WG", "TILE", "HIGH"])
def test_sizes_agree_with_the_kernels(name: str) -> None:
    text = source("matrix/tiles", ("f32",))
    (value,) = re.findall(rf"^#define {name} (\d+)", text, re.M)
    assert int(value) == {"WG": WG, "TILE": matrix.TILE, "HIGH": matrix.HIGH}[name]


def test_rows_of_a_group_agree_with_the_kernels() -> None:
    text = source("matrix/columns", ("f32",))
    (lanes,), (beside,) = (
        re.findall(rf"^#define {name} (\d+)", text, re.M) for name in ("LANES", "BESIDE")
    )
    assert WG // int(lanes) * int(beside) == matrix.ROWS


def test_a_part_that_several_name_is_there_once() -> None:
    text = source("fused/rope", ("f32",))
    assert text.count("float2 of_rms_norm(") == text.count("float2 turn_of(") == 1
    assert "PART(" not in text


def test_source_has_only_the_types_in_use() -> None:
    text = source("matrix/columns", ("q4_K", "f32"))
    assert "group_q4_K(" in text
    assert "group_q6_K(" not in text
    assert {"q8_0", "q4_0", "q4_K", "q5_K", "q6_K", "mxfp4", "iq4_xs"} <= quantized_types()


def test_one_column_and_many() -> None:
    a = Tensor(Q4_K, (256, 33))
    (one,) = table.launches(ops.mul_mat(a, Tensor(F32, (256, 1))))
    (many,) = table.launches(ops.mul_mat(a, Tensor(F32, (256, 40))))
    assert (one.kernel, one.groups) == ("mul_mat_columns", (5, 1, 1))
    assert (many.kernel, many.groups) == ("mul_mat_tile", (1, 2, 1))
    assert many.type_names() == ("q4_K", "f32", "f32")


def test_few_tokens_and_many_for_experts() -> None:
    experts = Tensor(Q4_K, (256, 65, 8))

    def launch(n_tokens: int) -> Launch:
        b, ids = Tensor(F32, (256, 1, n_tokens)), Tensor(BY_NAME["i32"], (2, n_tokens))
        (run,) = table.launches(ops.mul_mat_id(experts, b, ids))
        return run

    assert (launch(16).kernel, launch(16).groups) == ("mul_mat_id", (9, 2, 16))
    assert (launch(17).kernel, launch(17).groups) == ("mul_mat_id_tile", (2, 8, 1))


def test_types_are_read_and_made_where_there_is_a_function() -> None:
    cached = {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl"}
    made = cached | {"mxfp4", "nvfp4", "q1_0", "q2_0", "tq1_0", "tq2_0", "pq2_0", "ptq1_0", "q6_0"}
    assert set(find_types("element")) == cached
    assert set(find_types("quantize")) == made


def test_nothing_to_do_is_left_out() -> None:
    dst, ids = Tensor(F16, (8, 4)), Tensor(BY_NAME["i64"], (0,))
    assert table.launches(ops.set_rows(dst, Tensor(F32, (8, 0)), ids)) == []


def test_in_place_windows_copy_nothing() -> None:
    a, b = Tensor(F32, (6, 5)), Tensor(F32, (2, 2))

    def kernels(inplace: bool) -> list[str]:
        node = ops.acc(a, b, a.nb[1], a.nb[2], a.nb[3], 0, inplace)
        return [run.kernel for run in table.launches(node)]

    assert kernels(False) == ["cpy", "add"]
    assert kernels(True) == ["add"]


def test_signals_are_images_with_a_height_of_one() -> None:
    kernel, signal = Tensor(F16, (3, 5, 7)), Tensor(F32, (11, 5, 2))
    (run,) = table.launches(ops.im2col(kernel, signal, 2, 9, 1, 9, 1, 9, False, F16))
    b, rows = run.tensors
    assert (b.ne, b.nb) == ((11, 1, 5, 2), (4, 44, 44, 220))
    assert rows.ne == (15, 6, 1, 2)
    assert run.scalars == (3, 1, 2, 0, 1, 0, 1, 0)  # what is of the height counts for nothing


def test_antialias_widens_only_what_shrinks() -> None:
    a = Tensor(F32, (8, 4))
    (run,) = table.launches(ops.interpolate(a, 2, 12, 1, 1, "bilinear", antialias=True))
    assert run.scalars == (0.25, 3.0, 1.0, 1.0, 0.5, 0, 1, 4.0, 1.0)
    (run,) = table.launches(ops.interpolate(a, 2, 12, 1, 1, "bicubic", align_corners=True))
    assert run.scalars[0] == pytest.approx(1 / 7)
    assert run.scalars[4:] == (0.0, 1, 0, 1.0, 1.0)


def test_only_mask_values_tell_the_masks_apart() -> None:
    a = Tensor(F32, (4, 4))
    (inf,), (zero,) = (table.launches(f(a, 1)) for f in (ops.diag_mask_inf, ops.diag_mask_zero))
    assert (inf.kernel, inf.scalars) == ("diag_mask", (1, float("-inf")))
    assert (zero.kernel, zero.scalars) == ("diag_mask", (1, 0.0))


def test_parts_that_are_not_there_are_no_arguments() -> None:
    a, b, c = (Tensor(F16, (32, 3), name=name) for name in "abc")
    (run,) = table.launches(ops.all_reduce([None, a, None, b, c], receivers=[3]))
    assert run.tensors == (a, b, c, *(c,) * 7)
    assert run.scalars == (3, 0b010)  # of three parts, the second one is only written
    assert (run.groups, run.type_names()) == ((2, 1, 1), ("f16",))


def test_reasons() -> None:
    whole = ops.argsort(Tensor(BY_NAME["i32"], (16,), name="x"), "asc")
    assert "needs a source 0 of f32; got x" in table.why_not(whole)
    unknown = Tensor(GGMLType(99, "q9_9", 256, 100), (256, 4), name="w")
    reason = table.why_not(ops.mul_mat(unknown, Tensor(F32, (256, 1))))
    assert re.search(r"a source 0 of .*q4_K.*; got w\[256, 4, 1, 1\]:q9_9", reason)
    wide = Tensor(F32, (512, 1, 1))
    large = ops.gated_linear_attn(wide, wide, wide, wide, Tensor(F32, (512 * 512, 1)), 1.0)
    assert "states of at most 256 per row; got 512" in table.why_not(large)
    key, query = Tensor(F16, (1024, 1, 2)), Tensor(F32, (1024, 1, 1))
    long = ops.lightning_indexer(query, key, Tensor(F32, (1, 1)), Tensor(F16, (2, 1)))
    assert "keys of at most 512 values" in table.why_not(long)
    turned = ops.permute(Tensor(F16, (4, 64, 2), name="k"), 1, 0, 2, 3)
    blind = ops.flash_attn_ext(Tensor(F32, (64, 1, 2)), turned, turned, None, 1.0)
    assert "needs dense rows" in table.why_not(blind)


def test_tensors_are_passed_as_the_kernels_declare_them() -> None:
    t = Tensor(F32, (3, 4, 5, 6))
    t.offset = 64
    assert TENSOR.unpack(shape_bytes(t)) == (3, 4, 5, 6, 4, 12, 48, 240, 64)
    assert Launch("copy", "cpy", (t,), (0, 1, 1)).is_empty()


def test_macros_have_their_number_of_arguments() -> None:
    """As in C90: NVIDIA's compiler takes the standard at its word."""
    here = files("ggml_opencl.kernels")
    texts = [
        f.read_text("utf-8")
        for part in (here, here / "fused", here / "quants")
        for f in part.iterdir()
        if f.name.endswith(".cl")
    ]
    assert len(texts) > 40
    assert not [
        line
        for text in texts
        for line in text.splitlines()
        if line.startswith("#define") and "..." in line
    ]


def test_first_error() -> None:
    assert first_error("Build failed\n\n x.cl:3: error: no\n more") == "x.cl:3: error: no"
    assert first_error("") == "no log"
