"""The notebooks of docs/ run from their first cell to their last; what they claim, they assert."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_limits

matplotlib = pytest.importorskip("matplotlib", reason="needs '.[research]'")
pytest.importorskip("safetensors", reason="needs '.[research]'")

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
LARGEST = 120_000  # bytes, with plots


def cells(name: str) -> list[Any]:
    found = json.loads((FOLDER / f"{name}.ipynb").read_text("utf-8"))["cells"]
    return [cell for cell in found if cell["cell_type"] == "code"]


@pytest.mark.parametrize("name", NAMES)
def test_cells(name: str) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {}
    try:
        with threadpool_limits(1, "blas"):  # threads of several would wait for each other
            for cell in cells(name):
                exec(compile("".join(cell["source"]), name, "exec"), names)
        assert pyplot.get_fignums()
    finally:
        pyplot.close("all")


@pytest.mark.parametrize("name", NAMES)
def test_what_they_show_is_kept(name: str) -> None:
    """By dev/docs/notebooks.py: plots, no errors, no paths of whoever ran it."""
    assert (FOLDER / f"{name}.ipynb").stat().st_size < LARGEST
    shown = [output for cell in cells(name) for output in cell["outputs"]]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert all(cell["execution_count"] for cell in cells(name))
    for output in shown:
        assert output["output_type"] != "error" and output.get("name") != "stderr"
        text = {k: v for k, v in output.get("data", output).items() if k != "image/png"}
        assert "site-packages" not in str(text) and "demo.gguf" not in str(text)


def test_there_are_some() -> None:
    assert len(NAMES) == 3
