"""Capabilities of a template, found by rendering small conversations that record their use.

common/jinja/caps.cpp:caps_get. The values passed to a template record their use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_py.chat.sandbox import Sandbox

MARK = "STRING_MARKER"


@dataclass(frozen=True)
class Caps:
    """string_content, typed_content   contents may be strings, or lists of parts
    system_role        system messages
    tool_calls         tool calls, in any form
    object_arguments   arguments of calls must be dictionaries instead of JSON strings
    parallel_tool_calls  several calls in a message
    as_text            roles (or "calls") that need string contents, unlike other messages
    """

    string_content: bool = True
    typed_content: bool = False
    system_role: bool = True
    tool_calls: bool = True
    object_arguments: bool = False
    parallel_tool_calls: bool = True
    as_text: frozenset[str] = frozenset()


def message_category(message: Mapping[str, Any]) -> str:
    """Return the category of a message that a template may render separately: its role, or
    "calls"."""
    return "calls" if message.get("tool_calls") else str(message["role"])


class _UseRecorder:
    """Value that records its operations."""

    ops: set[str]

    def note(self, what: str = "used") -> None:
        if not hasattr(self, "ops"):
            self.ops = set()
        self.ops.add(what)

    def has(self, *whats: str) -> bool:
        return any(what in getattr(self, "ops", ()) for what in whats)


class TextProbe(_UseRecorder, str):
    def __getitem__(self, index: Any) -> str:
        if isinstance(index, int):
            self.note("array_access")
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[str]:
        """Note array access, unlike llama.cpp: a loop over a text takes it for a list of parts."""
        self.note("array_access")
        raise TypeError("a string is not a list")
        yield ""


class RecordingList(_UseRecorder, list[Any]):
    def __getitem__(self, index: Any) -> Any:
        self.note("array_access")
        return record_use(super().__getitem__(index))

    def __iter__(self) -> Iterator[Any]:
        self.note("array_access")
        return map(record_use, super().__iter__())


class NamedProbe(_UseRecorder, dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return record_use(super().__getitem__(key))

    def get(self, key: str, default: Any = None) -> Any:
        return record_use(super().get(key, default))

    def items(self) -> Any:
        return [(key, record_use(value)) for key, value in super().items()]

    def values(self) -> Any:
        return [record_use(value) for value in super().values()]


def record_use(value: Any) -> Any:
    if isinstance(value, _UseRecorder):
        value.note()
    return value


def record_parts(value: Any) -> Any:
    """Return a JSON value with parts that record their use."""
    if isinstance(value, dict):
        return NamedProbe({key: record_parts(v) for key, v in value.items()})
    if isinstance(value, list):
        return RecordingList(map(record_parts, value))
    return TextProbe(value) if isinstance(value, str) else value


def get_unrecorded(value: Any, *path: Any) -> Any:
    """Return a part of a value without recording it."""
    for key in path:
        kind: Any = list if isinstance(value, list) else dict
        value = kind.__getitem__(value, key)
    return value


class Trial:
    """A conversation rendered by a recording sandbox. `text` is None after an error."""

    def __init__(self, watching: Callable[..., str], messages: list[Any], tools: Any = ()) -> None:
        self.messages, self.tools = record_parts(messages), record_parts(list(tools))
        try:
            self.text: str | None = watching(
                messages=self.messages,
                tools=self.tools,
                bos_token="",
                eos_token="",
                add_generation_prompt=True,
            )
        except Exception:  # a template can raise anything
            self.text = None


def watch(sandbox: Sandbox) -> None:
    """Make the relevant filters and tests record their arguments."""

    def noting(what: str, f: Any) -> Any:
        @wraps(f)
        def noted_call(*args: Any, **kwargs: Any) -> Any:
            for value in args[:2]:  # the first may be Jinja's context
                if isinstance(value, _UseRecorder):
                    value.note(what)
                    break
            return f(*args, **kwargs)

        return noted_call

    def looked_through(f: Any) -> Any:
        return lambda value, *args, **kwargs: f(bare(value), *args, **kwargs)

    filters, tests = sandbox.filters, sandbox.tests
    tests["string"] = noting("test_is_string", tests["string"])
    filters["selectattr"] = noting("selectattr", filters["selectattr"])
    for name in ("tojson", "string"):
        filters[name] = looked_through(filters[name])


def bare(value: Any) -> Any:
    """Return the plain value, and record the use of all its parts."""
    record_use(value)
    if isinstance(value, NamedProbe):
        return {key: bare(get_unrecorded(value, key)) for key in value}
    return (
        [bare(get_unrecorded(value, i)) for i in range(len(value))]
        if isinstance(value, RecordingList)
        else value
    )


USER = {"role": "user", "content": "User message"}
SYSTEM = {"role": "system", "content": "System message"}
TOOL = {
    "name": "tool",
    "type": "function",
    "function": {
        "name": "tool1",
        "description": "Tool description",
        "parameters": {
            "type": "object",
            "properties": {"arg": {"type": "string", "description": "Arg description"}},
            "required": ["arg"],
        },
    },
}


CALL: dict[str, Any] = {"name": "tool1", "arguments": {"arg": "value"}}
CALLED: list[dict[str, Any]] = [
    USER,
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call00001", "type": "function", "function": CALL}],
    },
    {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
    {"role": "assistant", "content": "The tool response was 'tool response'"},
    USER,
]


def detect_caps(watching: Callable[..., str]) -> Caps:
    """Return a template's capabilities; `watching` renders it in a recording sandbox."""
    string, typed = _contents(watching)
    system = get_unrecorded(Trial(watching, [SYSTEM, USER]).messages, 0, "content")
    calls, objects = _calls(watching)
    parallel = _parallel_calls(watching, objects)
    as_text = _text_forms(watching, objects) if typed else frozenset()
    return Caps(string, typed, system.has("used"), calls, objects, parallel, as_text)


