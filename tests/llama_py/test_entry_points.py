"""Architectures may come from other packages, by an entry point."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from ggml_py.errors import UnknownArchitecture
from llama_py import models
from tests.support.live_models import live, logits, made, model_of

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package of one file for an architecture."""

    def package(arch: str, source: str) -> None:
        (tmp_path / "strange_model.py").write_text(source)
        info = tmp_path / "strange_model-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Name: strange-model\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[llama_py.models]\n{arch} = strange_model\n")
        models._entry_points.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    yield package
    monkeypatch.undo()
    models._entry_points.cache_clear()


def test_a_model_of_another_package(install: Install) -> None:
    install(
        "strange",
        "from llama_py.models.llama import Llama\nclass Strange(Llama):\n    arch = 'strange'\n",
    )
    assert "strange" in models.known_architectures()
    metadata, arrays = made("llama-dense")
    metadata = {key.replace("llama.", "strange.", 1): v for key, v in metadata.items()}
    model = model_of({**metadata, "general.architecture": "strange"}, arrays)
    assert type(model.architecture).__name__ == "Strange" and model.arch == "strange"
    np.testing.assert_array_equal(logits(model), logits(live("llama-dense")))


def test_a_package_without_the_architecture(install: Install) -> None:
    install("odd", "from llama_py.models.llama import Llama\n")
    with pytest.raises(UnknownArchitecture, match=r"strange_model defines no .* arch = 'odd'"):
        models.architecture("odd")


def test_our_own_come_first(install: Install) -> None:
    install("llama", "raise ValueError\n")
    assert models.architecture("llama").arch == "llama"
    assert models.known_architectures().count("llama") == 1
