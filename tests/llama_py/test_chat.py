"""Chat templates: what Hugging Face's templates rely on, and that they can do no harm."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.thinking import Tags, Thoughts

CHATML = """{{ bos_token }}
{%- for message in messages %}
    {%- if loop.first and message.role != 'system' %}
        {{- '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}"""
USER = [{"role": "user", "content": "Hi"}]


def render(source: str, **extra: object) -> str:
    return ChatTemplate(source, bos="<s>", eos="</s>").render(USER, **extra)  # type: ignore[arg-type]


def test_chatml() -> None:
    system = "<s><|im_start|>system\nBe kind.<|im_end|>\n"
    user = "<|im_start|>user\nHi<|im_end|>\n"
    assert render(CHATML) == system + user + "<|im_start|>assistant\n"
    assert render(CHATML, add_generation_prompt=False) == system + user


def test_blocks_leave_no_space() -> None:
    source = "{% for m in messages %}\n  {% if true %}\n{{ m.role }}\n  {% endif %}\n{% endfor %}"
    assert render(source) == "user\n"


def test_variables() -> None:
    assert render("{{ bos_token }}{{ eos_token }}{{ tools is defined }}") == "<s></s>False"
    tools = [{"type": "function", "function": {"name": "f"}}]
    extra = {"thinking": "yes", "tools": tools}
    assert render("{{ thinking }}{{ tools|length }}{{ nothing }}", **extra) == "yes1"
    assert render("{{ tools|tojson }}", tools=tools) == (
        '[{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]'
    )


def test_loop_controls() -> None:
    source = "{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert render(source) == "012"


def test_tojson_leaves_text_as_it_is() -> None:
    assert render("{{ x|tojson }}", x={"b": "<é>", "a": [1]}) == '{"b": "<é>", "a": [1]}'
    assert render("{{ x|tojson(indent=1) }}", x=[1]) == "[\n 1\n]"


def test_strftime_now() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


def test_the_callers_messages_are_not_changed() -> None:
    """A template has copies, which it may change."""
    source = (
        "{% set _ = messages.append(messages[0]) %}{% set _ = x.y.pop() %}"
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ x.y }}"
    )
    x = {"y": [1, 2]}
    assert render(source, x=x) == "HiHi[1]"
    assert x == {"y": [1, 2]} and USER == [{"role": "user", "content": "Hi"}]


def test_nothing_adds_nothing() -> None:
    """llama.cpp: what is undefined or null is no text, and has no attributes either."""
    assert render("{{ 'a' + none + nobody }}{{ 'b' ~ none ~ 1 }}{{ 'c' + 2 }}") == "ab1c2"
    assert render("{{ nobody.home.now }}{% for x in nobody.home %}x{% endfor %}.") == "."
    assert render("{{ 1 ~ 2 }} {{ 1 + 2 }} {{ [1] + [2] }}") == "12 3 [1, 2]"
    assert render("[{{ none }}{{ x.y }}]{{ none|default('d') }}", x={"y": None}) == "[]d"


EMPTY = {
    '""': "capitalize() join(',') lower() replace('a','b') string() strip() title() upper()",
    "[]": "items() list() map(attribute='a') reverse() select('odd') selectattr('a') sort()",
    "0": "length() sum() wordcount()",
    '"d"': "default('d')",
    "null": "first() last()",
}


@pytest.mark.parametrize("value", EMPTY)
def test_methods_of_undefined_values_are_empty(value: str) -> None:
    """value.cpp:value_undefined_t::get_builtins; its other methods are errors."""
    for method in EMPTY[value].split():
        for source in ("nobody", "messages[0].nothing", "nobody.home"):
            assert render(f"{{{{ {source}.{method}|tojson }}}}") == value, method
    assert render("{% for k, v in none.items() %}{{ k }}{% endfor %}.") == "."
    for method in ("split()", "keys()", "get('a')", "startswith('a')"):
        with pytest.raises(ModelError, match="undefined"):
            render(f"{{{{ nobody.{method} }}}}")


def test_numbers_and_pieces_are_those_of_llama_cpp() -> None:
    source = "{{ x|tojson }} {{ x|string }} {{ x|safe }} {{ x }} {{ 0.5|string }} {{ 1e6|string }}"
    assert render(source, x=-2.0) == "-2 -2 -2 -2.0 0.5 1000000"
    assert render("{{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 % 2 }} {{ true|string }}") == "-1 1 -1.5 True"
    assert render("{{ ' a  b'.split()|tojson }}{{ 'a  b'.rsplit(' ', 1)|tojson }}") == (
        '["", "a", "", "b"]["a ", "b"]'
    )


def test_generation_blocks_are_as_if_they_were_not_there() -> None:
    source = "{% set x = 1 %}{% generation %}{{ x }}{% set x = 2 %}{% endgeneration %}{{ x }}"
    assert render(source) == "12"


ENDLESS = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "text": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}"
    "{% endfor %}",
    "joined": "{% set n = namespace(x='ab') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}"
    "{% endfor %}",
    "repeated": "{{ 'ab' * 10**9 }}",
    "list": "{{ ([1] * 10**9)|length }}",
    "power": "{{ 10 ** (10 ** 9) }}",
    "width": "{{ '%1000000000d' % 1 }}",
    "method": "{{ 'a'.center(10**10) }}",
    "replaced": "{% set x = 'a' * 10**6 %}{{ x.replace('a', x) }}",
    "filter": "{{ 'a'|center(10**10) }}",
    "indented": "{{ [1]|tojson(indent=10**10) }}",
    "macros": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_a_template_without_end_is_an_error(source: str) -> None:
    with pytest.raises(ModelError, match="chat template, "):
        render(source)


