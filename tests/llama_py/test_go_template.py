"""Go templates of Ollama as Jinja templates: published templates, the language, and errors."""

from __future__ import annotations

from typing import Any

import pytest

from ggml_py.errors import ModelError
from llama_py.chat import ChatTemplate
from llama_py.chat.families import GO_MARK
from llama_py.chat.go_template import is_go_template, takes_suffix, to_jinja
from llama_py.chat.named import template_source
from llama_py.chat.sandbox import MOMENT, always_the_same
from llama_py.chat.tools import build_format

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Hi"}
ANSWER = {"role": "assistant", "content": "Ho"}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a <city>",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "description": "Its name"}},
            "required": ["city"],
        },
    },
}
CALL = {
    "role": "assistant",
    "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}],
}
RESULT = {"role": "tool", "content": "22", "name": "weather"}

# The forms of published templates, shortened.
LLAMA3 = """{{ if .System }}<|start_header_id|>system<|end_header_id|>

{{ .System }}<|eot_id|>{{ end }}{{ if .Prompt }}<|start_header_id|>user<|end_header_id|>

{{ .Prompt }}<|eot_id|>{{ end }}<|start_header_id|>assistant<|end_header_id|>

{{ .Response }}<|eot_id|>"""
QWEN25 = """{{- if .Messages }}
{{- if or .System .Tools }}<|im_start|>system
{{- if .System }}
{{ .System }}
{{- end }}
{{- if .Tools }}

# Tools

Call functions as JSON within <tool_call></tool_call>. The functions:
<tools>
{{- range .Tools }}
{"type": "function", "function": {{ .Function }}}
{{- end }}
</tools>
{{- end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Content }}{{ .Content }}
{{- else if .ToolCalls }}<tool_call>
{{ range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
{{ end }}</tool_call>
{{- end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>user
<tool_response>
{{ .Content }}
</tool_response><|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ end }}
{{- end }}
{{- else }}
{{- if .System }}<|im_start|>system
{{ .System }}<|im_end|>
{{ end }}{{ if .Prompt }}<|im_start|>user
{{ .Prompt }}<|im_end|>
{{ end }}<|im_start|>assistant
{{ end }}{{ .Response }}{{ if .Response }}<|im_end|>{{ end }}"""
MISTRAL = """{{- range $index, $_ := .Messages }}
{{- if eq .Role "user" }}
{{- if and (eq (len (slice $.Messages $index)) 1) $.Tools }}[AVAILABLE_TOOLS] {{ $.Tools }}[/AVAILABLE_TOOLS]
{{- end }}[INST] {{ if and (eq (len (slice $.Messages $index)) 1) $.System }}{{ $.System }}

{{ end }}{{ .Content }}[/INST]
{{- else if eq .Role "assistant" }}
{{- if .Content }} {{ .Content }}</s>
{{- else if .ToolCalls }}[TOOL_CALLS] [
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ json .Function.Arguments }}}
{{- end }}]</s>
{{- end }}
{{- else if eq .Role "tool" }}[TOOL_RESULTS] {"content": {{ .Content }}}[/TOOL_RESULTS]
{{- end }}
{{- end }}"""  # noqa: E501
GEMMA = """{{- $system := .System }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<start_of_turn>user
{{- if and (eq $i 1) $system }}
{{ $system }}
{{- end }}
{{ .Content }}<end_of_turn>
{{ else if eq .Role "assistant" }}<start_of_turn>model
{{ .Content }}<end_of_turn>
{{ end }}
{{- if $last }}<start_of_turn>model
{{ end }}
{{- end }}"""
QWEN3 = """{{- $lastUser := -1 -}}
{{- range $i, $m := .Messages -}}{{- if eq $m.Role "user" }}{{ $lastUser = $i }}{{ end -}}{{- end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
<|im_start|>{{ .Role }}
{{ if and $.IsThinkSet .Thinking (or $last (gt $i $lastUser)) }}<think>{{ .Thinking }}</think>
{{ end }}{{ .Content }}<|im_end|>
{{ if and $last (ne .Role "assistant") }}<|im_start|>assistant
{{ if and $.IsThinkSet (not $.Think) }}<think>

</think>

{{ end }}{{ end }}
{{- end }}"""


def render(source: str, *messages: Any, **variables: Any) -> str:
    return ChatTemplate(to_jinja(source)).render(messages, **variables)


