"""dev/record/reference_options.py: llama.cpp's options as its source has them, and the page."""

from __future__ import annotations

from pathlib import Path

from dev.record import reference_options as page
from dev.record.reference_options import REASONS, Declared, declarations, lacking, state

SOURCE = """
common_params_context common_params_parser_init(params) {
    add_opt(common_arg(
        {"-t", "--threads"}, "N",
        string_format("number (default: %d)", params.n),
        [](common_params & params, int value) { params.n = ")"[0]; }
    ).set_env("LLAMA_ARG_THREADS"));
    add_opt(common_arg(
        {"--perf"},
        {"-np", "--no-perf"},
        "timings \\"quoted\\" (",
        [](common_params & params, bool value) { params.perf = '('; }
    ).set_examples({LLAMA_EXAMPLE_COMPLETION, LLAMA_EXAMPLE_CLI}).set_env("LLAMA_ARG_PERF"));
    add_opt(common_arg({"--port"}, "PORT", "x", [](int) {}).set_examples({LLAMA_EXAMPLE_SERVER}));
    add_opt(common_arg({"-p"}, "P", "x", [](int) {}).set_excludes({LLAMA_EXAMPLE_COMPLETION}));
    add_opt(common_arg({"--image"}, "P", "x", [](int) {}).set_examples(mmproj_examples));
    add_opt(common_arg(
        // note: a comment
        {"--last"},
        "x",
        [](common_params &) {}
    ).set_examples({LLAMA_EXAMPLE_COMMON, LLAMA_EXAMPLE_SERVER}));
}
"""


def test_what_the_source_declares() -> None:
    assert list(declarations(SOURCE)) == [
        Declared(("-t", "--threads"), "LLAMA_ARG_THREADS", "N"),
        Declared(("--perf", "-np", "--no-perf"), "LLAMA_ARG_PERF", ""),
        Declared(("--last",), "", ""),
    ]


def test_what_is_lacking() -> None:
    option = Declared(("-t", "--threads", "--no-threads"), "LLAMA_ARG_THREADS", "N")
    here = {"-t": "LLAMA_ARG_T", "--threads": "LLAMA_ARG_T"}
    assert option.name == "--threads"
    assert lacking(option, here) == ["--no-threads", "LLAMA_ARG_THREADS"]
    assert (state(option, here), state(option, {})) == ("in part", "no")
    assert state(option, dict.fromkeys(option.flags, "LLAMA_ARG_THREADS")) == "yes"


def test_the_page_is_up_to_date() -> None:
    document = Path(__file__).parents[2] / "docs" / "llama-completion.md"
    stale = "run: python -m dev.record.reference_options table > docs/llama-completion.md"
    assert document.read_text() == page.table(), stale


def test_reasons_are_of_options_that_there_are() -> None:
    _, options = page.recorded()
    assert len(options) == 154
    assert {*REASONS} <= {option.name for option in options}
    assert page.main([]) == 2
