"""Plant one fault in each room and check that the quick set finds it.

    python -m dev.torture.planted [ROOM ...]

Each fault is planted in a copy of the checkout. There `pytest -m quick -x` runs the file that
should find the fault, then all files if that passes. Prints a row per fault: room, file, the test
that fails. Exits with 1 if a fault is missed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Fault(NamedTuple):
    """A change of one line.

    Attributes:
        room: Folder or package of the file.
        test: File of the quick set that runs first, without `.py`.
        path: File to change.
        before: Text that occurs once in the file.
        after: Its replacement.
    """

    room: str
    test: str
    path: str
    before: str
    after: str


FAULTS = (
    Fault(
        "ggml_py",
        "ggml_py/test_order",
        "ggml_py/plan/order.py",
        "    move(node)\n    while",
        "    while",
    ),
    Fault(
        "ggml_cpu",
        "ops/test_first_cases",
        "backends/ggml_cpu/kernels/unary.py",
        "v.select(x < 0.0, -1.0, x * 0.0)",
        "v.select(x < 0.0, 1.0, x * 0.0)",
    ),
    Fault(
        "ggml_ref",
        "ops/test_first_cases",
        "backends/ggml_ref/ops/norm.py",
        "    return x / maximum(length",
        "    return x * maximum(length",
    ),
    Fault(
        "support",
        "llama_py/test_whole_file",
        "llama_py/support/whole_file.py",
        "> ABANDONED",
        "< ABANDONED",
    ),
    Fault(
        "gguf",
        "llama_py/test_gguf_refused",
        "llama_py/gguf/metadata.py",
        "        if key in values:",
        "        if not key:",
    ),
    Fault(
        "tokenizer",
        "llama_py/test_tokenizer",
        "llama_py/tokenizer/characters.py",
        "return character.lower()[0] if",
        "return character.upper()[0] if",
    ),
    Fault(
        "grammar",
        "llama_py/test_gbnf",
        "llama_py/grammar/gbnf.py",
        'self.peek() == "|"',
        'self.peek() == "/"',
    ),
    Fault(
        "params",
        "llama_py/test_like",
        "llama_py/params/like.py",
        "if computed and like ==",
        "if computed and like !=",
    ),
    Fault(
        "hparams",
        "llama_py/test_window",
        "llama_py/hparams/layer_shape.py",
        "p1 - p0 >= self.size",
        "p1 - p0 > self.size",
    ),
    Fault(
        "sampler",
        "llama_py/test_sampler_cases",
        "llama_py/sampler/penalties.py",
        "old <= 0, old * self.repeat",
        "old > 0, old * self.repeat",
    ),
    Fault(
        "chat",
        "llama_py/test_templates",
        "llama_py/chat/template.py",
        '"eos_token": self.eos,\n            "da',
        '"eos_token": self.bos,\n            "da',
    ),
    Fault(
        "batch",
        "llama_py/test_batch",
        "llama_py/batch/splitter.py",
        "end = min(first + n_ubatch, self.n_tokens)",
        "end = min(first + n_ubatch + 1, self.n_tokens)",
    ),
    Fault(
        "memory",
        "llama_py/test_memory_kv",
        "llama_py/memory/cells.py",
        "max(p0, 0)) & (self.pos < p1))",
        "max(p0, 0)) & (self.pos <= p1))",
    ),
    Fault(
        "adapters",
        "llama_py/test_control_vector",
        "llama_py/adapters/control_vector.py",
        "directions[il - 1], np.float32",
        "directions[il - 2], np.float32",
    ),
    Fault(
        "graph",
        "golden/test_nodes",
        "llama_py/graph/linear.py",
        "self.before_bias) if self.before_bias else res, self.bias",
        "self.before_bias) if self.before_bias else res, res",
    ),
    Fault(
        "hooks",
        "llama_py/test_hook_points",
        "llama_py/hooks/points.py",
        "        return post.src[0]\n",
        "        return post.src[1]\n",
    ),
    Fault(
        "weights",
        "llama_py/test_placement",
        "llama_py/weights/placement.py",
        "[self.host] * (n_layer_all + 1 - n)",
        "[self.host] * (n_layer_all - n)",
    ),
    Fault(
        "blocks",
        "golden/test_nodes",
        "llama_py/blocks/experts.py",
        "if self.weighing.normed:",
        "if not self.weighing.normed:",
    ),
    Fault(
        "vision",
        "vision/test_image",
        "llama_py/vision/resize.py",
        "    a, x = -0.5, abs(x)",
        "    a, x = -0.75, abs(x)",
    ),
    Fault(
        "models",
        "golden/test_nodes",
        "llama_py/models/llama.py",
        "    rope_type = ROPE_NORMAL\n",
        "",
    ),
    Fault(
        "loading",
        "llama_py/test_readers",
        "llama_py/loading/weight_users.py",
        "for embeddings in (False, True):",
        "for embeddings in (False,):",
    ),
    Fault(
        "quantize",
        "llama_py/test_quantize_types",
        "llama_py/quantize/mix.py",
        'if self.default.name == "q8_0" else BY_NAME["q6_K"]',
        'if self.default.name == "q8_0" else BY_NAME["q5_K"]',
    ),
    Fault(
        "context",
        "llama_py/test_following",
        "llama_py/context/next_token.py",
        "if given != last.seq_id:",
        "if not given:",
    ),
    Fault(
        "decoding",
        "llama_py/test_context_shift",
        "llama_py/decoding/keep.py",
        "(held - n_keep) // 2",
        "held // 2",
    ),
    Fault(
        "steering",
        "llama_py/test_steering",
        "llama_py/steering/reduce.py",
        "return -found if found @",
        "return found if found @",
    ),
    Fault(
        "fit",
        "llama_py/test_planning",
        "llama_py/fit/planning.py",
        "devices_in_use(found), free)",
        "devices_in_use(found), free[1:])",
    ),
    Fault(
        "text",
        "llama_py/test_text_stream",
        "llama_py/text/text_stream.py",
        "range(min(len(text), longest - 1), 0, -1)",
        "range(0)",
    ),
    Fault(
        "serving",
        "serving/test_pace",
        "llama_py/serving/prefill_budget.py",
        "            budget -= found[i]\n",
        "",
    ),
    Fault(
        "llama_py_tools",
        "cli/test_escapes",
        "apps/llama_py_tools/command/escapes.py",
        "return len(text) == 2 and all",
        "return bool(text) and all",
    ),
    Fault(
        "llama_py_server",
        "server/test_fields",
        "apps/llama_py_server/schema/fields.py",
        "if isinstance(value, bool) and value is not False:",
        "if isinstance(value, str):",
    ),
)


def planted_in(text: str, fault: Fault) -> str:
    """Return a file's text with the fault."""
    if text.count(fault.before) != 1:
        raise SystemExit(f"{fault.path}: {fault.before!r} must occur once; adapt the fault")
    return text.replace(fault.before, fault.after)


