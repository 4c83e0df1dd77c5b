"""Who answers."""

from __future__ import annotations

from llama_py.serving.slots import Slot, choose_slot


def test_who_has_most_of_a_prompt_answers() -> None:
    ids = [*range(20)]
    free = [Slot(0, used=5), Slot(1, used=9), Slot(2, used=1), Slot(3)]
    assert choose_slot(free, [ids[:4], ids[:9], [7] * 9, []], ids).id == 1
    assert choose_slot(free, [ids[:9], ids[:9], [7] * 9, []], ids).id == 0
    # of what slot 1 has most would be lost, so it is taken over by one that has nothing
    assert choose_slot(free, [[8], [*ids[:9], *[7] * 90], [7] * 9, []], ids).id == 3
    assert choose_slot(free[:3], [[8], [*ids[:9], *[7] * 90], [7] * 9], ids).id == 2
