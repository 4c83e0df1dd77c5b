"""Who answers."""

from __future__ import annotations

from llama_py.serving.answer import Answer
from llama_py.serving.job import Job
from llama_py.serving.slots import Slot, choose_slot
from tests.serving.engines import engine, request


def test_who_has_most_of_a_prompt_answers() -> None:
    ids = [*range(20)]
    free = [Slot(0, used=5), Slot(1, used=9), Slot(2, used=1), Slot(3)]
    assert choose_slot(free, [ids[:4], ids[:9], [7] * 9, []], ids).id == 1
    assert choose_slot(free, [ids[:9], ids[:9], [7] * 9, []], ids).id == 0
    # of what slot 1 has most would be lost, so it is taken over by one that has nothing
    assert choose_slot(free, [[8], [*ids[:9], *[7] * 90], [7] * 9, []], ids).id == 3
    assert choose_slot(free[:3], [[8], [*ids[:9], *[7] * 90], [7] * 9], ids).id == 2


def test_busy_slots_stay_consecutive() -> None:
    """A ubatch has consecutive sequences, so a gap between busy slots costs another ubatch."""
    free = [Slot(0, used=5), Slot(2, used=9), Slot(4, used=1), Slot(5)]
    held: list[list[int]] = [[7], [7], [7], []]
    assert choose_slot(free, held, [1], busy=[1, 3]).id == 2  # fills the gap
    assert choose_slot(free, held, [1]).id == 5
    assert choose_slot(free[2:], held[2:], [1], busy=[3]).id == 4
    assert choose_slot(free, held, [7, 7], busy=[3]).id == 0  # a prompt that begins like a slot's


def test_a_slot_is_kept_for_its_client() -> None:
    free = [Slot(0, used=90, client="a"), Slot(1, used=91, client="b"), Slot(2, used=2, client="b")]
    held: list[list[int]] = [[7], [7], [7]]
    assert choose_slot(free, held, [1], "c", [3], step=100).id == 2
    assert choose_slot(free[:2], held[:2], [1], "b", [3], step=100).id == 1
    assert choose_slot(free[:2], held[:2], [1], "c", [3], step=100).id == 0  # else the oldest
    assert choose_slot(free, held, [1], "b", [0], step=100).id == 1  # its own, beside a busy slot
    assert choose_slot(free, [[7], [7], []], [1], "a", step=100).id == 2  # an empty one


def test_the_scheduler_fills_gaps() -> None:
    """Unless sequences have one cache; graphs of all runs of slots are kept."""
    for unified, expected in ((False, 2), (True, 0)):
        with engine("llama-dense", kv_unified=unified) as made:
            scheduler = made._scheduler
            assert made._ctx.runner.n_graphs >= 10  # runs of 4 slots
            busy, new = (
                Job(i, Answer(request([1, 2]), made.model), lambda event: None) for i in range(2)
            )
            free = [slot for slot in scheduler.slots if slot.id not in (1, 3)]
            scheduler.slots[1].job = scheduler.slots[3].job = busy
            found = scheduler._admission.find_slot(new, free)
            scheduler.slots[1].job = scheduler.slots[3].job = None
            assert found is not None and found.id == expected
