"""Answers by grammar on the command line, and the examples of docs/structured-output.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.support.commands import refused, run

DOCS = Path(__file__).parents[2] / "docs" / "structured-output.md"
QUICK = ("-dev", "ref", "-c", "256", "--no-display-prompt")


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        (("--regex", "[A-Z][a-z]{2,5} (and|or) [a-z]+!"), r"[A-Z][a-z]{2,5} (and|or) [a-z]+!"),
        (("--grammar", 'root ::= "yes" | "no"'), "yes|no"),
        (("--lark", 'start: "yes" | "no"'), "yes|no"),
        (("-j", '{"enum": ["a", 1]}', "--spec-type", "draft-mtp"), '"a"|1'),
    ],
)
def test_answers(options: tuple[str, ...], takes: str) -> None:
    done = run("llama-py-cli", *QUICK, *options, "-n", "40", "-s", "1", "-p", "ROMEO:")
    assert re.fullmatch(takes, done.stdout.rstrip("\n")), done
    assert "stop: eos" in done.stderr


@pytest.mark.parametrize("how", [("-st",), ()])
def test_an_answer_that_no_grammar_enforces_is_checked(how: tuple[str, ...]) -> None:
    schema = '{"const": "a", "not": {"maxLength": 8}}'
    done = run("llama-py-cli", *QUICK, *how, "-j", schema, "-s", "1", "-p", "Speak!")
    assert json.loads(done.stdout) == "a"
    assert (
        "the response does not satisfy its JSON schema: $: 'a' should not be valid" in done.stderr
    )


def test_files_and_what_is_wrong(tmp_path: Path) -> None:
    schema = tmp_path / "a.json"
    schema.write_text('{"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 2}')
    done = run("llama-py-cli", *QUICK, "-jf", str(schema), "-st", "-p", "Speak!", "-s", "1")
    assert json.loads(done.stdout) == [None, None]
    schema.write_text('{"type": "foo"}')
    said = refused(run("llama-py-cli", "-m", "none.gguf", "-jf", str(schema)))
    assert said == "JSON schema: Invalid type: foo"  # before the model is looked for
    said = refused(run("llama-py-cli", "--grammar", "root ::= (", "-p", "x"))
    assert said == "grammar, line 1, column 11: expected ), at the end of the line"
    assert "nowhere.gbnf" in refused(run("llama-py-cli", "--grammar-file", "nowhere.gbnf"))
    said = refused(run("llama-py-cli", "--regex", "a", "-j", "{}"))
    assert said.startswith("-j and regex cannot be combined, because")


def test_the_page() -> None:
    """Each example is run, and says what the page says."""
    text = DOCS.read_text("utf-8")
    examples = re.findall(r"^\$ (llama-py-cli .*)\n((?:[^`$].*\n)*)", text, re.MULTILINE)
    assert len(examples) >= 4
    for command, said in examples:
        words = re.findall(r"'([^']*)'|\"([^\"]*)\"|(\S+)", command)
        done = run(*(a or b or c for a, b, c in words))
        assert (done.stdout if done.returncode == 0 else done.stderr).strip() == said.strip()
