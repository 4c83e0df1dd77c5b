"""Trial of a grammar by llguidance, within limits of time, memory and stack."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from llama_py.support import child

T = TypeVar("T")

STACK = 256 << 20  # bytes, mostly untouched: llguidance follows references by recursion
SECONDS = 20
MEMORY = 2 << 30
SMALL = 4 << 10  # characters of a grammar that cannot take long ...
FEW = 3  # ... with at most this number of simultaneous expressions

# Limits for matching texts.
LIMITS: dict[str, Any] = {
    "step_max_items": 500_000,
    "max_lexer_states": 50_000,
    "verbose_errors": False,
}

_CHILD = """
import sys
sys.path[:] = sys.argv[1:]
try:
    import resource
    resource.setrlimit(resource.RLIMIT_AS, ({memory}, {memory}))
except (ImportError, ValueError, OSError):
    pass
import threading
from llguidance import LLMatcher, LLParserLimits
form = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
def run():
    limits = LLParserLimits(**{limits})
    sys.stdout.buffer.write(b"=" + LLMatcher.validate_grammar(form, limits=limits).encode())
    sys.stdout.flush()
threading.stack_size({stack})
thread = threading.Thread(target=run)
thread.start()
thread.join()
"""


def trial(form: str) -> str:
    """Return the error of a grammar in llguidance's form; "" if it is valid.

    A grammar that may take long is checked in a separate process with a time limit.
    """
    alone = sum(form.count(sign) for sign in ("pattern", "format", "&", "~"))
    if len(form) > SMALL or alone > FEW:
        return _run_child(form)
    from llguidance import LLMatcher

    return roomy(lambda: str(LLMatcher.validate_grammar(form, limits=limits())))


def limits() -> Any:
    from llguidance import LLParserLimits

    return LLParserLimits(**LIMITS)


def _run_child(form: str) -> str:
    code = _CHILD.format(memory=MEMORY, stack=STACK, limits=LIMITS)
    data = form.encode("utf-8", "surrogatepass")
    try:
        found = child.run(["-c", code], data, lambda output: output.read(), SECONDS)
    except TimeoutError:
        return f"preparing it takes more than {SECONDS} s; simplify it"
    if not found:
        return "preparing it takes too much memory; simplify it"
    return found.decode("utf-8", "replace")[1:]


def roomy(run: Callable[[], T]) -> T:
    """Run a function with a large stack and return its result."""
    found: list[T] = []
    errors: list[BaseException] = []

    def call() -> None:
        try:
            found.append(run())
        except BaseException as e:
            errors.append(e)

    before = threading.stack_size(STACK if sys.maxsize > 2**32 else 0)
    try:
        thread = threading.Thread(target=call, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    thread.join()
    if errors:
        raise errors[0]
    return found[0]
