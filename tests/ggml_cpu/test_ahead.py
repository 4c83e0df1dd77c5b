"""What products fetch ahead: each line once."""

import numpy as np

from ggml_cpu.blocks import ahead
from ggml_cpu.blocks.ahead import LINE, LINES, PAGES, fetcher, in_turn

SIZE = LINE * LINES * PAGES


def test_some_pages_become_the_next_ones_line_for_line():
    lines = np.arange(5 * SIZE, 6 * SIZE, LINE)
    found = [in_turn(int(at)) for at in lines]
    assert sorted(found) == list(lines + SIZE)
    pages = [at // (LINE * LINES) for at in found]
    assert all(len(set(pages[i : i + PAGES])) == PAGES for i in range(0, len(pages), PAGES))


def test_what_lies_between_lines_counts_as_the_line():
    assert in_turn(7 * SIZE + 3 * LINE + 5) == in_turn(7 * SIZE + 3 * LINE)


def test_few_columns_are_left_to_prefetchers_that_do_well(monkeypatch):
    monkeypatch.setattr(ahead, "ALONE", 2)
    assert fetcher(2, 4096, 4) is ahead._skip
    assert fetcher(4, 4096, 4) is not ahead._skip
    monkeypatch.setattr(ahead, "ALONE", 0)
    assert fetcher(1, 4096, 4) is not ahead._skip
