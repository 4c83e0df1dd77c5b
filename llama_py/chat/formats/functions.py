"""Tool calls as `<function=NAME>` or `<function name="NAME">`, with a tag for each parameter.

common/parsers/qwen3-coder.cpp, minicpm5.cpp.
"""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, rest, text_until
from llama_py.chat.peg.named import permutation, rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    atomic,
    choice,
    lit,
    optional,
    peek,
    repetition,
    seq,
)
from llama_py.chat.peg.values import ARRAY, BOOLEAN, NULL, NUMBER, OBJECT, of_schema

TURN, CALL, CALLED = "<|im_start|>assistant\n", "<tool_call>", "</tool_call>"
THINK, THOUGHT = "<think>", "</think>"
CLOSE = "\n</parameter>\n"
VALUES = (
    ("object", OBJECT),
    ("array", ARRAY),
    ("number", NUMBER),
    ("integer", NUMBER),
    ("boolean", BOOLEAN),
    ("null", NULL),
)


def build_line_form(asked: AnswerRequest) -> AnswerForm:
    """Return a form with one tag per line.

    Models without reasoning may omit the tag around a call.
    """
    thinks = THINK in asked.source
    starts = (CALL, *(f"<function={name}>" for name, _ in iterate_tools(asked) if not thinks))
    prompt = asked.prompt
    if asked.said is not None:
        said = asked.said[1] or ""
        prompt = TURN + said
        if thinks:
            prompt = form.prompt_continuation(asked, f"{TURN}{THINK}\n", f"\n{THOUGHT}\n\n")
    return AnswerForm(
        _root(asked, thinks, starts),
        prompt,
        asked.is_json or bool(asked.tools),
        asked.lazy,
        starts,
        preserved=(CALL, CALLED, *((THINK, THOUGHT) if thinks else ())),
        thinking=(THINK, (f"\n{THOUGHT}", THOUGHT, CALL)) if thinks else ("", ()),
    )


def _root(asked: AnswerRequest, thinks: bool, starts: tuple[str, ...]) -> Expression:
    thoughts: Expression = NOTHING
    if thinks and asked.reasoning:
        inner = form.reasoning(text_until(THOUGHT, CALL))
        thoughts = optional(seq(THINK, SPACE, inner, choice(THOUGHT, peek(CALL))))
    start = TURN + form.thoughts(thoughts)
    if not asked.tools:
        said = form.content(rest()) if asked.schema is None else form.json_content(asked.schema)
        return start << said
    one = choice(*(tool_rule(name, _call(name, tool)) for name, tool in iterate_tools(asked)))
    body = seq(one, CALLED, SPACE)
    call = rule("tool call", CALL + "\n" + body)
    first = call if thinks else rule("first call", seq(optional(CALL + "\n"), body))
    calls = first + repetition(call) if asked.parallel else first
    said = form.content(text_until(*starts)) + SPACE
    return start << form.content_then_calls(asked, said, trigger("tool calls", calls))


def _call(name: str, tool: form.Tool) -> Expression:
    close = form.argument_closed(CLOSE)
    required: list[Expression] = []
    others: list[Expression] = []
    for one in parameters(tool):
        start = form.argument_opened(seq("<parameter=", form.argument_named(one.name), ">\n"))
        types, text = one.types, form.string(bare(one.schema, CLOSE)) + close
        if "string" not in types:
            inner = form.value(of_schema(one.schema)) + close
        elif types == {"string"}:
            inner = text
        else:  # JSON if possible, but a model may write anything
            json = choice(*(value for type, value in VALUES if type in types))
            inner = WithGrammar(choice(atomic(form.value(json) + close), text), text)
        found = rule(f"argument {name} {one.name}", form.argument(start + inner))
        (required if one.required else others).append(found)
    arguments = permutation(f"arguments {name}", required)
    if others:
        arguments = arguments + repetition(choice(*others))
    opened = form.opened(seq("<function=", form.named(name), ">\n"))
    return form.call(seq(opened, form.arguments(arguments), form.closed("</function>\n")))


PARAMETER, DATA = "</param>", "<![CDATA["


def build_attribute_form(asked: AnswerRequest) -> AnswerForm:
    """Return a form with names as attributes and optional CDATA texts."""
    thoughts: Expression = NOTHING
    if asked.reasoning:
        thoughts = (THINK << form.reasoning(text_until(THOUGHT)) << THOUGHT) + SPACE
    start = lit(TURN) + form.thoughts(thoughts)
    if asked.tools:
        one = choice(
            *(tool_rule(name, _with_names(name, tool)) for name, tool in iterate_tools(asked))
        )
        several = repetition(one + SPACE, 1, -1 if asked.parallel else 1)
        calls = trigger("tool call", several)
        said = form.content(text_until("<function"))
        root = seq(start, form.content_then_calls(asked, said, calls), END)
    elif asked.schema is not None:
        root = start + form.json_content(asked.schema)
    else:
        root = seq(start, form.content(rest()), END)
    return AnswerForm(
        root,
        form.prompt_continuation(asked, f"{TURN}{THINK}\n", f"\n{THOUGHT}\n\n"),
        asked.is_json or bool(asked.tools),
        asked.lazy,
        ("<function",),
        preserved=("<function", "<param", "</function>", PARAMETER, THINK, THOUGHT),
        thinking=(THINK, (THOUGHT,)),
    )


def _with_names(name: str, tool: form.Tool) -> Expression:
    close = form.argument_closed(PARAMETER)
    each_argument = []
    for one in parameters(tool):
        text = choice(
            seq(DATA, form.string(bare(one.schema, "]]>")), "]]>", close),
            seq(form.string(bare(one.schema, PARAMETER, but=DATA)), close),
        )
        inner = text if one.may_be_text else form.value(of_schema(one.schema)) + close
        opened = seq('<param name="', form.argument_named(one.name), '">')
        found = form.argument(form.argument_opened(opened) + inner)
        each_argument.append((found, one.required))
    arguments = form.any_order(each_argument, SPACE)
    opened = form.opened(seq('<function name="', form.named(name), '">'))
    return form.call(opened << form.arguments(arguments) << form.closed("</function>"))