def render_text(source: str, *messages: Any, **variables: Any) -> str:
    """Render a template that shows no system messages."""
    shown = "{{ if false }}{{ .System }}{{ end }}"
    return render(source + shown, *(messages or (USER,)), **variables)


def test_a_template_of_one_turn() -> None:
    head = "<|start_header_id|>{}<|end_header_id|>\n\n"
    assert render(LLAMA3, USER) == f"{head.format('user')}Hi<|eot_id|>{head.format('assistant')}"
    found = render(LLAMA3, SYSTEM, USER, ANSWER, {"role": "user", "content": "Bye"})
    assert found == (
        f"{head.format('system')}Be brief.<|eot_id|>{head.format('user')}Hi<|eot_id|>"
        f"{head.format('assistant')}Ho<|eot_id|>{head.format('user')}Bye<|eot_id|>"
        f"{head.format('assistant')}"
    )
    assert render("{{ .Prompt }} -> ", USER, ANSWER, USER) == "Hi -> HoHi -> "
    later = render(
        "{{ .System }}|{{ .Prompt }}|{{ .Response }};", SYSTEM, USER, ANSWER, SYSTEM, USER
    )
    assert later == "Be brief.|Hi|Ho;Be brief.|Hi|"


def test_qwen() -> None:
    said = "<|im_start|>user\nHi<|im_end|>\n"
    assert render(QWEN25, USER) == f"{said}<|im_start|>assistant\n"
    found = render(QWEN25, SYSTEM, USER, CALL, RESULT, tools=[TOOL])
    assert found.startswith("<|im_start|>system\nBe brief.\n\n# Tools")
    tool = '{"type": "function", "function": {"name":"weather","description":"Weather of a <city>",'
    assert tool in found
    assert found.endswith(
        f'</tools><|im_end|>\n{said}<|im_start|>assistant\n<tool_call>\n{{"name": "weather", '
        '"arguments": {"city":"Rome"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>'
        "\n22\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_mistral() -> None:
    found = render(MISTRAL, SYSTEM, USER, CALL, RESULT, ANSWER, USER, tools=[TOOL])
    before, _, after = found.partition('[AVAILABLE_TOOLS] [{"type":"function","function":')
    assert before == (
        '[INST] Hi[/INST][TOOL_CALLS] [{"name": "weather", "arguments": {"city":"Rome"}}]</s>'
        '[TOOL_RESULTS] {"content": 22}[/TOOL_RESULTS] Ho</s>'
    )
    assert after.endswith("}}][/AVAILABLE_TOOLS][INST] Be brief.\n\nHi[/INST]")


def test_gemma() -> None:
    assert render(GEMMA, SYSTEM, USER, ANSWER, USER) == (
        "<start_of_turn>user\nBe brief.\nHi<end_of_turn>\n<start_of_turn>model\nHo<end_of_turn>\n"
        "<start_of_turn>user\nHi<end_of_turn>\n<start_of_turn>model\n"
    )


def test_reasoning() -> None:
    thought = {**ANSWER, "reasoning_content": "Hm"}
    template = ChatTemplate(to_jinja(QWEN3))
    assert template.thinking is not None and template.thinking.start == "<think>"
    found = template.render([USER, thought, USER], enable_thinking=False)
    assert "Hm" not in found and found.endswith("<think>\n\n</think>\n\n")
    assert "<think>Hm</think>\nHo" in template.render([USER, thought], enable_thinking=True)


def test_tool_calls_of_responses_are_read() -> None:
    form = build_format(ChatTemplate(to_jinja(QWEN25)), [USER], tools=[TOOL])
    reader = form.parser()
    text = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
    reader.feed(text)
    reader.rest()
    [call] = reader.answer.tool_calls
    assert call.name == "weather" and "Rome" in call.arguments


def test_capabilities() -> None:
    caps = ChatTemplate(to_jinja(QWEN25)).caps
    assert caps.tool_calls and caps.object_arguments and caps.system_role
    assert caps.string_content and not caps.typed_content
    caps = ChatTemplate(to_jinja("{{ .Prompt }}")).caps
    assert not caps.tool_calls and not caps.system_role
    assert render("{{ .Prompt }}!", SYSTEM, USER) == "Be brief.\nHi!"  # not lost, unlike in Ollama


def test_messages_of_one_role_are_merged() -> None:
    each = "{{ range .Messages }}[{{ .Role }} {{ .Content }}]{{ end }}"
    assert render(each, USER, USER, ANSWER) == "[user Hi\n\nHi][assistant Ho]"
    assert render(each, USER, CALL, RESULT, RESULT).count("[tool 22]") == 2


@pytest.mark.parametrize(
    "source, expected",
    [
        ('{{- "a" }}  {{- /* no */ -}}  {{ "b" -}}  c', "abc"),
        ("{{/* {{ x }} */}}a\r\n{{`raw \\n`}}", "a\r\nraw \\n"),
        ('{{ "\\u00e9\\x41\\t\\"" }}', 'éA\t"'),
        ('{{ print "a" 1 2 "b" }} {{ printf "%s-%d-%v%%" "x" 3 true }}', "a1 2b x-3-true%"),
        ('{{ printf "%q" "a\\"b" }} {{ "x" | printf "%s%s" "y" }}', '"a\\"b" yx'),
        ("{{ true }} {{ nil }} {{ -5 }} {{ 1.5 }} {{ .Nothing }}", "true  -5 1.5 "),
        ("{{ and 1 0 }} {{ or 0 2 }} {{ not 1 }} {{ and (or 0 1) (eq 1 2 1) }}", "0 2 false true"),
        ("{{ lt 1 2 }} {{ le 2 2 }} {{ gt 1 2 }} {{ ge 2 2 }} {{ ne 1 1 }}", "true true false true false"),  # noqa: E501
        ("{{ if 0 }}a{{ else if 1 }}b{{ else }}c{{ end }}", "b"),
        ("{{ if $x := 3 }}{{ $x }}{{ end }}", "3"),
        ('{{ with "v" }}{{ . }}{{ else }}no{{ end }}{{ with 0 }}x{{ else with 4 }}{{ . }}{{ end }}', "v4"),  # noqa: E501
        ('{{ with $x := "v" }}{{ $x }}{{ . }}{{ end }}', "vv"),
        ("{{ $a := 1 }}{{ if true }}{{ $a = 2 }}{{ $a := 3 }}{{ end }}{{ $a }}", "2"),
        ("{{ range .Tools }}x{{ else }}none{{ end }}", "none"),
        ('{{ range .Messages }}{{ len .Content }}{{ break }}{{ end }}', "2"),
        ("{{ range $k, $v := (index .Messages 0) }}{{ if eq $k `role` }}{{ $v }}{{ end }}{{ end }}", "user"),  # noqa: E501
        ("{{ (index .Messages 0).Content }}{{ len .Messages }}{{ len (slice .Messages 1) }}", "Hi10"),  # noqa: E501
        ('{{ define "t" }}<{{ . }}>{{ end }}{{ template "t" "x" }}{{ template "t" }}', "<x><>"),
        ('{{ define "t" }}{{ range .Messages }}{{ .Role }}{{ end }}{{ end }}{{ template "t" . }}', "user"),  # noqa: E501
        ('{{ block "b" 7 }}{{ . }}{{ $ }}{{ end }}{{ template "b" 8 }}', "7788"),
        ("{{ currentDate }} {{ yesterdayDate }}", "2026-01-01 2025-12-31"),
        ("{% if x %}", "{% if x %}"),
    ],
)  # fmt: skip
def test_the_language(source: str, expected: str) -> None:
    assert MOMENT.year == 2026
    shown = "{{ range .Messages }}{{ if false }}{{ .Content }}{{ end }}{{ end }}{{ .System }}"
    with always_the_same():
        assert render(source + shown, USER) == expected


def test_objects_print_as_json_and_lists_like_in_go() -> None:
    each = (
        "{{ range .Tools }}{{ .Function.Parameters.Required }} {{ .Function.Parameters }}{{ end }}"
    )
    source = "{{ range .Messages }}{{ .Content }} {{ end }}" + each
    assert render(source, USER, tools=[TOOL]).startswith('Hi [city] {"type":"object","properties":')
    typed = """{{ range .Messages }}{{ .Content }} {{ end }}{{ range .Tools }}
{{- range $name, $p := .Function.Parameters.Properties }}{{ $name }}: {{ $p | toTypeScriptType }}
{{- end }}{{ end }}"""
    assert render(typed, USER, tools=[TOOL]) == "Hi city: string"


def test_a_text_around_a_hole() -> None:
    source = "{{ if .Suffix }}<P>{{ .Prompt }}<S>{{ .Suffix }}<M>{{ else }}{{ .Prompt }}{{ end }}"
    translated = to_jinja(source)
    assert takes_suffix(translated) and not takes_suffix(to_jinja("{{ .Prompt }}"))
    found = ChatTemplate(translated).render_variables(Prompt="def f(", Suffix="return x")
    assert found == "<P>def f(<S>return x<M>"
    assert ChatTemplate(translated).render([USER]) == "Hi"


@pytest.mark.parametrize(
    "source, why",
    [
        ("a\n{{ if .System }}", "line 2: unexpected end"),
        ("{{ .Prompt", "line 1: an action has no }}"),
        ("\n\n{{ end }}", "line 3: unexpected {{end}}"),
        ("{{ if .A }}{{ else }}{{ else }}{{ end }}", "expected {{end}}"),
        ("{{ $x }}", r"undefined variable '\$x'"),
        ("{{ if true }}{{ $x := 1 }}{{ end }}{{ $x }}", "undefined variable"),
        ("{{ upper .Prompt }}", "function 'upper' is not defined"),
        ("{{ eq .Role }}", "wrong number of arguments for eq: 1"),
        ("{{ .Prompt .System }}", "takes no arguments"),
        ("{{ .Prompt | .System }}", "takes no arguments"),
        ("{{ (.Prompt }}", r"'\)' is missing"),
        ("{{ .Prompt ) }}", r"unexpected '\)'"),
        ("{{ }}", "an action is empty"),
        ("{{ if }}x{{ end }}", "a value is missing"),
        ("{{ . }}", "whole input"),
        ("{{ json . }}", "whole input"),
        ("{{ .Prompt # }}", "unexpected '# '"),
        ('{{ "\\ud800" }}', "invalid escape"),
        ("{{ break }}", "outside of"),
        ('{{ template "x" }}', "'x' is not defined"),
        ('{{ define "x" }}{{ template "x" }}{{ end }}{{ template "x" }}', "includes itself"),
        ('{{ printf "%5d" 3 }}', "unsupported format"),
        ("{{ printf .Prompt }}", "format in quotes"),
        ("{{ $a, $b := .Prompt }}", "too many variables"),
        ("{{ if 1 }}" * 70, "nested deeper than 64"),
        ("{{ print " + "(" * 70 + " }}", "nested deeper than 64"),
        ("{{ .Prompt }}{{ range .Tools }}{{ template", "needs a name|has no }}"),
    ],
)
def test_errors_name_the_line(source: str, why: str) -> None:
    with pytest.raises(
        ModelError, match=rf"Go template, line \d+: .*({why.partition(': ')[2] or why})"
    ):
        to_jinja(source)
    if why.startswith("line"):
        with pytest.raises(ModelError, match=why.partition(":")[0]):
            to_jinja(source)


def test_an_expansion_has_a_limit() -> None:
    twice = '{{ define "tA" }}{{ template "tB" }}{{ template "tB" }}{{ end }}'
    doubled = "".join(twice.replace("A", str(i)).replace("B", str(i + 1)) for i in range(40))
    with pytest.raises(ModelError, match="exceeds 4194304 characters"):
        to_jinja(doubled + '{{ define "t40" }}x{{ end }}{{ template "t0" }}')


def test_an_error_of_a_rendering_has_the_line_of_the_go_template() -> None:
    source = "{{ range .Messages }}\n{{ .Content }}\n\n{{ index 5 `x` 3 | lt 1 }}{{ end }}"
    with pytest.raises(ModelError, match="line 4"):
        render(source, USER)


def test_long_conversations_stay_within_the_limits() -> None:
    messages = [{"role": role, "content": "word " * 200} for role in ("user", "assistant")] * 500
    found = render(QWEN25, SYSTEM, *messages, USER)
    assert found.count("<|im_start|>") == 1003
    assert len(render(LLAMA3, SYSTEM, *messages, USER)) > 10**6


def test_which_templates_are_translated() -> None:
    for source in (
        LLAMA3,
        QWEN25,
        MISTRAL,
        GEMMA,
        QWEN3,
        "{{ print .Prompt }}",
        "{{- len .System }}",
    ):
        assert is_go_template(source) and template_source(source).startswith(GO_MARK)
    with pytest.raises(ModelError, match="function 'upper' is not defined"):
        template_source("{{ upper .Prompt }}")
    for source in ("{{ messages }}", "{{ range (3) }}", "{{ json }}", "{% if a %}{{ '{{ .x }}' }}"):
        assert template_source(source) == source
