"""Chat templates: messages to the text a model was trained to continue.

A template is a program out of a file nobody has read, so it runs in Jinja's sandbox, with bounds on
what it may take (llama_py.chat_sandbox), and any error in it is a ModelError. Names and filters are
those that Hugging Face gives to templates.
"""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from ggml_py.errors import ModelError
from llama_py.gguf_metadata import printable

if TYPE_CHECKING:
    from jinja2 import Template

    from llama_py.chat_sandbox import BoundedSandbox

_MOST_SAID = 1000  # characters of an error
_FILE_NAME = "<template>"  # what Jinja calls a template made from a string


class ChatTemplate:
    """A Jinja chat template. `bos` and `eos` are the texts of these tokens."""

    def __init__(self, source: str, bos: str = "", eos: str = "") -> None:
        self.source, self.bos, self.eos = source, bos, eos

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """The prompt for `messages` ({"role": ..., "content": ...}).

        `extra` are more variables for the template, such as `tools` or `enable_thinking`. Raises
        ModelError, with the template's line, for whatever goes wrong in the template.
        """
        variables = {
            "messages": [dict(message) for message in messages],
            "add_generation_prompt": add_generation_prompt,
            "bos_token": self.bos,
            "eos_token": self.eos,
            "tools": None,
            **extra,
        }
        try:
            self._sandbox.start()
            return self._template.render(variables)
        except Exception as error:  # a template can raise anything
            why = printable(str(error)[:_MOST_SAID])
            raise ModelError(f"chat template, {_place(error)}: {why}") from error

    @cached_property
    def _sandbox(self) -> BoundedSandbox:
        from llama_py.chat_sandbox import BoundedSandbox

        sandbox = BoundedSandbox(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        sandbox.add_filter("tojson", _to_json)
        sandbox.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now}
        return sandbox

    @cached_property
    def _template(self) -> Template:
        return self._sandbox.from_string(self.source)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Unlike Jinja's own, leaves `<` and non-ASCII letters as they are."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _refuse(message: str) -> NoReturn:
    from jinja2 import TemplateError

    raise TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.datetime.now().strftime(format)


def _place(error: Exception) -> str:
    """`line 3`: where in the template, from the syntax error or the innermost of its frames."""
    line = getattr(error, "lineno", None)
    if line is None:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == _FILE_NAME]
        line = lines[-1] if lines else None
    return f"line {line}" if line is not None else type(error).__name__