def _text_forms(watching: Callable[..., str], objects: bool) -> frozenset[str]:
    """Return the forms of messages that render text parts differently from the same string."""
    call = CALLED[1] if objects else {**CALLED[1], "tool_calls": [_as_text()]}
    called = [CALLED[0], call, *CALLED[2:]]
    found = set()
    for messages, i in (([SYSTEM, USER], 0), (called[:2], 1), (called[:3], 2), (called[:4], 3)):
        before, after = messages[:i], messages[i + 1 :]
        text, parts = (
            Trial(watching, [*before, {**messages[i], "content": content}, *after], [TOOL]).text
            for content in (MARK, [{"type": "text", "text": MARK}])
        )
        if text is not None and MARK in text and text != parts:
            found.add(message_category(messages[i]))
    return frozenset(found)


def _parallel_calls(watching: Callable[..., str], objects: bool) -> bool:
    """Return True if the template reads the second of two calls."""
    two = [_as_text(i) for i in (1, 2)]
    if objects:
        two = [{**call, "function": CALL} for call in two]
    messages = [CALLED[0], {**CALLED[1], "tool_calls": two}, *CALLED[2:]]
    trial = Trial(watching, messages, [TOOL])
    second = get_unrecorded(trial.messages, 1, "tool_calls", 1, "function")
    return trial.text is not None and second.has("used")


def _calls(watching: Callable[..., str]) -> tuple[bool, bool]:
    """Return True if the template supports calls, and True if it reads arguments as
    dictionaries."""
    trial = Trial(watching, CALLED, [TOOL])
    calls = get_unrecorded(trial.messages, 1, "tool_calls")
    argument = get_unrecorded(calls, 0, "function", "arguments", "arg")
    taken = trial.text is not None
    if taken and argument.has("used"):
        return calls.has("used"), calls.has("used")
    messages = [CALLED[0], {**CALLED[1], "tool_calls": [_as_text()]}, *CALLED[2:]]
    texts = Trial(watching, messages, [TOOL])
    used = texts.text is not None and get_unrecorded(texts.messages, 1, "tool_calls").has("used")
    return used and (not taken or calls.has("used")), False


def _as_text(number: int = 1) -> dict[str, Any]:
    """Return a call with arguments as a JSON string."""
    function = {**CALL, "arguments": '{"arg": "value"}'}
    return {"id": f"call0000{number}", "type": "function", "function": function}


def _contents(watching: Callable[..., str]) -> tuple[bool, bool]:
    """Return True if contents may be texts, and True if they may be lists of parts."""
    trial = Trial(watching, [{"role": "user", "content": MARK}])
    content = get_unrecorded(trial.messages, 0, "content")
    as_list = content.has("selectattr", "array_access")
    string = trial.text is not None and not (as_list and MARK not in trial.text)
    if content.has("test_is_string"):
        empty = Trial(watching, [{"role": "user", "content": []}])
        content = get_unrecorded(empty.messages, 0, "content")
        as_list |= empty.text is not None and content.has("selectattr", "array_access")
    return string, as_list
