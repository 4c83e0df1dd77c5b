"""Run of a loaded model: responses on stdout, and a report on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from ggml_py.machine.building import clock
from llama_py.params import GenerateParams, SamplingParams
from llama_py.params.option import Params, option
from llama_py.params.texts import on_off_auto
from llama_py_tools.command.escapes import ENCODING, unescape
from llama_py_tools.command.options import read
from llama_py_tools.command.progress import Progress
from llama_py_tools.command.streams import in_colour
from llama_py_tools.models import session

if TYPE_CHECKING:
    from llama_py import Context, Model, Piece, Sampler
    from llama_py.batch import UBatch
    from llama_py.decoding.prefix_cache import PrefixMatch
    from llama_py.decoding.sequences import Sequences
    from llama_py.graph.result import GraphResult


YELLOW, PLAIN = "\x1b[33m", "\x1b[0m"  # colors of prompts, like in llama.cpp


class CompletionParams(Params):
    """Options of the text to continue, and its display."""

    group = "prompt"

    prompt: str | None = option(
        None, "-p --prompt", "prompt to continue, or first message of a chat", metavar="TEXT"
    )
    file: str = option("", "-f --file", "file with the prompt (-: stdin)", metavar="FILE")
    binary_file: str = option(
        "", "-bf --binary-file", "file with the prompt, including a final newline", metavar="FILE"
    )
    fim_prefix: str | None = option(
        None,
        "--fim-prefix",
        "infill: text before the gap; --prompt is the start of the inserted text",
        metavar="TEXT",
    )
    fim_suffix: str | None = option(
        None, "--fim-suffix", "infill: text after the gap", metavar="TEXT"
    )
    spm_infill: bool = option(
        False,
        "--spm-infill",
        "infill: use the order suffix, prefix, middle, instead of prefix, suffix, middle",
    )
    verbose_prompt: bool = option(
        False, "--verbose-prompt", "print the tokens of the prompt before the run"
    )
    color: str = option(
        "auto",
        "-co --color",
        "color the prompt (auto: on a terminal, unless NO_COLOR is set)",
        choices=("on", "off", "auto"),
        parse=on_off_auto,
    )
    print_token_count: int = option(
        -1,
        "-ptc --print-token-count",
        "tokens between messages about the used context (-1: no messages)",
    )
    perf: bool = option(True, "--perf", "print times, rates and memory at the end", off="--no-perf")
    display_prompt: bool = option(
        True, "--display-prompt", "print the prompt before the response", off="--no-display-prompt"
    )
    escape: bool = option(
        True, "-e --escape", r"process the escapes \n, \t, \\ and \x41 in texts", off="--no-escape"
    )
    warmup: bool = option(
        True,
        "--warmup",
        "run a few tokens first, so that rates exclude the first use of memory and kernels",
        off="--no-warmup",
    )

    @property
    def is_infill(self) -> bool:
        """True if a gap is filled, instead of a text continued."""
        return self.fim_prefix is not None or self.fim_suffix is not None


class Summary:
    """Timings of a run, printed on stderr at the end, also after Ctrl-C."""

    def __init__(self, load_seconds: float, model: str) -> None:
        self.load_seconds, self.model = load_seconds, model
        self.answers: list[Piece] = []  # the latest piece of each response
        self.told: list[PrefixMatch] = []  # reused tokens of each prompt
        self.states = ""  # description of their stored states
        self.pending: tuple[int, float] | None = None  # prompt tokens, and their start time
        self.drafting: Sequences | None = None
        self.wanted = True
        self.ctx: Context | None = None
        self.full = ""  # why a response ended at the end of the context

    def __enter__(self) -> None:
        """Enter without an action."""

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.wanted and (kind is None or kind is KeyboardInterrupt):
            session.tell(self.text("interrupted" if kind else ""))

    def text(self, reason: str = "") -> str:
        """Return two lines, and one per draft method. `reason`: of the end, if not the model's."""
        parts = []
        if self.answers:
            parts = [self._prompt(), self._describe_generation()]
        if self.pending is not None:
            n, start = self.pending
            parts.append(f"prompt of {n} tokens interrupted after {clock() - start:.2f} s")
        reason = (
            reason
            or self.full
            or (self.answers[-1].finish_reason if self.answers else "")
            or "end of input"
        )
        drafts = f"\n{self.drafting.text()}" if self.drafting is not None else ""
        if self.ctx is not None and self.ctx.checker is not None:
            drafts += f"\n{self.ctx.checker.text()}"
        stats = None if self.ctx is None else self.ctx.model.expert_stats
        drafts += "" if stats is None else f"\n{stats}"
        first = [f"load {self.load_seconds:.2f} s", self.model, *filter(None, [self.states])]
        return f"\n{' | '.join(first)}\n{' | '.join([*parts, f'stop: {reason}'])}{drafts}"

    def _prompt(self) -> str:
        n = sum(p.prompt_tokens for p in self.answers)
        seconds = sum(p.prompt_seconds for p in self.answers)
        n_reused = sum(told.n_reused for told in self.told)
        again = [told for told in self.told if told.n_reused < told.n_same]
        why = f"; {again[-1].reason}" if again else ""  # some tokens were computed again
        reused = f" ({n_reused} reused{why})" if n_reused or again else ""
        return f"prompt {n} tokens{reused}, {_rate(n, seconds)}"

    def _describe_generation(self) -> str:
        n = sum(p.gen_tokens for p in self.answers)
        counted = sum(max(p.gen_tokens - 1, 0) for p in self.answers)  # without first tokens
        rate = _rate(counted, sum(p.gen_seconds for p in self.answers)) if counted else ""
        return ", ".join(filter(None, [f"generated {n} tokens", rate]))


