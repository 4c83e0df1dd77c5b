"""Options of llama-py-server: flags, variables and defaults of llama-server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ggml_py.machine import host
from llama_py.params import ATTENTION, MAX_SEQ, POOLING, ContextParams
from llama_py.params.option import Params, option
from llama_py.params.rules import ValueRule, either, integers
from llama_py.params.texts import words
from llama_py_tools.command.chat_params import ChatParams

_POSITIVE = integers(1)


class ListenParams(Params):
    """Addresses, keys and access rules of the server."""

    group = "network"

    host: tuple[str, ...] = option(
        ("127.0.0.1",),
        "--host",
        "addresses to listen on; a name that ends in .sock is a Unix socket",
        parse=words,
        metavar="HOST,...",
    )
    port: int = option(
        8080, "--port", "port to listen on (0: any free port)", check=integers(0, 65535)
    )
    ollama: bool = option(
        False,
        "--ollama",
        "listen at Ollama's address as well (OLLAMA_HOST, by default 127.0.0.1:11434), and serve"
        " all models that `llama-py list` prints",
    )
    insecure: bool = option(
        False,
        "--insecure",
        "allow requests from other machines without an API key, if --host permits them",
    )
    check: bool = option(
        False, "--check", "print the access of clients under the given options, and exit", env=""
    )
    ui: bool = option(
        True, "--ui --webui", "serve the web page at /", off="--no-ui --no-webui", env="UI"
    )
    mcp_serve: bool = option(
        False,
        "--mcp-serve",
        "serve the models as tools of an MCP server (streamable HTTP) at /mcp; needs the extra mcp",
    )
    api_prefix: str = option(
        "", "--api-prefix", "prefix of all paths, without a slash at the end", metavar="PREFIX"
    )
    allowed_host: tuple[str, ...] = option(
        (),
        "--allowed-host",
        "additional host names in requests, such as a proxy's name (*: any name)",
        parse=words,
        many=True,
        metavar="NAME,...",
    )
    api_key: tuple[str, ...] = option(
        (),
        "--api-key",
        "API keys to accept; requests without a valid key are refused",
        parse=words,
        many=True,
        env="/LLAMA_API_KEY",
        secret=True,
        metavar="KEY,...",
    )
    api_key_file: str = option(
        "",
        "--api-key-file",
        "file with API keys, one per line",
        env="",
        metavar="FILE",
        secret=True,
    )
    ssl_key_file: str = option(
        "", "--ssl-key-file", "TLS private key, in PEM format", metavar="FILE", secret=True
    )
    ssl_cert_file: str = option(
        "", "--ssl-cert-file", "TLS certificate, in PEM format", metavar="FILE", secret=True
    )
    cors_origins: str = option(
        "*",
        "--cors-origins",
        "CORS: origins of web pages that may read responses; localhost: pages of this machine",
        metavar="ORIGINS",
    )
    cors_methods: str = option(
        "GET, POST, DELETE, OPTIONS",
        "--cors-methods",
        "CORS: methods that web pages may use",
        metavar="METHODS",
    )
    cors_headers: str = option(
        "*", "--cors-headers", "CORS: headers that web pages may send", metavar="HEADERS"
    )
    cors_credentials: bool = option(
        True,
        "--cors-credentials",
        "CORS: allow cookies and keys from pages of this machine and of the named --cors-origins",
        off="--no-cors-credentials",
    )
    timeout: int = option(
        3600,
        "-to --timeout",
        "maximum seconds per response; after this time the response ends with the current text",
        check=integers(0),
    )
    timeout_read: int = option(
        60, "--timeout-read", "maximum seconds to receive a request", check=_POSITIVE
    )
    timeout_stop: int = option(
        30,
        "--timeout-stop",
        "seconds for open responses to finish when the server stops",
        check=integers(0),
    )
    max_body: int = option(
        0,
        "--max-body",
        "maximum MiB per request (0: 64 if a model may take images, 16 otherwise)",
        check=integers(0),
        metavar="MIB",
    )
    max_bodies: int = option(
        0,
        "--max-bodies",
        "maximum MiB of all requests together (0: twice --max-body, up to a sixteenth of the RAM)",
        check=integers(0),
        metavar="MIB",
    )
    max_connections: int = option(
        1000,
        "--max-connections",
        "maximum connections and parallel requests; beyond this limit, idle connections are"
        " closed and clients without a key are refused",
        check=_POSITIVE,
    )
    client_parallel: int = option(
        0,
        "--client-parallel",
        "maximum parallel requests and slots per API key, or per address without keys (0:"
        " no limit)",
        check=integers(0),
    )
    client_requests: int = option(
        0,
        "--client-requests",
        "maximum requests per minute and API key, or address without keys (0: no limit)",
        check=integers(0),
    )
    client_tokens: int = option(
        0,
        "--client-tokens",
        "maximum tokens of prompts and responses per minute and API key, or address without"
        " keys (0: no limit)",
        check=integers(0),
    )
    sse_ping_interval: int = option(
        30,
        "--sse-ping-interval",
        "seconds without output until a stream sends a keep-alive (-1: never)",
        check=integers(-1),
    )

    def body_limits(self) -> dict[bool, tuple[int, int]]:
        """Return limits in bytes, by whether a model may take images: for one request body, and for
        all current bodies."""
        share, limits = host.memory()[1] // 16, {}
        for sees, usual in ((False, 16), (True, 64)):
            one = (self.max_body or usual) << 20
            limits[sees] = one, max(self.max_bodies << 20 or min(2 * one, share), one)
        return limits

    def keys(self) -> tuple[str, ...]:
        """Return all keys; OSError if their file cannot be read."""
        lines = Path(self.api_key_file).read_text("utf-8").splitlines() if self.api_key_file else []
        return (*self.api_key, *(line.strip() for line in lines if line.strip()))


_ALIASES = ValueRule("names without spaces", lambda names: all(n.strip() == n and n for n in names))


class ServerParams(Params):
    """Options of the served API."""

    group = "API"

    alias: tuple[str, ...] = option(
        (),
        "-a --alias",
        "names of the model in the API (default: the file's name)",
        parse=words,
        many=True,
        check=_ALIASES,
        metavar="NAME,...",
    )
    tags: tuple[str, ...] = option(
        (), "--tags", "tags of the model in /models", parse=words, many=True, metavar="TAG,..."
    )
    max_queue: int = option(
        256,
        "--max-queue",
        "maximum number of waiting requests; more are refused with status 503",
        check=_POSITIVE,
    )
    cache_prompt: bool = option(
        True, "--cache-prompt", "reuse cached prompt prefixes", off="--no-cache-prompt"
    )
    embedding: bool = option(
        False,
        "--embedding --embeddings",
        "serve embeddings of texts at /embeddings",
        env="EMBEDDINGS",
    )
    reranking: bool = option(
        False,
        "--rerank --reranking",
        "serve relevance scores of documents at /rerank",
        env="RERANKING",
    )
    normalize: int = option(
        2,
        "--embd-normalize",
        "normalization of embeddings; -1: off, 0: maximum 32760, 1: sum 1, 2: length 1, N:"
        " p-norm 1",
        check=integers(-1),
        env="",
    )
    slots: bool = option(
        True,
        "--slots",
        "serve the state of the slots at /slots",
        off="--no-slots",
        env="ENDPOINT_SLOTS",
    )
    props: bool = option(
        False, "--props", "allow POST /props to change settings", env="ENDPOINT_PROPS"
    )
    metrics: bool = option(
        False, "--metrics", "serve metrics for Prometheus at /metrics", env="ENDPOINT_METRICS"
    )
    slot_save_path: str = option(
        "", "--slot-save-path", "folder for sequences that /slots saves", metavar="FOLDER"
    )
    spm_infill: bool = option(
        False,
        "--spm-infill",
        "use the order suffix, prefix, middle for infill, instead of prefix, suffix, middle",
    )
    media_path: str = option(
        "",
        "--media-path",
        "folder with images that messages may name as file://NAME",
        metavar="FOLDER",
    )
    media_urls: str = option(
        "public",
        "--media-urls",
        "hosts of images that messages name by http(s) URLs: public addresses (public), all"
        " addresses (any), or no addresses (none)",
        choices=("public", "any", "none"),
    )
    warmup: bool = option(
        True,
        "--warmup",
        "compile kernels and run the model before the first request",
        off="--no-warmup",
    )


class ModelsParams(Params):
    """Options for the models that are served, and how many at a time."""

    model: tuple[str, ...] = option(
        (),
        "-m --model",
        "GGUF file, or short name of a model (default: the bundled demo model); may be"
        " repeated; requests then name their model",
        parse=lambda text: (text,),
        many=True,
        metavar="FILE",
    )
    models_dir: str = option(
        "",
        "--models-dir",
        "folder of models to serve, with subfolders, by the names of files or folders",
        metavar="FOLDER",
    )
    models_preset: str = option(
        "",
        "--models-preset",
        "file with models to serve and their options; a section [NAME], or [*] for all, with"
        " lines such as `ctx-size = 4096`",
        metavar="FILE",
    )
    models_cached: bool = option(
        False, "--models-cached", "serve all models that `llama-py list` prints"
    )
    models_max: int = option(
        4, "--models-max", "maximum number of loaded models (0: no limit)", check=integers(0)
    )
    models_memory: int = option(
        0,
        "--models-memory",
        "maximum MiB of all loaded models (0: the memory available when the server starts)",
        check=integers(0),
        metavar="MIB",
    )
    models_autoload: bool = option(
        True,
        "--models-autoload",
        "load a model when a request names it; off: only /models/load loads models",
        off="--no-models-autoload",
    )
    models_manage: str = option(
        "here",
        "--models-manage",
        "permission to download and remove models of the Hugging Face Hub, with"
        " --models-cached: this machine and clients with a key (here), all clients (all), or no"
        " client (none)",
        choices=("here", "all", "none"),
    )
    sleep_idle_seconds: int = option(
        -1,
        "--sleep-idle-seconds",
        "idle seconds until a model is unloaded (-1: never); the next request loads the model"
        " again",
        check=integers(-1),
    )

    @property
    def is_several(self) -> bool:
        """True if requests must name their model."""
        more = self.models_dir or self.models_preset or self.models_cached
        return bool(len(self.model) > 1 or more)


class TalkParams(ChatParams):
    """Defaults of chats, which requests may override."""

    jinja: bool = option(
        True,
        "--jinja",
        "accept tools in requests; templates are Jinja in any case",
        off="--no-jinja",
    )
    prefill_assistant: bool = option(
        True,
        "--prefill-assistant",
        "continue the last message if it has the role assistant",
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


class ServedParams(ContextParams):
    """ContextParams, of several sequences."""

    n_seq_max: int = option(
        -1,
        "-np --parallel",
        f"number of slots for parallel requests (-1: {N_SLOTS} slots, each with up to all of -c)",
        env="N_PARALLEL",
        check=either(-1, integers(1, MAX_SEQ)),
    )
    kv_unified: bool = option(
        False,
        "-kvu --kv-unified",
        "share one KV cache of -c tokens between all slots (default: on without -np); off: -c"
        " divided by -np per slot",
        off="-no-kvu --no-kv-unified",
    )
    pooling: str = option(
        "auto",
        "--pooling",
        "pooling of hidden states for embeddings (auto: from the model)",
        choices=("auto", *POOLING),
    )
    attention: str = option(
        "auto",
        "--attention",
        "attention mask, causal or non-causal (auto: from the model)",
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
