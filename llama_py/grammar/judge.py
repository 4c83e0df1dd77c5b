"""Check of a JSON value by a schema, with the jsonschema package.

A schema with patterns is checked in another process, which can be ended: Python's `re` may need
exponential time. The file is also that process's program, so it imports no other of this package.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from importlib.util import find_spec
from typing import Any

SECONDS = 10
MAX_REFERENCES = 20_000  # maximum followed references for one value
MAX_SHOWN = 300  # characters
UNCHECKED = "not checked: "


def is_available() -> bool:
    """Return True if the jsonschema package is installed."""
    return find_spec("jsonschema") is not None


def problem(schema: str, value: str) -> str:
    """Return the first problem of a value, as a line; "" if it meets the schema.

    Args:
        schema: The schema as JSON.
        value: The value as JSON, which may be cut or malformed.
    """
    if not is_available():
        return ""
    if '"pattern' not in schema:
        return _problem(schema, value)
    from llama_py.support import child

    given = json.dumps([schema, value]).encode()
    try:
        found = child.run([__file__], given, lambda output: output.read(), SECONDS)
    except TimeoutError:
        return f"{UNCHECKED}the check takes more than {SECONDS} s"
    return f"{UNCHECKED}the process failed" if found is None else found.decode("utf-8")


def _problem(schema: str, value: str) -> str:
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(key for key, n in Counter(key for key, _ in pairs).items() if n > 1)
        return dict(pairs)

    try:
        found = json.loads(value, object_pairs_hook=members)
    except (ValueError, RecursionError) as e:
        return f"not JSON: {e}"[:MAX_SHOWN]
    if repeated:
        return f"an object has the key {repeated[0]!r} more than once"[:MAX_SHOWN]
    try:
        error = next(iter(_validator(json.loads(schema)).iter_errors(found)), None)
    except Exception as e:  # a malformed schema, or a reference to another document
        return f"{UNCHECKED}{type(e).__name__}: {e}".partition("\n")[0][:MAX_SHOWN]
    if error is None:
        return ""
    return f"{error.json_path}: {error.message}"[:MAX_SHOWN].replace("\n", " ")


def _validator(schema: Any) -> Any:
    """Make a validator that reads no other documents and follows a bounded number of references."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend, validator_for
    from referencing import Registry

    kind = validator_for(schema, default=Draft202012Validator)
    follow, n_left = kind.VALIDATORS["$ref"], MAX_REFERENCES

    def follow_limited(*args: Any) -> Any:
        nonlocal n_left
        n_left -= 1
        if n_left < 0:
            raise RecursionError(f"more than {MAX_REFERENCES} references")
        return follow(*args)

    return extend(kind, {"$ref": follow_limited})(schema, registry=Registry())


if __name__ == "__main__":
    sys.path[:] = sys.argv[1:]
    sys.stdout.buffer.write(_problem(*json.load(sys.stdin.buffer)).encode("utf-8", "replace"))
