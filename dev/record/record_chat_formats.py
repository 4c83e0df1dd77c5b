#!/usr/bin/env python3
"""Record the cases of llama.cpp's test-chat: templates, tools, responses, and parsed messages.

    python -m dev.record.record_chat_formats llama.cpp llama.cpp/build/bin

The first folder has the sources, the second has libllama-common.so built from the same sources.
The script compiles test-chat.cpp with additional lines, which write each case with
llama.cpp's settings: grammar, triggers, stops, preserved tokens. The recording is
tests/data/chat/formats.json.xz.
"""

from __future__ import annotations

import argparse
import datetime
import json
import lzma
import subprocess
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
OUT = ROOT / "tests" / "data" / "chat" / "formats.json.xz"
RUN = "        test_peg_parser(tester_.tmpls_.get(), [this](peg_test_case & t)"
BEFORE = "struct make_peg_parser {"

DUMP = r"""
static std::ofstream & written() {
    static std::ofstream file(std::getenv("CASES_FILE"));
    return file;
}

static json message_json(const common_chat_msg & m) {
    auto calls = json::array();
    for (const auto & c : m.tool_calls) {
        json call = json::object();
        call["name"] = c.name;
        call["arguments"] = c.arguments;
        call["id"] = c.id;
        calls.push_back(call);
    }
    json out = json::object();
    out["role"] = m.role;
    out["content"] = m.content;
    out["reasoning_content"] = m.reasoning_content;
    out["tool_calls"] = calls;
    return out;
}

static void dump_case(const std::string & path, common_chat_templates * tmpls, peg_test_case tc) {
    if (tc.params.messages.empty()) {
        tc.params.messages = { message_user };
    }
    json out = json::object();
    out["template"] = path;
    out["input"] = tc.input;
    out["partial"] = tc.is_partial;
    out["expect"] = message_json(tc.expect);
    auto messages = json::array();
    for (const auto & m : tc.params.messages) {
        messages.push_back(m.to_json_oaicompat());
    }
    out["messages"] = messages;
    auto tools = json::array();
    for (const auto & t : tc.params.tools) {
        json tool = json::object();
        tool["name"] = t.name;
        tool["description"] = t.description;
        tool["parameters"] = json::parse(t.parameters);
        tools.push_back(tool);
    }
    out["tools"] = tools;
    out["tool_choice"] = (int) tc.params.tool_choice;
    out["parallel"] = tc.params.parallel_tool_calls;
    out["reasoning_format"] = common_reasoning_format_name(tc.params.reasoning_format);
    out["enable_thinking"] = tc.params.enable_thinking;
    out["add_generation_prompt"] = tc.params.add_generation_prompt;
    out["continuation"] = (int) tc.params.continue_final_message;
    out["json_schema"] = tc.params.json_schema;
    auto p = common_chat_templates_apply(tmpls, tc.params);
    out["prompt"] = p.prompt;
    out["generation_prompt"] = p.generation_prompt;
    out["lazy"] = p.grammar_lazy;
    out["has_grammar"] = !p.grammar.empty();
    auto triggers = json::array();
    for (const auto & t : p.grammar_triggers) {
        json trigger = json::object();
        trigger["type"] = (int) t.type;
        trigger["value"] = t.value;
        triggers.push_back(trigger);
    }
    out["triggers"] = triggers;
    out["preserved_tokens"] = p.preserved_tokens;
    out["stops"] = p.additional_stops;
    out["thinking_start"] = p.thinking_start_tag;
    out["thinking_ends"] = p.thinking_end_tags;
    common_peg_arena arena;
    arena.load(p.parser);
    common_chat_parser_params pp(p);
    try {
        out["parsed"] = message_json(common_chat_peg_parse(arena, tc.input, tc.is_partial, pp));
    } catch (const std::exception & e) {
        out["error"] = e.what();
    }
    written() << "CASE " << out.dump() << std::endl;
}

static void dump_analysis(const std::string & path) {
    std::ifstream file(path);
    std::string source((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    json out = json::object();
    out["template"] = path;
    try {
        common_chat_template tmpl(source, "", "");
        autoparser::autoparser a;
        a.analyze_template(tmpl);
        out["user_start"] = a.user_start;
        out["assistant_start"] = a.assistant_start;
        out["reasoning.mode"] = (int) a.reasoning.mode;
        out["reasoning.start"] = a.reasoning.start;
        out["reasoning.end"] = a.reasoning.end;
        out["content.mode"] = (int) a.content.mode;
        out["content.start"] = a.content.start;
        out["content.end"] = a.content.end;
        const auto & f = a.tools.format;
        out["format.mode"] = (int) f.mode;
        out["format.section_start"] = f.section_start;
        out["format.section_end"] = f.section_end;
        out["format.per_call_start"] = f.per_call_start;
        out["format.per_call_end"] = f.per_call_end;
        out["format.fun_name_is_key"] = f.fun_name_is_key;
        out["format.tools_array_wrapped"] = f.tools_array_wrapped;
        out["format.openai_wrapper_trigger"] = f.openai_wrapper_trigger;
        out["format.function_field"] = f.function_field;
        out["format.name_field"] = f.name_field;
        out["format.args_field"] = f.args_field;
        out["format.id_field"] = f.id_field;
        out["format.gen_id_field"] = f.gen_id_field;
        out["format.parameter_order"] = f.parameter_order;
        out["function.name_prefix"] = a.tools.function.name_prefix;
        out["function.name_suffix"] = a.tools.function.name_suffix;
        out["function.args_separator"] = a.tools.function.args_separator;
        out["function.close"] = a.tools.function.close;
        const auto & g = a.tools.arguments;
        out["arguments.start"] = g.start;
        out["arguments.end"] = g.end;
        out["arguments.name_prefix"] = g.name_prefix;
        out["arguments.name_suffix"] = g.name_suffix;
        out["arguments.value_prefix"] = g.value_prefix;
        out["arguments.value_suffix"] = g.value_suffix;
        out["arguments.separator"] = g.separator;
        out["arguments.tolerate"] = g.tolerate_intertag_whitespace;
        out["call_id.pos"] = (int) a.tools.call_id.pos;
        out["call_id.prefix"] = a.tools.call_id.prefix;
        out["call_id.suffix"] = a.tools.call_id.suffix;
        out["preserved_tokens"] = a.preserved_tokens;
        out["stops"] = a.additional_stops;
        out["tool_calls"] = a.jinja_caps.supports_tool_calls;
    } catch (const std::exception & e) {
        out["error"] = e.what();
    }
    written() << "ANALYSIS " << out.dump() << std::endl;
}

"""
MAIN = "int main(int argc, char ** argv) {\n"
ANALYSE = """
    if (argc > 1 && std::string(argv[1]) == "--analyse") {
        for (int i = 2; i < argc; i++) {
            dump_analysis(argv[i]);
        }
        return 0;
    }
    try {
        test_template_output_peg_parsers(false);
    } catch (const std::exception & e) {
        written() << "STOPPED " << json(e.what()).dump() << std::endl;
        return 1;
    }
    return 0;
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sources", type=Path)
    parser.add_argument("libraries", type=Path)
    args = parser.parse_args()
    sources, libraries = args.sources.resolve(), args.libraries.resolve()
    with tempfile.TemporaryDirectory() as folder:
        program = _compiled(sources, libraries, Path(folder))
        cases = _lines(program, sources, "CASE ")
        templates = sorted(
            {case["template"] for case in cases}
            | {f"models/templates/{p.name}" for p in (sources / "models/templates").glob("*.jinja")}
        )
        found = _lines(program, sources, "ANALYSIS ", "--analyse", *templates)
    recorded = {"day": datetime.date.today().isoformat(), "cases": cases, "analysis": found}
    OUT.write_bytes(lzma.compress(json.dumps(recorded, ensure_ascii=False).encode(), preset=9))
    print(f"{OUT}: {len(cases)} cases, {len(found)} templates")


def _compiled(sources: Path, libraries: Path, folder: Path) -> Path:
    text = (sources / "tests/test-chat.cpp").read_text()
    for at, more in ((BEFORE, DUMP + BEFORE), (MAIN, MAIN + ANALYSE)):
        if text.count(at) != 1:
            raise SystemExit(f"error: {at!r} must occur once in test-chat.cpp")
        text = text.replace(at, more)
    dump = "        dump_case(tester_.template_path(), tester_.tmpls_.get(), tc_);\n"
    text = text.replace(RUN, dump + RUN).replace('#include "../', f'#include "{sources}/tests/../')
    source, program = folder / "cases.cpp", folder / "cases"
    source.write_text(text)
    includes = [
        f"-I{sources / name}"
        for name in (
            "include",
            "ggml/include",
            "common",
            "vendor",
            "src",
            "tools/server",
            "tools/mtmd",
        )
    ]
    link = [
        f"-L{libraries}",
        "-lllama-server-impl",
        "-lmtmd",
        "-lllama-common",
        "-lllama",
        "-lggml",
        "-lggml-base",
    ]
    subprocess.run(
        [
            "g++",
            "-std=c++17",
            "-O0",
            "-w",
            *includes,
            source,
            "-o",
            program,
            *link,
            f"-Wl,-rpath,{libraries}",
        ],
        check=True,
    )
    return program


def _lines(program: Path, sources: Path, mark: str, *args: str) -> list[dict[str, Any]]:
    out = program.with_suffix(".txt")
    subprocess.run(
        [program, *args],
        cwd=sources,
        capture_output=True,
        env={"CASES_FILE": str(out)},
        check=False,
    )
    lines = out.read_text(errors="replace").split("\n")
    for line in lines:
        if line.startswith("STOPPED "):
            print(line)
    return [json.loads(line.removeprefix(mark)) for line in lines if line.startswith(mark)]


if __name__ == "__main__":
    main()
