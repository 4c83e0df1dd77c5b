"""--help prints the common options, --help all every option once, and each help works alone."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from dev.docs.option_table import parsers, table
from dev.docs.voice import PATTERNS
from llama_py.params import AnswerParams, ContextParams, ModelParams
from llama_py.params.option import Option, get_options
from llama_py_server import command as server
from llama_py_tools.command.options import OptionParser, main_flags, rank
from llama_py_tools.commands import COMMANDS
from llama_py_tools.generate import cli

PARSERS = {p.prog: p for c in COMMANDS.values() for p in parsers(c.load().parser())}
OPTIONS = {
    f"{kind.__name__}.{f.name}": o
    for kind, f, o in [
        *(one for p in PARSERS.values() for one in p.added),
        *((k, *one) for k in (AnswerParams, ContextParams, ModelParams) for one in get_options(k)),
    ]
}
TITLES = re.findall(r"^## (.+)$", table(), re.M)
LIMIT = 35
RELATIVE = re.compile(r"\b(its|the same|of it|and then)\b|^(and|then) ")  # needs another row


def shown(text: str) -> list[str]:
    """The options in a help text, as they are printed."""
    return re.findall(r"^  (-[^\s,]+(?:, -[^\s,]+)*)", text, re.M)


@pytest.mark.parametrize("prog", PARSERS)
def test_help_is_short(prog: str) -> None:
    flags = shown(PARSERS[prog].format_help())
    assert len(flags) <= LIMIT
    assert len(set(flags)) == len(flags) and flags[0] == "-h, --help, --usage"


@pytest.mark.parametrize("parser", [cli.parser(), server.parser()], ids=lambda p: p.prog)
def test_commands_that_people_use_first(parser: OptionParser) -> None:
    text = parser.format_help()
    assert 25 <= len(shown(text)) <= LIMIT
    examples = text.partition("examples:\n")[2].partition("\n\n")[0].splitlines()
    assert len(examples) == 3 and all(parser.prog in line for line in examples)
    assert f"--help all lists all {len(parser.added)} options" in text
    assert "LLAMA_ARG_" not in text
    assert max(map(len, examples)) <= 100


@pytest.mark.parametrize("prog", PARSERS)
def test_all_options_are_listed_once(prog: str) -> None:
    parser = PARSERS[prog]
    flags = shown(parser.format_all_help())
    assert len(set(flags)) == len(flags)
    declared = {", ".join(o.flags) for _, _, o in parser.added if o.flags[0].startswith("-")}
    declared |= {", ".join(o.off) for _, _, o in parser.added if o.off}
    general = {"-h, --help, --usage", "--version", "--completion", "--completion-bash"}
    assert {*flags} == declared | general


@pytest.mark.parametrize("prog", PARSERS)
def test_groups_are_those_of_the_page(prog: str) -> None:
    titles = re.findall(r"^([A-Za-z][A-Za-z ]+):$", PARSERS[prog].format_all_help(), re.M)
    groups = [t for t in titles if t not in ("positional arguments", "options", "examples")]
    places = [TITLES.index(g[0].upper() + g[1:]) for g in groups if "subcommands" not in g]
    assert places == sorted(places) and places
    assert all(rank(a) <= rank(b) for a, b in pairwise(groups))


def test_help_all(capsys: pytest.CaptureFixture[str]) -> None:
    for words, text in (
        (["--help"], cli.parser().format_help()),
        (["-h", "-c", "5"], cli.parser().format_help()),
        (["--help", "all"], cli.parser().format_all_help()),
        (["--usage=all"], cli.parser().format_all_help()),
    ):
        with pytest.raises(SystemExit) as ended:
            cli.main(words)
        assert (ended.value.code, capsys.readouterr().out) == (0, text)
    with pytest.raises(SystemExit) as ended:
        cli.main(["--help", "everything"])
    assert ended.value.code == 2


def faults(text: str) -> list[str]:
    """Return the rules that a help text breaks, each by a name."""
    prose = re.sub(r"\bnone(?=[:),])", "", text)  # a value of options
    found = [rule for rule, pattern in PATTERNS.items() if pattern.search(prose)]
    main = text.partition("; ")[0]  # the short help ends at the first semicolon
    checks = {
        "start": text[0] in " (",
        "end": text.removesuffix("...").endswith((".", ";", ":")),
        "needs another row": RELATIVE.search(text) is not None,
        "parentheses": main.count("(") != main.count(")"),
    }
    return [*found, *(name for name, is_broken in checks.items() if is_broken)]


def test_each_help_works_alone() -> None:
    assert len(OPTIONS) > 400
    assert {name: rules for name, o in OPTIONS.items() if (rules := faults(o.help))} == {}


def test_main_flags() -> None:
    def main(*flags: str) -> list[str]:
        return main_flags(Option(flags, "", "", None, str, "N"))

    assert main("-hf", "-hfr", "--hf-repo", "--repo") == ["-hf", "--hf-repo"]
    assert main("--temp", "--temperature") == ["--temp"]
    assert main("-pg") == ["-pg"]