def copy_tree(to: Path) -> None:
    """Copy all files that git tracks, or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def found_by(tree: Path, fault: Fault) -> str:
    """Return the first test that fails with the fault, or ""."""
    path = tree / fault.path
    good = path.read_text(encoding="utf-8")
    path.write_text(planted_in(good, fault), encoding="utf-8")
    homes = (tree, tree / "backends", tree / "apps")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, homes))}
    try:
        return _first_failure(tree, env, f"tests/{fault.test}.py") or _first_failure(tree, env)
    finally:
        path.write_text(good, encoding="utf-8")


def _first_failure(tree: Path, env: dict[str, str], *files: str) -> str:
    command = [sys.executable, "-m", "pytest", "-m", "quick", "-x", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *files], cwd=tree, env=env, capture_output=True, text=True)
    if done.returncode == 0:
        return ""
    found = FAILED.search(done.stdout)
    return found[1] if found else done.stdout.strip()[-200:]


def main(rooms: Sequence[str]) -> int:
    """Plant the faults of some rooms, of all without a name."""
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        for fault in FAULTS:
            if rooms and fault.room not in rooms:
                continue
            test = found_by(Path(folder), fault)
            missed += not test
            shown = f"`{test.removeprefix('tests/')}`" if test else "missed"
            print(f"| `{fault.room}` | `{fault.path}` | {shown} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
