#!/usr/bin/env python3
"""Run features of many clients against llama-py-server, and write docs/clients.md.

    python -m dev.clients.run_clients [NAME ...] [--jobs 2] [--folder DIR]

Needs a network, pip, and for clients of npm Node. clients.json has the names. Each client gets an
environment with its pinned packages, in a temporary folder or in --folder, which keeps them. One
script of `scripts` uses its public API. The server has the demo model, and template.jinja, because
the demo model does not choose tools. The page has the clients that ran, also in earlier runs.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE, ROOT = Path(__file__).parent, Path(__file__).resolve().parents[2]
SCRIPTS, TEMPLATE = HERE / "scripts", HERE / "template.jinja"
PAGE, DATA, HEADING = ROOT / "docs/clients.md", ROOT / "docs/clients.json", "## Results\n"
CLIENTS: dict[str, dict[str, Any]] = json.loads((HERE / "clients.json").read_text("utf-8"))
FEATURES = ("chat", "stream", "tools", "schema", "embeddings", "logprobs")
WAIT = 900  # seconds of an installation, and of a script
SERVER = ("--embeddings", "-c", "65536", "-n", "200", "--temp", "0", "--port", "0")
SPACES = (197, 198, 220, 272)  # tokens of spaces only: the demo model would fill JSON with spaces
FLAGS = (*SERVER, "--chat-template-file", str(TEMPLATE), *(f"-l={id}-100" for id in SPACES))
PRIVATE = re.compile("OPENAI_|ANTHROPIC_|OLLAMA_|HF_|LITELLM_|AZURE_")  # variables of clients
QUIET = {
    "ANONYMIZED_TELEMETRY": "False", "CREWAI_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1",
    "CREWAI_TRACING_ENABLED": "false", "HAYSTACK_TELEMETRY_ENABLED": "False",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OTEL_SDK_DISABLED": "true",
}  # fmt: skip
HEAD = ("client", "version", "connection", "chat", "stream", "tools", "structured output",
        "embeddings", "log probabilities")  # fmt: skip
Results = dict[str, dict[str, Any]]


def main() -> int:
    """Return 0 if no feature failed."""
    p = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("names", nargs="*", metavar="NAME", help="clients; default: all")
    p.add_argument("--jobs", type=int, default=2, metavar="N", help="clients in parallel")
    p.add_argument("--folder", type=Path, metavar="DIR", help="environments, which remain")
    p.add_argument("--url", help="a server with template.jinja that is already running")
    args = p.parse_args()
    unknown = set(args.names) - set(CLIENTS)
    if unknown:
        p.error(f"unknown clients {sorted(unknown)}; known: {', '.join(CLIENTS)}")
    failed = False
    with tempfile.TemporaryDirectory() as made, serve(args.url) as url:
        folder = (args.folder or Path(made)).resolve()
        with ThreadPoolExecutor(args.jobs) as pool:
            each = [
                pool.submit(run_client, name, url, folder) for name in args.names or list(CLIENTS)
            ]
            for one in as_completed(each):
                failed |= any(result["failures"] for result in one.result().values())
                write_results(one.result())
    return int(failed)


def read_results() -> Results:
    return json.loads(DATA.read_text("utf-8")) if DATA.exists() else {}


def write_results(found: Results) -> None:
    """Add results to the stored results, and write the page."""
    results = {**read_results(), **found}
    results = {name: results[name] for name in CLIENTS if name in results}
    DATA.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(page(results), encoding="utf-8")


@contextmanager
def serve(url: str | None) -> Iterator[str]:
    """Yield the address of a server of the demo model. url: of a server that runs already"""
    if url:
        yield url
        return
    program = Path(sys.executable).with_name("llama-py-server")
    command = [str(program), *FLAGS]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            while not (found := re.search(r"http://\S+", read_log(log))) or not is_ready(found[0]):
                if process.poll() is not None:
                    raise SystemExit(read_log(log))
                time.sleep(0.2)
            yield found[0]
        finally:
            process.terminate()
            process.wait()


def read_log(log: Any) -> str:
    return os.pread(log.fileno(), 1 << 20, 0).decode()


def is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def run_client(name: str, url: str, folder: Path) -> Results:
    """Install and run a client. -> {name: its results}; {} if it did not start"""
    client, place = CLIENTS[name], folder / re.sub(r"\W+", "-", name).strip("-")
    script = SCRIPTS / client["script"]
    is_npm = script.suffix == ".mjs"
    install = install_npm if is_npm else install_python
    try:
        stamp = place / "packages.txt"
        packages = "\n".join(client["packages"])
        if not stamp.exists() or stamp.read_text("utf-8") != packages:
            shutil.rmtree(place, ignore_errors=True)
            install(place, client["packages"])
            stamp.write_text(packages, "utf-8")
    except subprocess.SubprocessError as e:
        shutil.rmtree(place, ignore_errors=True)
        print(f"{name}: not installed: {getattr(e, 'stderr', '') or e}"[-400:], flush=True)
        return {}
    for file in (SCRIPTS / "feature.mjs", script) if is_npm else ():
        shutil.copy(file, place)
    command = ["node", script.name] if is_npm else [str(python_of(place)), str(script)]
    kept = {key: value for key, value in os.environ.items() if not PRIVATE.match(key)}
    path = os.pathsep.join([str(place / "node_modules" / ".bin"), kept.get("PATH", "")])
    environment = {**kept, **QUIET, "HOME": str(place), "PYTHONPATH": "", "PATH": path}
    try:
        done = subprocess.run(
            [*command, url], cwd=place, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False, timeout=WAIT,
        )  # fmt: skip
        lines, error = done.stdout.splitlines(), done.stderr
    except subprocess.TimeoutExpired as e:
        lines, error = (e.stdout or b"").decode().splitlines(), f"no end within {WAIT} s"
    result = read_lines(lines, error)
    print(name, json.dumps(result), flush=True)
    return {name: result} if result["version"] else {}


def install_python(place: Path, packages: Sequence[str]) -> None:
    """Create a virtual environment."""
    run([sys.executable, "-m", "venv", "--without-pip", place])
    run([sys.executable, "-m", "pip", "--python", python_of(place), "install", "-q", *packages])


def install_npm(place: Path, packages: Sequence[str]) -> None:
    """Create a folder with packages."""
    place.mkdir(parents=True)
    (place / "package.json").write_text('{"private": true, "type": "module"}')
    run([shutil.which("npm") or "npm", "install", "--silent", "--prefix", place, *packages])


def python_of(place: Path) -> Path:
    return place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def run(command: Sequence[Any]) -> None:
    subprocess.run(
        [str(part) for part in command], check=True, capture_output=True, text=True, timeout=WAIT
    )


def read_lines(lines: Sequence[str], error: str) -> dict[str, Any]:
    """Read the JSON lines of a script. A feature without a line failed with the last error."""
    records = [json.loads(line) for line in lines if line.startswith('{"client"')]
    by_name = {record["feature"]: record for record in records}
    last = " ".join((error.strip().splitlines() or ["no output"])[-1].split())[:400]
    missing = {"ok": False, "said": last}
    each = {name: by_name.get(name, missing) for name in FEATURES}
    return {
        "version": records[0]["version"] if records else "",
        "works": [name for name, one in each.items() if one["ok"]],
        "failures": {name: one["said"] for name, one in each.items() if one["ok"] is False},
    }


def page(results: Results) -> str:
    """Return the page: its text up to the results, and their tables."""
    before = PAGE.read_text("utf-8").split(HEADING)[0]
    failed = [
        f"| {name} | {feature} | {said.replace('|', chr(92) + '|')} |"
        for name, result in results.items()
        for feature, said in result["failures"].items()
    ]
    lines = [table_row(HEAD), "|---" * len(HEAD) + "|"]
    lines += [row(name, CLIENTS[name], result) for name, result in results.items()]
    if failed:
        lines += ["", "| client | feature | error |", "|---|---|---|", *failed]
    return f"{before}{HEADING}\n" + "\n".join(lines) + "\n"


def row(name: str, client: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    link = f"[{name}](../dev/clients/scripts/{client['script']})"
    return table_row((link, result["version"], client["connect"], *map(cell(result), FEATURES)))


def cell(result: Mapping[str, Any]) -> Any:
    def write(feature: str) -> str:
        if feature in result["works"]:
            return "works"
        return "**fails**" if feature in result["failures"] else "-"

    return write


def table_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
