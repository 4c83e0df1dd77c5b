"""llama-py-cli --prompt-cache: the next run starts from the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from llama_py_tools.generate import cli

TEXT = "ROMEO: I am a king's death, and what then, my lord?"
HOW = ["-c", "256", "--temp", "0", "-n", "3"]


def run(capsys: pytest.CaptureFixture[str], *args: str, prompt: str = TEXT) -> tuple[str, str]:
    """The text, and what is said of the prompt."""
    assert cli.main([*HOW, "-p", prompt, *args]) == 0
    shown = capsys.readouterr()
    return shown.out, shown.err.splitlines()[-1].split(" | ")[0]


def test_the_next_run_starts_from_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "prompt.bin")
    plain = run(capsys)[0]
    assert run(capsys, "--prompt-cache", file)[0] == plain
    written = Path(file).read_bytes()
    text, told = run(capsys, "--prompt-cache", file)
    assert text == plain and told.startswith("prompt 1 tokens (")
    assert Path(file).read_bytes() == written  # there was nothing new
    longer = plain.removesuffix("\n") + " And more."
    text, told = run(capsys, "--prompt-cache", file, "--prompt-cache-ro", prompt=longer)
    assert text.startswith(longer) and " reused), " in told
    assert Path(file).read_bytes() == written
    run(capsys, "--prompt-cache", file, "--prompt-cache-all")
    assert len(Path(file).read_bytes()) > len(written)
    more, told = run(capsys, "--prompt-cache", file, prompt=longer)
    assert more == text and [p.name for p in tmp_path.iterdir()] == ["prompt.bin"]


def test_files_that_do_not_fit_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompt.bin"
    run(capsys, "--prompt-cache", str(file))
    file.write_bytes(file.read_bytes()[:-1])
    assert cli.main([*HOW, "-p", TEXT, "--prompt-cache", str(file)]) == 1
    why = "the state is damaged or truncated: its checksum does not match; save it again"
    assert capsys.readouterr().err == f"error: {file}: {why}\n"
    with pytest.raises(SystemExit):
        cli.main([*HOW, "-cnv", "--prompt-cache", str(file)])
    assert "--prompt-cache does not support conversations" in capsys.readouterr().err
