"""Responses that name their recipient: the user, or a tool.

common/parsers/functionary-v3-2.cpp, muse-glimmer.cpp and gigachat-v3.cpp.
"""

from __future__ import annotations

from llama_py.chat.formats import form
from llama_py.chat.formats.bare import bare
from llama_py.chat.formats.form import AnswerForm, AnswerRequest, iterate_tools, tool_rule
from llama_py.chat.formats.schema import parameters
from llama_py.chat.peg.leaves import END, characters, rest, text_until
from llama_py.chat.peg.named import rule, trigger
from llama_py.chat.peg.nodes import (
    NOTHING,
    SPACE,
    Expression,
    WithGrammar,
    choice,
    lit,
    optional,
    repetition,
    seq,
)
from llama_py.chat.peg.values import member, of_schema

HEAD = "<|start_header_id|>assistant<|end_header_id|>\n\n>>>"
TO_ONE = r">>>(?!a?l?l?\Z|all\n)"


def arrows(asked: AnswerRequest) -> AnswerForm:
    """Return a form of `>>>all` with content, and `>>>NAME` with arguments."""
    prompt = asked.prompt
    if asked.said is not None:
        prompt = f"{HEAD}all\n{asked.said[1] or ''}"
    said: Expression = seq("all\n", form.content(rest()))
    if asked.tools:
        one = choice(
            *(
                tool_rule(
                    name,
                    form.call(seq(form.opened(form.named(name) + "\n"), form.call_arguments(tool))),
                )
                for name, tool in iterate_tools(asked)
            )
        )
        first = one + repetition(seq(optional(">>>"), one)) if asked.parallel else one
        calls = trigger("tools", seq(optional(">>>"), first))
        both = seq("all\n", form.content(text_until(">>>")), calls)
        if asked.schema is not None:
            said = "all\n" + form.json_content(asked.schema)
        said = choice(calls, said) if asked.is_json else choice(both, said, calls)
        said = WithGrammar(choice(both, calls), calls) if asked.required else said
    holds = bool(asked.tools)
    return AnswerForm(
        seq(HEAD, said, END), prompt, holds, asked.lazy, (), (TO_ONE,), preserved=(">>>all",)
    )


START, EOM = "<|start|>assistant", "<|eom|>"
ENDS = optional(choice("<|eot|>", EOM))
MESSAGE, FENCE = "<|message|>", "</atem:parameter>"
TO_TOOL = r"<\|start\|>assistant( to=(?!self<\|message\|>)(?!user<\|message\|>)[^<]*?<\|message\|>)"


def build_recipients_form(asked: AnswerRequest) -> AnswerForm:
    """Return a form of messages to=self (reasoning), to=user, or to a tool."""
    prompt = START
    if asked.said is not None:
        to_user = f"{EOM}{START} to=user{MESSAGE}"
        prompt = form.prompt_continuation(asked, f"{START} to=self{MESSAGE}", to_user)
    holds = asked.is_json or bool(asked.tools)
    return AnswerForm(
        _build_message(asked, holds) + WithGrammar(ENDS, NOTHING),
        prompt,
        holds,
        asked.lazy,
        (),
        (TO_TOOL,),
        preserved=(
            "<|start|>",
            MESSAGE,
            EOM,
            "<|eot|>",
            "<atem:function_calls>",
            "<atem:invoke",
            "<atem:parameter",
            FENCE,
            "</atem:invoke>",
            "</atem:function_calls>",
        ),
    )


def _build_message(asked: AnswerRequest, holds: bool) -> Expression:
    if not asked.reasoning and not holds:
        return START + form.content(rest())
    made = form.reasoning if asked.reasoning else form.content
    before = repetition(
        seq(START, rule("analysis", seq(f" to=self{MESSAGE}", made(text_until(EOM)), EOM)))
    )
    before = form.thoughts(before)
    said = form.content(text_until("<|eot|>", EOM))
    if asked.schema is not None:
        said = form.json_content(asked.schema)
    final = rule("final", seq(optional(" to=user"), MESSAGE, said))
    if not asked.tools:
        return seq(before, START, final)
    one = choice(
        *(tool_rule(name, _addressed_call(name, tool)) for name, tool in iterate_tools(asked))
    )
    several = one + repetition(seq(EOM + START, one)) if asked.parallel else one
    calls = trigger("tool call", several)
    if asked.required:
        return seq(before, START, calls)
    if asked.schema is not None:
        return seq(before, START, choice(calls, final))
    return seq(before, START, choice(calls, seq(final, optional(seq(EOM + START, calls)))))


def _addressed_call(name: str, tool: form.Tool) -> Expression:
    each_argument = []
    for one in parameters(tool):
        text = one.may_be_text
        inner = form.string(bare(one.schema, FENCE)) if text else form.value(of_schema(one.schema))
        opened = seq('<atem:parameter name="', form.argument_named(one.name), '">')
        found = seq(form.argument_opened(opened), inner, form.argument_closed(FENCE))
        each_argument.append((form.argument(found), one.required))
    inner = form.any_order(each_argument, SPACE)
    opened = seq(
        " to=",
        WithGrammar(text_until(MESSAGE), characters("[A-Za-z0-9_.:-]", 1, 64)),
        f"{MESSAGE}<atem:function_calls>",
        SPACE,
        '<atem:invoke name="',
        form.named(name),
        '">',
        SPACE,
    )
    closed = seq("</atem:invoke>", SPACE, "</atem:function_calls>")
    return form.call(form.opened(opened) << form.arguments(inner) << form.closed(closed))


CALL = "<|message_sep|>\n\nfunction call<|role_sep|>\n"
ROLE = "assistant<|role_sep|>\n"


def roles(asked: AnswerRequest) -> AnswerForm:
    """Return a form with calls as a message to the role `function call`."""
    prompt = asked.prompt if asked.said is None else ROLE + (asked.said[1] or "")
    said: Expression = form.content(rest())
    if asked.tools:
        tools = []
        for name, tool in iterate_tools(asked):
            key = member("name", seq('"', form.named(name), '"'))
            inner = member("arguments", form.call_arguments(tool))
            body = form.opened("{" << key) << "," << inner << "}"
            tools.append(tool_rule(name, form.call(body)))
        calls = trigger("tool call", CALL + choice(*tools))
        before = form.content(text_until("<|message_sep|>\n\n")) + SPACE
        said = form.content_then_calls(asked, before, calls)
    return AnswerForm(
        lit(ROLE) + said,
        prompt,
        bool(asked.tools),
        asked.lazy,
        (CALL,),
        preserved=("<|message_sep|>\n\n", "<|role_sep|>\n"),
    )
