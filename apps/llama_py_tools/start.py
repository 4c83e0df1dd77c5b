"""Entry point of console scripts; other imports are delayed, so that Ctrl-C ends a command quietly
while its modules are being loaded."""

from __future__ import annotations


class Start:
    """A console script: runs a command of `commands.COMMANDS` as a process.

    Args:
        word: The command's word; "" for `llama-py`, whose first argument is the word.
    """

    def __init__(self, word: str = "") -> None:
        self.word = word

    def __call__(self) -> int:
        """Run the command and return its exit code."""
        try:
            return self._finish_output()
        except KeyboardInterrupt:
            return 130
        except OSError as e:  # errors of output before a command begins: help, completion
            from llama_py_tools.command.streams import drop_stdout, reader_left

            drop_stdout()
            if not reader_left(e):
                import sys

                print(f"error: {e.strerror or e}", file=sys.stderr)
            return 1

    def _finish_output(self) -> int:
        """Return the command's exit code when all that it printed is written."""
        import gc
        import sys

        from llama_py_tools.command.ranks import join_ranks
        from llama_py_tools.commands import COMMANDS, LAUNCHER, OUTER

        given = sys.argv[1:]
        words = [self.word, *given] if self.word else given
        known = OUTER if self.word in OUTER else COMMANDS
        command = known.get(words[0], LAUNCHER) if words else LAUNCHER
        try:
            if (code := join_ranks(command.ranks == "serve", command.plans(words[1:]))) is not None:
                return code
            gc.disable()  # imports make little garbage
            main = (command if self.word else LAUNCHER).load().main
            gc.enable()
            return int(main() or 0)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()


main = Start()
cli = Start("run")
debug = Start("debug")
gguf = Start("gguf")
graph = Start("graph")
bench = Start("bench")
imatrix = Start("imatrix")
embedding = Start("embedding")
perplexity = Start("perplexity")
cvector_generator = Start("cvector-generator")
lm_eval = Start("lm-eval")
test_backend_ops = Start("test-backend-ops")
