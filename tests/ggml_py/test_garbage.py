"""When Python looks for garbage."""

import gc

import pytest

from ggml_py.machine.garbage import collected_later


@pytest.fixture(autouse=True)
def _as_before():
    before = gc.isenabled()
    yield
    gc.enable() if before else gc.disable()


def test_nobody_looks_meanwhile_and_afterwards_as_before():
    gc.enable()
    with collected_later():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError), collected_later():
        raise ValueError
    assert gc.isenabled()


def test_it_stays_off_for_who_had_it_off():
    gc.disable()
    with collected_later(), collected_later():
        pass
    assert not gc.isenabled()


def test_a_function_may_be_so_every_time():
    gc.enable()
    seen = collected_later()(gc.isenabled)
    assert [seen(), seen()] == [False, False]
    assert gc.isenabled()
