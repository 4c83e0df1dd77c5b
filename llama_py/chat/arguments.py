"""Tool arguments: schemas that a grammar enforces, and checks of the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any

from ggml_py.errors import GrammarError
from llama_py.chat.formats.schema import tool_parameters
from llama_py.grammar.chosen import constraint_text
from llama_py.grammar.judge import is_available, problem
from llama_py.grammar.places import Part, target, walk_schema
from llama_py.grammar.schema import enforce_schema, format_pointers

if TYPE_CHECKING:
    from llama_py.params import SamplingParams

Tool = dict[str, Any]
_DEFINITION = re.compile(r"#/(\$defs|definitions)/[^/~%]*")


@dataclass(frozen=True)
class Arguments:
    """A schema of arguments, or of a whole response.

    Attributes:
        name: Name of the tool; "" for a response.
        schema: The schema as JSON.
    """

    name: str
    schema: str

    @cached_property
    def _reduced_schema(self) -> tuple[Part, tuple[str, ...]]:
        try:
            found = enforce_schema(self.schema, lenient=True)
        except GrammarError:  # not a schema
            return {"type": "object"}, ("",)
        return json.loads(found.schema), found.left_out

    @property
    def left_out(self) -> tuple[str, ...]:
        """JSON pointers of the assertions that a grammar does not enforce."""
        return self._reduced_schema[1]

    @property
    def grammar_schema(self) -> Part:
        """The schema for a grammar; references name its definitions."""
        return bundle_references(self._reduced_schema[0])

    @property
    def warning(self) -> str:
        """A line about the assertions that a grammar does not enforce; "" if it enforces all."""
        if not self.left_out:
            return ""
        of = f"tool {json.dumps(self.name)}" if self.name else "response_format"
        later = (
            "checked after generation"
            if is_available()
            else "not checked, because jsonschema is not installed"
        )
        return f"{of}: the grammar does not enforce {format_pointers(self.left_out)}; {later}"

    def problem(self, value: str) -> str:
        """Return the first problem of a value, as a line; "" if it meets the schema."""
        return problem(self.schema, value)


def response_arguments(params: SamplingParams) -> Arguments | None:
    """Return the schema of the responses of sampling parameters; None for any text."""
    given = constraint_text(params)
    return Arguments("", given[1]) if given is not None and given[0] == "json_schema" else None


def tool_arguments(tool: Mapping[str, Any]) -> Arguments:
    """Return the arguments of a tool, in the form of the OpenAI API."""
    return Arguments(tool["function"]["name"], json.dumps(tool_parameters(tool)))


def enforceable(tool: Mapping[str, Any]) -> Tool:
    """Return a tool with the schema that a grammar enforces."""
    function = {**tool["function"], "parameters": tool_arguments(tool).grammar_schema}
    return {**tool, "function": function}


def bundle_references(schema: Part) -> Part:
    """Change references to any place of a schema into references to its definitions."""
    parts = [part for _, part in walk_schema(schema) if isinstance(part.get("$ref"), str)]
    refs = {part["$ref"] for part in parts if not _DEFINITION.fullmatch(part["$ref"])}
    if not refs:
        return schema
    known = schema.get("$defs")
    definitions = known if isinstance(known, dict) else {}
    free = (name for name in map("ref{}".format, count()) if name not in definitions)
    names = dict(zip(sorted(refs), free, strict=False))
    targets = {name: target(ref, schema) for ref, name in names.items()}
    for part in parts:
        if part["$ref"] in names:
            part["$ref"] = f"#/$defs/{names[part['$ref']]}"
    for name, one in targets.items():
        inner = {k: v for k, v in one.items() if k != "$defs"} if isinstance(one, dict) else one
        definitions[name] = json.loads(json.dumps(inner))
    return {**schema, "$defs": definitions}
