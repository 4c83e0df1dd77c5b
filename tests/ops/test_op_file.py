"""Files of op cases: what is written of a graph is read again, and bad lines are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from ggml_py import ops
from ggml_py.errors import GGMLError
from ggml_py.graph import Graph
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I32
from ggml_ref.backend import RefDevice
from llama_py_tools.graph import main as graph_main
from llama_py_tools.test_backend_ops import main
from llama_py_tools.test_backend_ops.op_file import lines, numbers, read_cases
from llama_py_tools.test_backend_ops.run import Status, evaluate

ADD = "2 0 4 3 1 1 0 2 0 4 3 1 1 4 16 48 48 0 4 1 1 1 4 16 16 16"
UNARY = numbers()["OP"].index("UNARY")


def some_graph() -> Graph:
    graph = Graph()
    x = Tensor(F32, (8, 6, 2))
    chosen = ops.view_2d(Tensor(I32, (9, 6)), 3, 6, 36, 4)
    for t in (
        ops.silu(ops.permute(x, 0, 2, 1, 3)),
        ops.mul_mat_id(Tensor(F32, (8, 5, 4)), Tensor(F32, (8, 1, 6)), chosen),
        ops.swiglu_split(x, Tensor(F32, (8, 6, 2))),
        ops.acc(x, Tensor(F32, (3, 2)), *x.nb[1:], 8, inplace=True),
        ops.set_rows(Tensor(F32, (8, 40)), Tensor(F32, (8, 30)), Tensor(I32, (30,))),
        ops.silu(ops.permute(x, 0, 2, 1, 3)),
    ):
        graph.build_forward_expand(t)
    return graph


def test_what_is_written_is_read(tmp_path: Path) -> None:
    file = tmp_path / "ops.txt"
    written = list(lines([some_graph()]))
    file.write_text("\n".join(written) + "\n\n")
    cases = read_cases(file)
    assert [c.op for c in cases] == ["SILU", "MUL_MAT_ID", "SWIGLU", "ACC", "SET_ROWS"]
    assert "nb[4,32,192,384]" not in str(cases[0]) and "f32[8,2,6,1]nb[" in str(cases[0])
    again = Graph()
    for case in cases:
        again.build_forward_expand(case.graph()[0].nodes[-1])
    assert [w.split()[:-1] for w in lines([again])] == [w.split()[:-1] for w in written]
    device = RefDevice()
    assert {evaluate(c, device, device).status for c in cases} == {Status.OK}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("2 0 4", "is truncated"),
        ("two 0 4 3 1 1", "invalid literal"),
        ("999 " + ADD[2:], "999 must be 0 to 100"),
        ("0 " + ADD[2:], "op 0 (NONE) is a view or unknown"),
        ("37 " + ADD[2:], "op 37 (VIEW) is a view or unknown"),
        ("2 77" + ADD[3:], "unknown tensor type 77"),
        ("2 2" + ADD[3:], "must have rows of whole blocks"),
        (ADD.replace("0 2 0", "0 11 0"), "11 must be 0 to 10"),
        ("2 0 4 -3 1 1 0 0", "-3 must be"),
        (
            f"{UNARY} 0 4 3 1 1 1 99 1 0 4 3 1 1 4 16 48 48",
            "the first parameter of UNARY must be 0 to 21, got 99",
        ),
        (f"2 0 {1 << 40} {1 << 40} 1 1 0 0", "must have rows of whole blocks"),
        ("2 0 4 3 1 1 1 5000000000 0", "must be"),
    ],
)
def test_bad_lines_are_refused(line: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "ops.txt"
    file.write_text(f"{ADD} sum\n{line}\n")
    with pytest.raises(GGMLError, match=r"ops\.txt: line 2: ") as e:
        read_cases(file)
    assert why in str(e.value)


def test_the_numbers_are_ggmls() -> None:
    pytest.importorskip("llama_cpp")
    from llama_py_tools.test_backend_ops.judges.libggml import Ggml

    ggml = Ggml.load()
    functions = {"OP": "ggml_op_name", "UNARY": "ggml_unary_op_name", "GLU": "ggml_glu_op_name"}
    for kind, function in functions.items():
        assert numbers()[kind] == ggml._names(function)


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "ops.txt"
    assert graph_main(["dump", "--tokens", "1,2,3", "--format", "ops", "-o", str(file)]) == 0
    assert main(["-b", "ref", "--test-file", str(file), "-o", "RMS_NORM,GET_ROWS"]) == 0
    out = capsys.readouterr().out
    assert "RMS_NORM(name=norm-0,type=f32,ne=[256,3,1,1],op_params=[0:" in out
    assert main(["--test-file", str(tmp_path / "none.txt")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'none.txt'}: No such file or directory\n"
