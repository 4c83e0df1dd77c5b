"""Tools, reasoning and JSON in chat: requests, grammars and parsers of responses.

form = build_format(model.chat_template, messages, tools=tools)
form.prompt                        # text
form.constraint(model.tokenizer)   # None, or an argument for a Sampler
parser = form.parser()
    deltas = parser.feed(text)         # in pieces; then
    deltas += parser.rest()
    parser.answer                      # sum of the deltas

One expression per family of templates (`formats`) defines both the allowed text and its
meaning. chat.cpp:common_chat_templates_apply_jinja.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import TYPE_CHECKING, Any

from ggml_py._moved import former_names
from ggml_py.errors import ModelError
from llama_py.chat.answer import ChatAnswer, ToolCall
from llama_py.chat.arguments import Arguments, enforceable, tool_arguments
from llama_py.chat.formats.analysis import find_marks
from llama_py.chat.formats.form import AnswerForm, AnswerRequest
from llama_py.chat.formats.generic import MARKS as GENERIC
from llama_py.chat.formats.generic import describe_tools
from llama_py.chat.formats.known import find_form_builder
from llama_py.chat.formats.marks import Marks, build_marks_form
from llama_py.chat.messages import complete_message, content_text, is_of_calls, whole_tool
from llama_py.chat.peg.derive import flat, likeliest
from llama_py.chat.peg.lark import iterate_nodes, write_lark
from llama_py.chat.peg.nodes import Schema, optional, seq
from llama_py.chat.peg.values import of_schema
from llama_py.chat.reasoning_formats import REASONING_FORMATS
from llama_py.chat.stream import AnswerDelta, AnswerParser, new_id
from llama_py.chat.thinking import Tags, detect_thinking
from llama_py.grammar import Grammar, compile_grammar
from llama_py.grammar.closed import has_free_keys
from llama_py.grammar.vocabulary import vocabulary
from llama_py.params.choosers import Thinking
from llama_py.sampler.after_thoughts import AfterThoughts
from llama_py.sampler.constraint import Constraint
from llama_py.sampler.grammar import ByGrammar
from llama_py.sampler.triggers import Scan, TriggeredConstraint, Triggers
from llama_py.support.warn_once import warn_once

if TYPE_CHECKING:
    from llama_py.chat.template import ChatTemplate
    from llama_py.tokenizer import Tokenizer

CHOICES = ("auto", "none", "required")
MOST_THOUGHTS = 8192  # tokens of reasoning before a required call, if the response has no limit


@dataclass(frozen=True)
class ChatFormat:
    """Request and parser of one response.

    prompt      the text of the whole prompt
    form        the response's form
    asked       its requirements
    tags        the template's tags around reasoning, or None
    arguments   schemas of callable tools;  response  schema of the whole response
    """

    prompt: str
    form: AnswerForm
    asked: AnswerRequest
    tags: Tags | None = None
    arguments: tuple[Arguments, ...] = ()
    response: Arguments | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Lines about assertions of schemas that no grammar enforces."""
        given = (*self.arguments, *((self.response,) if self.response else ()))
        return tuple(one.warning for one in given if one.warning)

    def argument_problem(self, call: ToolCall) -> str:
        """Return why a call's arguments do not meet the tool's schema; "" if they do.

        Arguments that a grammar enforces are not checked, unless it may repeat their keys.
        """
        found = next((one for one in self.arguments if one.name == call.name), None)
        enforced = {} if found is None or found.left_out else found.grammar_schema
        if found is None or (enforced in self._schemas and not has_free_keys(enforced)):
            return ""
        return found.problem(call.arguments)

    @cached_property
    def _schemas(self) -> list[object]:
        """The schemas of JSON parts in the response."""
        return [one.schema for one in iterate_nodes(self.form.root) if isinstance(one, Schema)]

    @property
    def generation_prompt(self) -> str:
        """The end of the prompt that belongs to the response, such as a reasoning tag."""
        return self.form.prompt

    @property
    def lazy(self) -> bool:
        """True if the constraint applies only after the start of a tool call."""
        return self.form.lazy

    @property
    def _is_json(self) -> bool:
        """Return True if the answer is JSON and no call."""
        return self.asked.is_json and not self.asked.tools

    @property
    def triggers(self) -> Triggers | None:
        """Texts that begin a call, after which a constraint applies; None if it always applies."""
        form, (start, ends) = self.form, self.form.thinking
        if not form.lazy or self._is_json:
            return None
        return Triggers(form.words, form.patterns, start, ends, form.prompt)

    def call_scan(self) -> Callable[[bytes], bool] | None:
        """Return a function that receives a response in pieces and returns True from the start of a
        call; None if the constraint always applies."""
        return None if self.triggers is None else Scan(self.triggers).add_text

    @property
    def preserved_tokens(self) -> tuple[str, ...]:
        """Texts that must be visible, even if they are control tokens."""
        return self.form.preserved

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the response, in addition to the model's end tokens."""
        return self.form.stops

    def list_shown_tokens(self, tokenizer: Tokenizer) -> tuple[int, ...]:
        """Return the control tokens in `preserved_tokens` and their texts."""
        ids = {id for text in self.form.preserved for id in tokenizer.tokenize(text, False)}
        return tuple(id for id in sorted(ids) if tokenizer.is_control(id))

    @cached_property
    def thinking(self) -> Thinking | None:
        """Start and end of the response's reasoning for `parse`, or None.

        Its ends include texts that end it for `parse`, such as the beginning of a call.
        """
        tags, asked = self.tags, self.asked
        if tags is None:
            if not self.form.thinking[1]:
                return None
            tags = Tags(*self.form.thinking)
        found = detect_thinking(tags, self.prompt, asked.thinking and asked.said is None)
        ends = dict.fromkeys((*tags.ends, *map(str.strip, self.form.thinking[1]), *self.form.words))
        found = found._replace(ends=tuple(ends))
        if asked.said is not None:
            thinks = asked.said[1] is None
            return found._replace(inside=thinks, answer=tags.answer if thinks else "")
        if asked.tools:
            found = found._replace(answer="", after=tags.turn)
        return self._read_thinking(found) if asked.reasoning else found

    def _read_thinking(self, found: Thinking) -> Thinking:
        """Return reasoning and content as `parse` separates them."""
        said = "" if self.asked.tools else "7"  # any content, including JSON

        def fits(text: str, thought: str) -> bool:
            answer = self.parse(text + said)
            content = answer.content if said else answer.content.strip()
            return content == said and answer.reasoning.strip().endswith(thought)

        marks = (found.answer, f" {found.answer}", "")
        marked = next((mark for mark in marks if fits(mark, "")), "")
        starts = ("", found.start, f" {found.start}")
        for start in starts if found.may_begin else starts[:1]:
            for gap, after in product(("\n\n", "\n", ""), dict.fromkeys((found.after, ""))):
                if fits(f"{start}x{found.ends[0]}{gap}{after}", "x"):
                    return found._replace(
                        start=start or found.start,
                        inside=not start,
                        answer=marked,
                        spaces=gap,
                        after=after,
                    )
        return found._replace(may_begin=False, inside=False, answer=marked)

    @cached_property
    def grammar(self) -> Grammar | None:
        """Grammar of the content, or of the text after a trigger; None: any text.

        Raises GrammarError for an unsupported schema.
        """
        if self._is_json and self.tags is not None and self.tags.spaced:
            spaced = seq(optional(" "), of_schema(self.asked.schema))
            return compile_grammar("lark", write_lark(spaced, "", False))
        if self._is_json:
            return compile_grammar("json_schema", json.dumps(self.asked.schema))
        if not self.form.grammar:
            return None
        return compile_grammar("lark", write_lark(self.form.root, self._head, self.form.lazy))

    @property
    def _head(self) -> str:
        """The end of the prompt without reasoning and content."""
        said = self.asked.said
        head = self.form.prompt.removesuffix((said and said[1]) or "")
        start, ends = self.form.thinking
        for tag in filter(None, (start, *ends[:1])):
            if not likeliest(head, flat(self.form.root)):
                head = head.partition(tag)[0]
        return head

    def constraint(self, tokenizer: Tokenizer, most: int | None = None) -> Constraint | None:
        """Return the constraint of a response, which applies from its first token.

        Args:
            tokenizer: The model's tokenizer.
            most: Maximum tokens; reasoning before a required call takes at most half.

        Raises:
            GrammarError: The schema is unsupported.
        """
        if self.grammar is None:
            return None
        shown = frozenset() if self._is_json else frozenset(self.list_shown_tokens(tokenizer))
        inner = ByGrammar(self.grammar, tokenizer, shown)
        if self._is_json and self.asked.said is not None:
            inner.begin_response(tokenizer.tokenize(self.asked.said[1] or "", False, False))
        if self.triggers is not None:
            return TriggeredConstraint(
                inner, tokenizer, self.triggers, vocabulary(tokenizer, shown).tokenize_bytes
            )
        if self.thinking is None:
            return inner
        how = self.thinking
        if self.asked.required:
            how = how._replace(most=MOST_THOUGHTS if most is None else max(most // 2, 0))
        return AfterThoughts(inner, tokenizer, how)

    def parser(self, ids: Callable[[], str] = new_id, echo: bool = False) -> AnswerParser:
        """Return a parser of the response. ids: creates ids of calls without one. echo: deltas of a
        continued message include its beginning, which `answer` always has."""
        form, silent = self.form, self.asked.said is not None and not echo
        drops = form.words if form.drops else ()
        check = self.argument_problem if self.arguments else None
        return AnswerParser(
            form.root, form.read, form.prompt, ids, form.late_ids, silent, drops, check
        )

    def parse(self, text: str, ids: Callable[[], str] = new_id) -> ChatAnswer:
        """Parse a whole response."""
        parser = self.parser(ids)
        parser.feed(text)
        return parser.finish()


def build_format(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    tool_choice: str | Mapping[str, Any] | None = "auto",
    parallel_tool_calls: bool | None = None,
    json_schema: Mapping[str, Any] | bool | None = None,
    reasoning_format: str = "auto",
    add_generation_prompt: bool = True,
    continue_final_message: bool | str = False,
    **variables: Any,
) -> ChatFormat:
    """Return the request and parser of a response to messages.

    tool_choice   auto, none, required, or {"type": "function", "function": {"name": ...}}, which
                  requires one call
    parallel_tool_calls  None: if the template accepts several calls in a message
    json_schema   the response is JSON of this schema; True and {}: any object
    reasoning_format  none: reasoning is part of the content; else it is separated
    continue_final_message  the last message is the response's beginning: True, or the field
                  to continue: `content` or `reasoning_content`
    variables     for the template, see ChatTemplate.render

    Raises ModelError for invalid options, and for messages that the template refuses.
    """
    if tools and template.tool_use is not None:
        template = template.tool_use
    if reasoning_format not in REASONING_FORMATS:
        raise ModelError(
            f"reasoning_format must be one of {', '.join(REASONING_FORMATS)}, got "
            f"{reasoning_format!r}"
        )
    given = [whole_tool(_function(tool)) for tool in tools or ()]
    callable_tools, required = _choose_tools(given, tool_choice)
    if json_schema in (True, {}):
        json_schema = {"type": "object"}
    thinking = variables.get("enable_thinking", True)
    if parallel_tool_calls is None:
        parallel_tool_calls = template.caps.parallel_tool_calls
    parallel_tool_calls = parallel_tool_calls and not isinstance(tool_choice, Mapping)
    said = None
    if continue_final_message and messages:
        *messages, last = messages
        said = _split_continuation(complete_message(last), continue_final_message)
        add_generation_prompt = False
    if (given or any(map(is_of_calls, messages))) and not takes_calls(template):
        messages, given = describe_tools(messages, given), []
    render = _Render(template, messages, given, variables)
    arguments = tuple(map(tool_arguments, callable_tools))
    response = Arguments("", json.dumps(json_schema)) if isinstance(json_schema, Mapping) else None
    asked = AnswerRequest(
        tuple(map(enforceable, callable_tools)),
        required,
        parallel_tool_calls,
        json_schema if isinstance(json_schema, Mapping) else None,
        reasoning_format != "none",
        bool(thinking),
        render.generation,
        template.source,
        variables,
        said,
    )
    made = _format(template, render, asked, add_generation_prompt)
    made = replace(made, arguments=arguments, response=response)
    for warning in made.warnings:
        warn_once(warning)
    return made


def response_schema(response_format: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the schema of the OpenAI API's `response_format`; None for any text.

    Raises ModelError for a type other than text, json_object and json_schema.
    """
    given = response_format or {}
    kind = given.get("type", "text")
    if kind == "text":
        return None
    if kind not in ("json_object", "json_schema"):
        raise ModelError(
            f"response_format: type must be text, json_object or json_schema, got {kind!r}"
        )
    within = given.get("json_schema") or {} if kind == "json_schema" else given
    return within.get("schema") or {"type": "object"}


def _format(template: ChatTemplate, render: _Render, asked: AnswerRequest, ask: bool) -> ChatFormat:
    prompt = render.full_prompt if ask else render.messages_prompt
    if ask and prompt.endswith("<turn|>\n") and "<|turn>model" in template.source:
        # The template starts no turn after calls, but the model needs one.
        asked = replace(asked, prompt="<|turn>model\n")
        prompt += asked.prompt
    elif asked.said is not None and "<|turn>model" in template.source:
        asked = replace(asked, prompt="<|turn>model\n" if prompt.endswith("<turn|>\n") else "")
    is_begun = asked.said is not None and asked.said[1] is not None
    made = build_form(template, replace(asked, schema=None) if is_begun else asked)
    if asked.said is not None:
        prompt += made.prompt
    return ChatFormat(prompt, made, asked, template.tags(asked.variables))


def build_form(template: ChatTemplate, asked: AnswerRequest) -> AnswerForm:
    """Return the form of responses to a template's prompts."""
    made = find_form_builder(template.source)
    if made is not None:
        return made(asked)
    return build_marks_form(template_marks(template, bool(asked.tools)), asked)


def template_marks(template: ChatTemplate, tools: bool = False) -> Marks:
    """Return True if a template supports tool calls."""
    found = find_marks(template.source)
    tags = template.thinking
    if tags is not None and not found.think:
        found = replace(found, think=tags.start, thought=tags.ends[0])
    if tools and found.calls == "none":
        return replace(GENERIC, think=found.think, thought=found.thought)
    return found


def takes_calls(template: ChatTemplate) -> bool:
    """Return True if a template supports tool calls."""
    made = find_form_builder(template.source)
    return made is not None or find_marks(template.source).calls != "none"


class _Render:
    """Renderings of messages by a template, with and without a generation prompt."""

    def __init__(
        self,
        template: ChatTemplate,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]],
        variables: Mapping[str, Any],
    ) -> None:
        self._template, self._tools = template, tools or None
        self._messages, self._variables = messages, variables

    def _make(self, ask: bool) -> str:
        return self._template.render(self._messages, ask, self._tools, **self._variables)

    @cached_property
    def messages_prompt(self) -> str:
        return self._make(False)

    @cached_property
    def full_prompt(self) -> str:
        return self._make(True)

    @property
    def generation(self) -> str:
        """Part of the prompt that only the generation prompt adds."""
        before, asked = self.messages_prompt, self.full_prompt
        n = next((i for i, (a, b) in enumerate(zip(before, asked, strict=False)) if a != b), None)
        return asked[min(len(before), len(asked)) if n is None else n :]


def _function(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    if tool.get("type", "function") != "function":
        raise ModelError(f"a tool must be a function, {{'type': 'function', ...}}, got {tool!r}")
    return tool


def _choose_tools(
    tools: list[dict[str, Any]], choice: str | Mapping[str, Any] | None
) -> tuple[list[dict[str, Any]], bool]:
    """Return the tools that may be called, and True if one must be."""
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        found = [tool for tool in tools if tool["function"]["name"] == name]
        if not found:
            raise ModelError(f"tool_choice: unknown tool {name!r}; it must be in tools")
        return found, True
    if choice is not None and choice not in CHOICES:
        raise ModelError(
            f"tool_choice must be one of {', '.join(CHOICES)} or a function, got {choice!r}"
        )
    if choice == "required" and not tools:
        raise ModelError("tool_choice is required, but tools is empty; pass tools")
    return ([] if choice == "none" else tools), choice == "required"


def _split_continuation(message: dict[str, Any], which: bool | str) -> tuple[str, str | None]:
    """Return reasoning and content of a message to continue; content is None if reasoning
    continues."""
    if which is not True and which not in ("content", "reasoning_content"):
        raise ModelError(
            f"continue_final_message must be True, content or reasoning_content, got {which!r}"
        )
    thoughts, text = str(message.get("reasoning_content", "")), content_text(message)
    of_thoughts = which == "reasoning_content" or (which is True and thoughts and not text)
    return thoughts, None if of_thoughts else text


__all__ = [
    "AnswerDelta",
    "AnswerParser",
    "ChatAnswer",
    "ChatFormat",
    "ToolCall",
    "build_format",
    "response_schema",
]


if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, schema_of="response_schema", format_of="build_format")
