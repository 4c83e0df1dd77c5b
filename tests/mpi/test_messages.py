"""What ranks send each other for a token."""

from __future__ import annotations

import re

from tests.mpi.launching import on_ranks


def test_a_run_is_one_message_and_each_sum_another() -> None:
    """Of two layers: rank 0 sends the run, the embeddings, and its part of four sums; rank 1 its
    parts, and its rows of the head."""
    done = on_ranks(2, "-m", "dev.compare.count_messages", "graph", "llama-dense", "qwen3moe-moe")
    assert done.returncode == 0, done.stderr
    for line in done.stdout.splitlines():
        assert re.search(r": 11 messages, by rank 6 \(\d+ B\), 5 \(\d+ B\)$", line), line
    assert done.stdout.count("\n") == 2


def test_sums_of_a_prompt_leave_in_pieces() -> None:
    """Of 250 tokens two, or three; the logits are the same to the last bit."""
    done = on_ranks(2, "-m", "tests.mpi.failing", "in_pieces")
    assert done.returncode == 0, done.stderr
    one, two, eight = (int(line.split()[1]) for line in done.stdout.splitlines())
    assert (two - one, eight - one) == (1 * 4, 2 * 4)  # of four sums


def test_ctrl_c_comes_after_what_ranks_do_together() -> None:
    done = on_ranks(2, "-m", "tests.mpi.failing", "ctrl_c")
    assert (done.returncode, done.stdout) == (0, "it came\n"), done.stderr


def test_what_others_wait_for_ends_all_if_it_fails_in_a_run() -> None:
    """Not only where it is an order of its own."""
    program = (
        "from ggml_mpi import orders, script, worker\n"
        "from ggml_mpi.world import world\n"
        "if world().rank: worker.serve()\n"
        "else:\n"
        "    world().tell(1, script.Keep(handle=1, orders=[orders.Join(handle=7)]))\n"
        "    world().tell(1, script.Play(handle=1, given=b''))\n"
        "    import numpy as np\n"
        "    world().receive(1, np.zeros(4, np.uint8))\n"
    )
    done = on_ranks(2, "-c", program)
    assert done.returncode != 0 and "rank 1 (" in done.stderr, done.stderr
