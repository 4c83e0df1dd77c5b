"""tests/quick.txt names tests that exist, and `-m quick` selects them."""

from __future__ import annotations

from dev.torture.planted import FAULTS, planted_in
from tests.support.commands import ROOT
from tests.support.golden_models import runs_of
from tests.support.quick import GOLDEN, TESTS, quick_set


def test_files_of_the_list_exist() -> None:
    assert [path for path in quick_set().paths if not path.is_file()] == []


def test_models_of_the_list_have_recorded_nodes() -> None:
    recorded = {name for name, run in runs_of("nodes-", nodes=True) if run == "nodes-fa-on"}
    assert quick_set().models <= recorded


def test_a_model_selects_one_node_list_and_one_row_of_logits() -> None:
    quick, model = quick_set(), "llama-dense"
    for name, run in GOLDEN.items():
        assert quick.has_test(TESTS / name, f"{model}-{run}")
        assert not quick.has_test(TESTS / name, f"{model}-{run}-7")
        assert not quick.has_test(TESTS / name, model)
        assert not quick.has_test(TESTS / name, f"no-such-{run}")


def test_faults_can_be_planted() -> None:
    """Each one changes its file, in 20 rooms or more."""
    for fault in FAULTS:
        text = (ROOT / fault.path).read_text(encoding="utf-8")
        assert planted_in(text, fault) != text
    assert len({fault.room for fault in FAULTS}) >= 20
