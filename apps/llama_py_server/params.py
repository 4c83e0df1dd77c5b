"""Options of llama-py-server: flags, variables and defaults of llama-server."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ggml_py.machine import host
from llama_py.params import ATTENTION, MAX_SEQ, POOLING, ContextParams
from llama_py.params.option import Params, option
from llama_py.params.rules import ValueRule, either, integers
from llama_py.params.texts import words
from llama_py_tools.command.chat_params import ChatParams

_POSITIVE = integers(1)


@dataclass(frozen=True, kw_only=True)
class ListenParams(Params):
    """Addresses, keys and access rules of the server."""

    host: tuple[str, ...] = option(
        ("127.0.0.1",),
        "--host",
        "addresses to listen on; one that ends in .sock is a unix socket",
        parse=words,
        metavar="HOST,...",
    )
    port: int = option(8080, "--port", "port to listen on (0: any)", check=integers(0, 65535))
    insecure: bool = option(
        False, "--insecure", "other machines may ask without a key, which --host allows them"
    )
    check: bool = option(
        False, "--check", "print what clients can do with these options, and end", env=""
    )
    ui: bool = option(True, "--ui --webui", "the page at /", off="--no-ui --no-webui", env="UI")
    api_prefix: str = option(
        "",
        "--api-prefix",
        "what every path begins with, without a slash at the end",
        metavar="PREFIX",
    )
    allowed_host: tuple[str, ...] = option(
        (),
        "--allowed-host",
        "more names by which clients may ask for this server, such as a proxy's (*: any name)",
        parse=words,
        many=True,
        metavar="NAME,...",
    )
    api_key: tuple[str, ...] = option(
        (),
        "--api-key",
        "keys of which a client must have one",
        parse=words,
        many=True,
        env="/LLAMA_API_KEY",
        secret=True,
        metavar="KEY,...",
    )
    api_key_file: str = option(
        "",
        "--api-key-file",
        "a file with such keys, one a line",
        env="",
        metavar="FILE",
        secret=True,
    )
    ssl_key_file: str = option(
        "", "--ssl-key-file", "for TLS: the private key, in PEM", metavar="FILE", secret=True
    )
    ssl_cert_file: str = option(
        "", "--ssl-cert-file", "for TLS: the certificate, in PEM", metavar="FILE", secret=True
    )
    cors_origins: str = option(
        "*",
        "--cors-origins",
        "web pages that may read answers, by commas; localhost: those of this machine",
        metavar="ORIGINS",
    )
    cors_methods: str = option(
        "GET, POST, DELETE, OPTIONS", "--cors-methods", "what they may do", metavar="METHODS"
    )
    cors_headers: str = option(
        "*", "--cors-headers", "and the headers that they may send", metavar="HEADERS"
    )
    cors_credentials: bool = option(
        True,
        "--cors-credentials",
        "pages of this machine, and those that --cors-origins names, may send cookies and keys",
        off="--no-cors-credentials",
    )
    timeout: int = option(
        3600,
        "-to --timeout",
        "seconds after which an answer ends, with what there is of it",
        check=integers(0),
    )
    timeout_read: int = option(
        60, "--timeout-read", "seconds in which a request must have come", check=_POSITIVE
    )
    timeout_stop: int = option(
        30,
        "--timeout-stop",
        "seconds that answers have to end when the server is stopped",
        check=integers(0),
    )
    max_body: int = option(
        64, "--max-body", "MiB that a request may have at most", check=_POSITIVE, metavar="MIB"
    )
    max_bodies: int = option(
        0,
        "--max-bodies",
        "MiB that all requests may have together (0: twice --max-body, a sixteenth of the memory"
        " at most)",
        check=integers(0),
        metavar="MIB",
    )
    max_connections: int = option(
        1000,
        "--max-connections",
        "connections and requests at once; beyond them idle connections are closed, and clients"
        " without a key are told to come again",
        check=_POSITIVE,
    )
    client_parallel: int = option(
        0,
        "--client-parallel",
        "requests of one key (without keys: of one address) at a time (0: any number)",
        check=integers(0),
    )
    client_requests: int = option(
        0, "--client-requests", "its requests a minute (0: any number)", check=integers(0)
    )
    client_tokens: int = option(
        0,
        "--client-tokens",
        "its tokens a minute, of prompts and answers (0: any number)",
        check=integers(0),
    )
    sse_ping_interval: int = option(
        30,
        "--sse-ping-interval",
        "seconds after which a stream that is silent gives a sign of life (-1: none)",
        check=integers(-1),
    )

    def bytes_together(self) -> int:
        """Return the limit of the total bytes of all request bodies: at least one body."""
        one = self.max_body << 20
        return max(self.max_bodies << 20 or min(2 * one, host.memory()[1] // 16), one)

    def keys(self) -> tuple[str, ...]:
        """Return all keys; OSError if their file cannot be read."""
        lines = Path(self.api_key_file).read_text("utf-8").splitlines() if self.api_key_file else []
        return (*self.api_key, *(line.strip() for line in lines if line.strip()))


_ALIASES = ValueRule("names without spaces", lambda names: all(n.strip() == n and n for n in names))


@dataclass(frozen=True, kw_only=True)
class ServerParams(Params):
    """Options of the served API."""

    alias: tuple[str, ...] = option(
        (),
        "-a --alias",
        "names of the model (default: its file's)",
        parse=words,
        many=True,
        check=_ALIASES,
        metavar="NAME,...",
    )
    tags: tuple[str, ...] = option(
        (), "--tags", "words that /models has for it", parse=words, many=True, metavar="TAG,..."
    )
    max_queue: int = option(
        256,
        "--max-queue",
        "requests that wait at most; more are told to come again (503)",
        check=_POSITIVE,
    )
    cache_prompt: bool = option(
        True,
        "--cache-prompt",
        "what is held of a prompt is not computed again",
        off="--no-cache-prompt",
    )
    embedding: bool = option(
        False, "--embedding --embeddings", "/embeddings gives vectors of texts", env="EMBEDDINGS"
    )
    reranking: bool = option(
        False,
        "--rerank --reranking",
        "/rerank tells how well texts answer a query",
        env="RERANKING",
    )
    normalize: int = option(
        2,
        "--embd-normalize",
        "embeddings are divided by their size: -1 not at all, 0 the largest"
        " value becomes 32760, 1 the sum is 1, 2 the length is 1, N by the p-norm",
        check=integers(-1),
        env="",
    )
    slots: bool = option(
        True,
        "--slots",
        "/slots tells what the sequences do",
        off="--no-slots",
        env="ENDPOINT_SLOTS",
    )
    props: bool = option(False, "--props", "POST /props may change settings", env="ENDPOINT_PROPS")
    metrics: bool = option(
        False, "--metrics", "/metrics tells numbers for Prometheus", env="ENDPOINT_METRICS"
    )
    slot_save_path: str = option(
        "", "--slot-save-path", "folder to which /slots may save sequences", metavar="FOLDER"
    )
    spm_infill: bool = option(
        False,
        "--spm-infill",
        "suffix, prefix, middle instead of prefix, suffix, middle, as some models prefer it",
    )
    media_path: str = option(
        "",
        "--media-path",
        "folder of whose files messages may name images, as file://NAME",
        metavar="FOLDER",
    )
    media_urls: str = option(
        "public",
        "--media-urls",
        "from where images are fetched that messages name by http(s)"
        " URLs: the internet, but nothing of this machine's own network (public); anywhere (any);"
        " nowhere (none)",
        choices=("public", "any", "none"),
    )
    warmup: bool = option(
        True, "--warmup", "compile and run before the first request", off="--no-warmup"
    )


@dataclass(frozen=True, kw_only=True)
class ModelsParams(Params):
    """Options for the models that are served, and how many at a time."""

    model: tuple[str, ...] = option(
        (),
        "-m --model",
        "GGUF file, or a model's short name (default: the bundled demo model);"
        " given several times, requests name the one that they want",
        parse=lambda text: (text,),
        many=True,
        metavar="FILE",
    )
    models_dir: str = option(
        "",
        "--models-dir",
        "all models of this folder, or of folders in it, may be asked for by"
        " the names of their files or folders",
        metavar="FOLDER",
    )
    models_preset: str = option(
        "",
        "--models-preset",
        "all models of this file, which has options of each: a section"
        " [NAME], or [*] for all, with lines like `ctx-size = 4096`",
        metavar="FILE",
    )
    models_cached: bool = option(False, "--models-cached", "all models that `llama-py list` shows")
    models_max: int = option(
        4, "--models-max", "models that are loaded at a time (0: any number)", check=integers(0)
    )
    models_memory: int = option(
        0,
        "--models-memory",
        "MiB that they may take together (0: what is available when the server starts)",
        check=integers(0),
        metavar="MIB",
    )
    models_autoload: bool = option(
        True,
        "--models-autoload",
        "a request loads the model that it names; off: /models/load does",
        off="--no-models-autoload",
    )
    models_manage: str = option(
        "here",
        "--models-manage",
        "who may have models of the hub fetched to its cache and removed"
        " from it, with --models-cached: clients of this machine and those with a key (here),"
        " everybody, nobody",
        choices=("here", "all", "none"),
    )
    sleep_idle_seconds: int = option(
        -1,
        "--sleep-idle-seconds",
        "a model that nobody used for so long leaves the memory, until"
        " a request comes (-1: it stays)",
        check=integers(-1),
    )

    @property
    def is_several(self) -> bool:
        """True if requests must name their model."""
        more = self.models_dir or self.models_preset or self.models_cached
        return bool(len(self.model) > 1 or more)


@dataclass(frozen=True, kw_only=True)
class TalkParams(ChatParams):
    """Defaults of chats, which requests may override."""

    jinja: bool = option(
        True,
        "--jinja",
        "tools may be given; templates are Jinja texts in any case",
        off="--no-jinja",
    )
    prefill_assistant: bool = option(
        True,
        "--prefill-assistant",
        "where the last message is the assistant's, the answer goes on with it",
        off="--no-prefill-assistant",
    )


# Options of ChatParams for interactive use.
TYPED = (
    "conversation",
    "single_turn",
    "simple_io",
    "multiline_input",
    "system_prompt",
    "system_prompt_file",
)


N_SLOTS = 4  # slots of a server without -np (llama-server)


@dataclass(frozen=True, kw_only=True)
class ServedParams(ContextParams):
    """ContextParams, of several sequences."""

    n_seq_max: int = option(
        -1,
        "-np --parallel",
        f"number of slots: requests that generate at the same time (-1:"
        f" {N_SLOTS}, and each may use all of -c)",
        env="N_PARALLEL",
        check=either(-1, integers(1, MAX_SEQ)),
    )
    kv_unified: bool = option(
        False,
        "-kvu --kv-unified",
        "all slots share one KV cache of -c tokens; off: each slot has"
        " -c divided by -np (default: on without -np)",
        off="-no-kvu --no-kv-unified",
    )
    pooling: str = option(
        "auto",
        "--pooling",
        "how the rows of a text become one embedding (default: the model's)",
        choices=("auto", *POOLING),
    )
    attention: str = option(
        "auto",
        "--attention",
        "whether tokens see those after them (default: the model's)",
        choices=("auto", *ATTENTION),
        env="",
    )

    def with_slots(self, is_unified: bool | None) -> ServedParams:
        """Return these parameters with the number of slots settled (llama_server).

        Args:
            is_unified: Value of --kv-unified, None if neither it nor its opposite is set.
        """
        if self.n_seq_max > 0:
            return self
        return replace(self, n_seq_max=N_SLOTS, kv_unified=is_unified is not False)