def _rate(n: int, seconds: float) -> str:
    return f"{n / seconds if seconds else 0.0:.2f} t/s"


def _needs_nextn(p: GenerateParams) -> bool:
    if not p.drafts:  # the usual case: avoid the imports
        return False
    from llama_py.decoding.drafting.needs import needs_nextn

    return needs_nextn(p)


def _n_planes(p: GenerateParams) -> int:
    if not p.drafts:
        return 0
    from llama_py.decoding.drafting.needs import n_planes

    return n_planes(p)


def _drafting(ctx: Context, p: GenerateParams) -> Sequences | None:
    if not p.drafts:
        return None
    from llama_py.decoding.sequences import Sequences
    from llama_py.decoding.speculator import drafting_options

    return Sequences.for_context(ctx, drafting_options(p))


class GenerationRun:
    """A loaded model, its context and sampler, and the output of its text.

    params  parameters of responses, the sampler included
    """

    def __init__(self, args: argparse.Namespace, text: CompletionParams) -> None:
        session.loading()
        start = clock()
        self.text = text
        self._line_open = False
        self._held = 0  # tokens of the context in the last report
        p, sampling = read(args, GenerateParams), read(args, SamplingParams)
        self.model: Model = session.open_model(args, load_mtp=_needs_nextn(p))
        self.ctx: Context = session.open_context(args, self.model, n_rs_seq=_n_planes(p))
        self.warmup = text.warmup
        self.sampler = self._make_sampler(sampling, text.escape)
        self.params = replace(p, sampler=self.sampler)
        if text.escape:
            self.params = replace(self.params, stop=tuple(s for s in map(unescape, p.stop) if s))
        drafting = _drafting(self.ctx, p)
        about = describe(self.model, self.ctx)
        if self.sampler.is_random:
            about += f" | seed {self.sampler.seed}"
        self.summary = Summary(clock() - start, about)
        self.summary.drafting, self.summary.wanted = drafting, text.perf
        self.summary.ctx = self.ctx

    def _make_sampler(self, params: SamplingParams, escaped: bool) -> Sampler:
        from llama_py.sampler import Sampler

        if escaped:
            breakers = tuple(map(unescape, params.dry_sequence_breakers))
            params = replace(params, dry_sequence_breakers=breakers)
        return Sampler(params, self.ctx.n_vocab, self.model.tokenizer)

    def get_ready(self, n_tokens: int | None) -> None:
        """Compile the kernels for a prompt of n_tokens (None: any length) and its response, then
        warm up."""
        from llama_py.context.warmup import compile_all_kernels, compile_kernels, warm_up

        drafting = self.summary.drafting
        contexts = drafting.contexts if drafting is not None else [self.ctx]
        for ctx in contexts:
            if n_tokens is None:
                compile_all_kernels(ctx)
            else:
                compile_kernels(ctx, n_tokens, 1 + drafting.n_max if drafting is not None else 1)
        if self.warmup:
            warm_up(self.ctx, self.params.context_shift)

    def write(self, text: str) -> None:
        if text:
            session.write(text)
            self._line_open = not text.endswith("\n")

    def end_line(self) -> None:
        if self._line_open:
            self.write("\n")

    def echo(self, ids: Sequence[int]) -> None:
        """Show a prompt's tokens as llama-completion does."""
        tokenizer = self.model.tokenizer
        tokens = (id for id in ids if id >= 0)  # negative ids are images
        data = b"".join(tokenizer.token_to_piece(id, self.params.special) for id in tokens)
        self.write(self._color(data.decode(*ENCODING)))

    def _color(self, text: str) -> str:
        wanted = self.text.color
        if wanted == "off" or (wanted == "auto" and not in_colour(sys.stdout)):
            return text
        return f"{YELLOW}{text}{PLAIN}"

    def tell_tokens(self, ids: Sequence[int]) -> None:
        """Print the number of tokens of a prompt, and the text of each token."""
        session.tell(f"number of tokens in prompt = {len(ids)}")
        for id in (id for id in ids if id >= 0):
            text = self.model.tokenizer.token_to_piece(id, True).decode(errors="replace")
            session.tell(f"{id:6d} -> {text!r}")

    def answer(self, ids: Sequence[int], echo: bool = False) -> None:
        """Continue with the tokens and write text as it is generated."""
        from llama_py import stream

        self.show(stream(self.ctx, ids, **vars(self.params)), len(ids), ids if echo else ())

    def note_reuse(self, told: PrefixMatch | None) -> None:
        """Note how much of a prompt was reused."""
        if told is not None:
            self.summary.told.append(told)

    def show(self, pieces: Iterator[Piece], n_tokens: int, echo: Sequence[int] = ()) -> None:
        """Write the text of pieces as it is generated, after an input of `n_tokens`. If `echo` is
        not empty, write these prompt tokens first."""
        self.summary.pending = n_tokens, clock()
        show_prompt = partial(self.echo, echo) if echo else None
        self.ctx.on_graph = progress = PromptProgress(n_tokens, show_prompt)
        try:
            for piece in pieces:
                self._take(piece)
                self.summary.full = self._full(piece)
        finally:
            progress.close()
            from llama_py.decoding.prefix_cache import PrefixCache

            cache = PrefixCache.for_context(self.ctx)
            if len(cache.budget):
                self.summary.states = str(cache)

    def _full(self, piece: Piece) -> str:
        if piece.finish_reason != "length" or piece.gen_tokens == self.params.max_tokens:
            return ""
        return f"the context of {self.ctx.cparams.n_ctx_seq} tokens is full (use a larger -c N)"

    def _take(self, piece: Piece) -> None:
        if self.summary.pending is not None:  # first piece: the prompt is processed
            self.summary.pending, self.ctx.on_graph = None, None
            self.summary.answers.append(piece)
        self.summary.answers[-1] = piece
        self.write(piece.text)
        if piece.error:
            self.end_line()
            session.log.warning("the response does not satisfy its JSON schema: %s", piece.error)
        if self.text.print_token_count > 0:
            self._tell_count(self.text.print_token_count)

    def _tell_count(self, step: int) -> None:
        held = self.ctx.memory.seq_pos_max(self.params.seq_id) + 1
        if held // step != self._held // step:
            session.tell(f"\n{held} of {self.ctx.cparams.n_ctx_seq} tokens of the context are used")
        self._held = held


class PromptProgress:
    """Counts the tokens of a prompt as its graphs are run; echoes it before the last one."""

    def __init__(self, n_tokens: int, before_last: Callable[[], None] | None = None) -> None:
        self.n_tokens = n_tokens
        self.before_last = before_last
        self.done = 0
        self.progress = Progress("prompt", after=1.0)
        self.close = self.progress.close

    def __call__(self, res: GraphResult, ubatch: UBatch) -> None:
        self.progress(self.done, self.n_tokens + 1)
        self.done += ubatch.n_tokens
        if self.done >= self.n_tokens:
            self.close()
            if self.before_last is not None:  # last, because the bar would overwrite the text
                self.before_last()


def describe(model: Model, ctx: Context) -> str:
    """Return `<architecture>, 4 layers on cpu, 7.1 MiB | context 1024, 0.5 MiB | compute 3.2
    MiB`."""
    use = ctx.memory_breakdown()

    def mib(what: str) -> str:
        return f"{sum(sizes[what] for sizes in use.values()) / 2**20:.2f} MiB"

    return (
        f"{model.arch}, {model.hparams.n_layer} layers on {','.join(use)}, {mib('model')}"
        f" | context {ctx.n_ctx}, {mib('context')} | compute {mib('compute')}"
    )
