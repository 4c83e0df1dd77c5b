"""Chat templates: what Hugging Face's templates rely on, and that they can do no harm."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate

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
    assert render("{{ bos_token }}{{ eos_token }}{{ tools is none }}") == "<s></s>True"
    extra = {"thinking": "yes", "tools": [1]}
    assert render("{{ thinking }}{{ tools|length }}{{ nothing }}", **extra) == "yes1"


def test_loop_controls() -> None:
    source = "{% for i in range(9) %}{% if i > 2 %}{% break %}{% endif %}{{ i }}{% endfor %}"
    assert render(source) == "012"


def test_tojson_leaves_text_as_it_is() -> None:
    assert render("{{ x|tojson }}", x={"b": "<é>", "a": [1]}) == '{"b": "<é>", "a": [1]}'
    assert render("{{ x|tojson(indent=1) }}", x=[1]) == "[\n 1\n]"


def test_strftime_now() -> None:
    assert re.fullmatch(r"\d{4}-\d\d", render("{{ strftime_now('%Y-%m') }}"))


def test_messages_cannot_be_changed() -> None:
    with pytest.raises(ModelError, match="line 1"):
        render("{% set _ = messages.append(1) %}")


BAD = {
    "syntax": ("a\n{% if %}", "line 2"),
    "refusal": ("a\nb\n{{ raise_exception('no system role') }}", "line 3: no system role"),
    "undefined": ("\n{{ nobody.home }}", "line 2.*nobody"),
    "arithmetic": ("{{ 1 // 0 }}", "line 1.*zero"),
    "python": ("{{ 1 + 'a' }}", "line 1.*unsupported"),
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