def test_a_list_that_grows_while_it_is_looped_over() -> None:
    source = "{% for m in messages %}{% set _ = messages.append(m) %}{{ loop.index }}{% endfor %}"
    assert render(source) == "1"


def test_what_is_wrong_with_a_template_is_found_without_messages() -> None:
    with pytest.raises(ModelError, match="chat template, line 2"):
        ChatTemplate("a\n{% if %}").check()
    ChatTemplate("{{ raise_exception('later') }}").check()


def test_tools_may_have_a_template_of_their_own() -> None:
    template = ChatTemplate("plain", tool_use="{{ tools|length }} tools")
    assert template.render(USER) == "plain"
    assert template.render(USER, tools=[{"name": "f"}]) == "1 tools"


BAD_MESSAGES = {
    "role": ({"content": "Hi"}, "needs a role"),
    "content": ({"role": "user", "content": 3}, "a string or a list of parts, got 3"),
    "part": ({"role": "user", "content": ["Hi"]}, "a string or a list of parts, got"),
    "call": ({"role": "assistant", "tool_calls": [{}]}, "needs a function with a name"),
}


@pytest.mark.parametrize("message,error", BAD_MESSAGES.values(), ids=BAD_MESSAGES)
def test_messages_that_are_none(message: dict[str, object], error: str) -> None:
    with pytest.raises(ModelError, match=error):
        ChatTemplate("").render([message])


BAD = {
    "syntax": ("a\n{% if %}", "line 2"),
    "refusal": ("a\nb\n{{ raise_exception('no system role') }}", "line 3: no system role"),
    "undefined": ("\n{{ nobody.home() }}", "line 2.*undefined"),
    "arithmetic": ("{{ 1 // 0 }}", "line 1.*zero"),
    "python": ("{{ 1 - 'a' }}", "line 1.*unsupported"),
    "unknown filter": ("\n{{ 1|nofilter }}", "line 2.*nofilter"),
    "attribute": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "line 1"),
    "function": ("{{ raise_exception.__globals__.keys() }}", "line 1"),
    "format": ("{{ '{0.__class__.__mro__}'.format(1).x.y }}", "line 1"),
    "large range": ("{{ range(10**9)|list }}", "line 1.*[Rr]ange"),
    "import": ("{% include 'x' %}", "."),
}


@pytest.mark.parametrize("source,message", BAD.values(), ids=BAD)
def test_what_goes_wrong_is_told_with_its_line(source: str, message: str) -> None:
    with pytest.raises(ModelError, match=f"chat template, .*{message}"):
        render(source)


def test_line_in_a_macro_is_the_innermost() -> None:
    with pytest.raises(ModelError, match="line 2: inner"):
        render("{% macro m() %}\n{{ raise_exception('inner') }}\n{% endmacro %}\n{{ m() }}")


def test_importing_does_not_load_jinja() -> None:
    code = "import sys, llama_py.chat; sys.exit('jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


TAGS = Tags("<think>", ("</think>", "<tool_call>"))
CHANNELS = Tags("<|c|>analysis<|m|>", ("<|end|>",), "<|c|>final<|m|>")
ANSWERS = {
    "none": (TAGS, "", "Hello <think> there", "", "Hello <think> there"),
    "thoughts": (TAGS, "", "\n<think>\nHm.\n</think>\n\nHi", "Hm.", "Hi"),
    "begun in the prompt": (TAGS, "x<think>\n", "Hm.</think>Hi", "Hm.", "Hi"),
    "another end": (TAGS, "<think>", "Hm.<tool_call>f", "Hm.", "f"),
    "no end": (TAGS, "<think>", "Hm.", "Hm.", ""),
    "a part of the end": (TAGS, "<think>", "Hm.</thi", "Hm.", ""),
    "spaces": (
        Tags("<think>", ("</think>",), spaces=False), "<think>", "H\n</think>\nHi", "H", "\nHi"
    ),
    "nothing": (TAGS, "", "<think></think>", "", ""),
    "channels": (
        CHANNELS, "", "<|c|>analysis<|m|>Hm.<|end|><|s|>a<|c|>final<|m|>Hi <b>", "Hm.", "Hi <b>"
    ),
    "the answer's channel": (CHANNELS, "", "<|c|>final<|m|>Hi", "", "Hi"),
}  # fmt: skip


@pytest.mark.parametrize("tags,prompt,answer,thought,said", ANSWERS.values(), ids=ANSWERS)
def test_answers_are_parted_however_they_come(
    tags: Tags, prompt: str, answer: str, thought: str, said: str
) -> None:
    found_thought, found_said = Thoughts(tags, prompt).push(answer, final=True)
    assert (found_thought.strip(), found_said) == (thought, said)
    for n in (1, 2, 7):
        parts = Thoughts(tags, prompt)
        found = [parts.push(answer[i : i + n]) for i in range(0, len(answer), n)]
        found.append(parts.push("", final=True))
        thoughts, texts = ("".join(some) for some in zip(*found, strict=True))
        assert (thoughts.strip(), texts) == (thought, said)
