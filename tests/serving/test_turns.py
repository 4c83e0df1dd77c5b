"""Who is computed together: prompts by themselves, where they would change the answers' graph."""

from __future__ import annotations

import pytest

from llama_py.batch import UBatch
from llama_py.graph.result import GraphResult
from tests.serving.engines import WAIT, Asked, alone, ask, engine, request, stall
from tests.support.live_models import tokens

NAME = "qwen35-dense"


@pytest.mark.parametrize("unified", [False, True])
def test_graphs_of_answers_are_the_same_while_others_read(unified: bool) -> None:
    """Of a model with states each ubatch is a piece of one prompt, or has a token of each."""
    seen: list[tuple[tuple[int, ...], int, int]] = []

    def see(_: GraphResult, ubatch: UBatch) -> None:
        seqs = tuple(s for (s,) in ubatch.seq_id[:: ubatch.n_seq_tokens])
        seen.append((seqs, ubatch.n_seq_tokens, sum(ubatch.output)))

    with engine(NAME, kv_unified=unified, checkpoint_min_step=0, n_piece=256) as made:
        go_on = stall(made)
        made._ctx.on_graph = see
        lengths = [5, 60, 9, 30]
        asked = [ask(made, request(tokens(n, n), 12)) for n in lengths]
        go_on.set()
        for one in asked:
            one.end()
        assert all(len(seqs) == 1 or n == n_outputs / len(seqs) == 1 for seqs, n, n_outputs in seen)
        # but for the first, who came alone, they began together
        assert max(len(seqs) for seqs, _, _ in seen) >= 3
        read = [n for seqs, n, n_outputs in seen if not n_outputs]
        assert sorted(read) in ([8, 29, 59], [4, 8, 29, 59])
        assert made._ctx.runner.n_reused >= 8


def test_where_a_graph_may_have_any_of_both_all_are_one_batch() -> None:
    seen: list[list[int]] = []
    with engine("llama-dense", kv_unified=True) as made:
        go_on = stall(made, 3)
        made._ctx.on_graph = lambda _, ubatch: seen.append([s for (s,) in ubatch.seq_id])
        first = ask(made, request([1], 40))
        first.until(1)
        second = ask(made, request(tokens(33, 1), 2))
        go_on.set()
        assert [one.end().finish_reason for one in (first, second)] == ["length"] * 2
        assert any(sorted(map(seqs.count, {*seqs})) == [1, 8] for seqs in seen)


@pytest.mark.parametrize("name", ["llama-dense", "mamba-dense", NAME])
def test_answers_that_another_one_separated_are_one_ubatch_again(name: str) -> None:
    """Its slot was between theirs: without a move, each step would read the weights twice."""
    seen: list[tuple[int, ...]] = []
    with engine(name, kv_unified=False) as made:
        go_on = stall(made, 3)
        made._ctx.on_graph = lambda _, ubatch: seen.append(tuple(s for (s,) in ubatch.seq_id))
        asked = [ask(made, request(tokens(5, s), n)) for s, n in enumerate([60, 8, 60])]
        go_on.set()
        found = [one.end() and one.tokens for one in asked]
    assert found == [alone(name, tokens(5, s), n) for s, n in enumerate([60, 8, 60])]
    assert max(seen.count((0, 2)), seen.count((2, 0))) >= 40


def test_a_prompt_is_read_at_once_beside_answers() -> None:
    with engine(NAME, checkpoint_min_step=0, n_piece=256) as made:
        first, went_on = Asked(), list[int]()
        go_on = stall(made, 3)
        first.handle = made.submit(request(tokens(5), 60), first)
        first.until(1)
        long = request(tokens(200, 1), 2)
        handle = made.submit(long, lambda _: went_on.append(len(first.tokens)))
        go_on.set()
        assert handle.wait(WAIT) and first.end().finish_reason == "length"
        assert went_on[-2] - went_on[0] <= 1  # placed, read, first token: no step between


def test_graphs_of_prompts_do_not_push_out_those_of_answers() -> None:
    with engine(NAME) as made:
        runner = made._ctx.runner
        ask(made, request([1], 3)).end()
        n = runner.n_graphs
        assert n >= 12
        of_one = [one for one in runner.graphs if one[0].params.ubatch.n_tokens == 1]
        for size in range(2, n + 5):
            ask(made, request(tokens(size, size), 1, cache_prompt=False)).end()
        assert all(any(one[0] is other[0] for other in runner.graphs) for one in of_one)
        assert len(runner.graphs) <= 2 * n
