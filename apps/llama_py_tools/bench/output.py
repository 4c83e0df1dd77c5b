"""Print benchmark results as Markdown, CSV, JSON, JSON lines or SQL, with llama-bench's names."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from ggml_py.machine import host
from llama_py_tools.bench.params import BenchParams, Test, test_name

if TYPE_CHECKING:
    from llama_py import Context, Model

FLASH_ATTN = {"auto": -1, "off": 0, "on": 1}


@dataclass(frozen=True)
class BenchResult:
    """Result of one benchmark test. Each field is a column of the data formats; sizes in bytes."""

    version: str
    cpu_info: str
    backends: str
    model_filename: str
    model_type: str
    model_size: int
    model_n_params: int
    n_batch: int
    n_ubatch: int
    n_threads: int
    type_k: str
    type_v: str
    n_gpu_layers: int
    split_mode: str
    parallel: str
    tensor_split: str
    flash_attn: int
    delta_net: str
    devices: str
    repack: bool
    compute_size: int
    new_context: bool
    n_prompt: int
    n_gen: int
    n_depth: int
    test_time: str
    avg_ns: int
    stddev_ns: int
    avg_ts: float
    stddev_ts: float
    samples_ns: list[int] = field(metadata={"list": True})
    samples_ts: list[float] = field(metadata={"list": True})

    @property
    def test(self) -> str:
        """Test name: `pp512`, `tg128`, `pp512+tg128`, then ` @ d1024` and ` new` if set."""
        return test_name(self.n_prompt, self.n_gen, self.n_depth, self.new_context)


def result(test: Test, model: Model, ctx: Context, samples: list[int]) -> BenchResult:
    import llama_py

    rates = [1e9 * (test.n_prompt + test.n_gen) / ns for ns in samples]
    tensors = model.file.tensors.values()
    use = ctx.memory_breakdown().values()
    return BenchResult(
        version=llama_py.__version__,
        cpu_info=host.cpu_name(),
        backends="+".join(_backend(d.name) for d in model.devices),
        model_filename=test.model or "demo",
        model_type=model.desc,
        model_size=sum(t.nbytes for t in tensors),
        model_n_params=sum(n_elements(t.ne) for t in tensors),
        n_batch=test.n_batch,
        n_ubatch=test.n_ubatch,
        n_threads=test.threads,
        type_k=test.type_k,
        type_v=test.type_v,
        n_gpu_layers=test.n_gpu_layers,
        split_mode=test.split_mode,
        parallel=test.parallel,
        tensor_split=test.tensor_split,
        flash_attn=FLASH_ATTN[test.flash_attn],
        delta_net=test.delta_net,
        devices=model.device_names.replace(",", "/"),
        repack=not test.no_repack,
        compute_size=sum(u["compute"] for u in use),
        new_context=test.new_context,
        n_prompt=test.n_prompt,
        n_gen=test.n_gen,
        n_depth=test.n_depth,
        test_time=time.strftime("%FT%TZ", time.gmtime()),
        avg_ns=round(statistics.mean(samples)),
        stddev_ns=round(_stdev(samples)),
        avg_ts=statistics.mean(rates),
        stddev_ts=_stdev(rates),
        samples_ns=samples,
        samples_ts=rates,
    )


def _backend(device: str) -> str:
    """Return the backend name of a device, without its number and instance suffix."""
    return device.partition(".")[0].rstrip("0123456789").upper()


def _stdev(values: list[Any]) -> float:
    return statistics.stdev(values) if len(values) > 1 else 0.0


def n_elements(ne: tuple[int, ...]) -> int:
    n = 1
    for size in ne:
        n *= size
    return n


COLUMNS = [f.name for f in fields(BenchResult) if not f.metadata.get("list")]


class CSV:
    """CSV output: a header line, then one line per test; every value in quotes."""

    def __init__(self, options: BenchParams) -> None:
        self.options = options

    def header(self) -> None:
        print(",".join(COLUMNS), flush=True)

    def row(self, r: BenchResult) -> None:
        quoted = (str(_to_text(getattr(r, c))).replace('"', '""') for c in COLUMNS)
        print(",".join(f'"{value}"' for value in quoted), flush=True)

    def footer(self) -> None:
        """Omit the footer, which CSV lacks."""


def _to_text(value: Any) -> Any:
    return int(value) if isinstance(value, bool) else value


class JSONLines(CSV):
    """JSON lines output: one object per line and test."""

    def header(self) -> None:
        """Omit the header: each line names its fields."""

    def row(self, r: BenchResult) -> None:
        print(json.dumps(vars(r)), flush=True)


class JSON(CSV):
    """JSON output: a list with one object per test."""

    def header(self) -> None:
        self.separator = "[\n"

    def row(self, r: BenchResult) -> None:
        print(self.separator + json.dumps(vars(r), indent=2), end="", flush=True)
        self.separator = ",\n"

    def footer(self) -> None:
        print("\n]" if self.separator == ",\n" else "[]", flush=True)


class SQL(CSV):
    """SQL output: statements that create a table and insert one row per test."""

    def header(self) -> None:
        kinds = {"str": "TEXT", "int": "INTEGER", "bool": "INTEGER", "float": "REAL"}
        columns = [
            f"  {f.name} {kinds[str(f.type)]}" for f in fields(BenchResult) if f.name in COLUMNS
        ]
        print("CREATE TABLE IF NOT EXISTS llama_bench (\n" + ",\n".join(columns) + "\n);\n")

    def row(self, r: BenchResult) -> None:
        values = (str(_to_text(getattr(r, c))).replace("'", "''") for c in COLUMNS)
        print(
            f"INSERT INTO llama_bench ({', '.join(COLUMNS)}) "
            f"VALUES ({', '.join(repr_sql(v) for v in values)});",
            flush=True,
        )


def repr_sql(text: str) -> str:
    return f"'{text}'"


class Column(NamedTuple):
    """Column of the Markdown table.

    width   characters; a negative number aligns to the left
    option  the column is shown only if this option differs from its default
    """

    key: str
    title: str
    width: int
    option: str = ""

    def pad(self, text: str) -> str:
        return text.rjust(self.width) if self.width > 0 else text.ljust(-self.width)


COLUMNS_MD = (
    Column("model", "model", -30), Column("size", "size", 10), Column("params", "params", 10),
    Column("backends", "backend", -10), Column("n_threads", "threads", 7),
    Column("n_gpu_layers", "ngl", 3, "n_gpu_layers"), Column("n_batch", "n_batch", 7, "n_batch"),
    Column("n_ubatch", "n_ubatch", 8, "n_ubatch"), Column("type_k", "type_k", 6, "type_k"),
    Column("type_v", "type_v", 6, "type_v"), Column("flash_attn", "fa", 3, "flash_attn"),
    Column("delta_net", "delta net", -14, "delta_net"), Column("devices", "dev", -12, "device"),
    Column("split_mode", "sm", -5, "split_mode"), Column("parallel", "parallel", -9, "parallel"),
    Column("tensor_split", "ts", -8, "tensor_split"),
    Column("repack", "rpk", 3, "no_repack"),
    Column("compute", "compute", 12), Column("test", "test", 15), Column("rate", "t/s", 20),
)  # fmt: skip


class BenchTable(CSV):
    """Markdown table like llama-bench's, plus the compute buffer and each option that is set."""

    def header(self) -> None:
        given, default = vars(self.options), vars(type(self.options)())
        self.columns = [
            c for c in COLUMNS_MD if not c.option or given[c.option] != default[c.option]
        ]
        self._line([c.pad(c.title) for c in self.columns])
        self._line(["-" * (abs(c.width) - 1) + (":" if c.width > 0 else "-") for c in self.columns])

    def row(self, r: BenchResult) -> None:
        values = {
            **vars(r),
            "model": r.model_type,
            "size": bytes_text(r.model_size),
            "params": count_text(r.model_n_params),
            "compute": bytes_text(r.compute_size),
            "test": r.test,
            "rate": f"{r.avg_ts:.2f} ± {r.stddev_ts:.2f}",
        }
        self._line([c.pad(str(_to_text(values[c.key]))) for c in self.columns])

    def footer(self) -> None:
        import llama_py

        print(f"\nversion: {llama_py.__version__}", flush=True)

    def _line(self, cells: list[str]) -> None:
        print("| " + " | ".join(cells) + " |", flush=True)


def bytes_text(n: int) -> str:
    return f"{n / 2**30:.2f} GiB" if n >= 2**30 else f"{n / 2**20:.2f} MiB"


def count_text(n: int) -> str:
    return f"{n / 1e9:.2f} B" if n >= 1e9 else f"{n / 1e6:.2f} M"


PRINTERS: dict[str, type[CSV]] = {
    "md": BenchTable,
    "csv": CSV,
    "json": JSON,
    "jsonl": JSONLines,
    "sql": SQL,
}


def printer(options: BenchParams) -> CSV:
    return PRINTERS[options.output](options)
