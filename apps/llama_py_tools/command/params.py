"""Options that several commands share, in addition to the library's options."""

from __future__ import annotations

from llama_py.params.option import Params, option
from llama_py.params.texts import integer, parse_text, shown_url, words
from llama_py_tools.command.logs import CommonParams as CommonParams


def token_list(text: str) -> tuple[int, ...]:
    """Parse `1,2,3` to numbers."""
    return parse_text(lambda _: tuple(map(int, words(text))), text, "token ids such as 1,2,3")


def plain_files(text: str) -> tuple[tuple[str, float], ...]:
    """Parse `a.gguf,b.gguf` to pairs with the factor 1."""
    return tuple((path, 1.0) for path in words(text))


def scaled_files(text: str) -> tuple[tuple[str, float], ...]:
    """Parse `a.gguf:0.5,b.gguf:-1` to pairs."""
    parts = [file.rpartition(":") for file in words(text)]
    pairs = ((path, float(factor)) for path, _, factor in parts)
    return parse_text(lambda _: tuple(pairs), text, "FILE:SCALE,...")


# Common options of commands that run a model.
RUN = "-m -hf -c -b -ub -t -fa -ctk -ctv -dev -ngl -v"

# Values of --load-mode, with the options of ModelParams that they set.
LOAD_MODES: dict[str, dict[str, bool]] = {
    "auto": {},
    "none": {"use_mmap": False},
    "mmap": {"use_mmap": True},
    "mlock": {"use_mmap": False, "use_mlock": True},
    "mmap+mlock": {"use_mmap": True, "use_mlock": True},
}


class FileParams(Params):
    """Options of the model file and its weights."""

    group = "model"

    model: str = option(
        "",
        "-m --model",
        "GGUF file or short name (default: the bundled demo model)",
        metavar="FILE",
    )
    model_url: str = option(
        "",
        "-mu --model-url",
        "URL of a GGUF file to download once, to the file of -m or to the folder LLAMA_CACHE",
        metavar="URL",
        secret=True,
    )
    hf_repo: str = option(
        "",
        "-hf -hfr --hf-repo",
        "model of the Hugging Face Hub, instead of -m; without a type: Q4_K_M, Q8_0 or the"
        " first file",
        metavar="USER/MODEL[:TYPE]",
    )
    hf_file: str = option(
        "", "-hff --hf-file", "file name in the Hub repository, instead of a type", metavar="NAME"
    )
    hf_token: str = option(
        "",
        "-hft --hf-token",
        "access token of the Hub (default: the token of the Hub's login)",
        env="/HF_TOKEN",
        secret=True,
        metavar="TOKEN",
    )
    offline: bool = option(False, "--offline", "use cached files only, without network access")
    load_mode: str = option(
        "auto",
        "-lm --load-mode",
        "method of loading: map the file (auto, mmap) or read it first (none); with mlock, lock"
        " the weights in RAM",
        choices=tuple(LOAD_MODES),
        metavar="MODE",
    )
    check_tensors: bool = option(
        False, "--check-tensors", "check before use that all weights are finite numbers"
    )
    repack: bool = option(
        True,
        "--repack",
        "repack weights for speed; off: use the weights in the file's layout",
        off="-nr --no-repack",
    )

    @property
    def has_model(self) -> bool:
        """True if the options name a model, other than the bundled one."""
        return bool(self.model or self.hf_repo or self.model_url)

    @property
    def title(self) -> str:
        return self.model or self.hf_repo or shown_url(self.model_url) or "demo"


class DraftFileParams(Params):
    """A model that drafts, of the hub."""

    group = "speculative decoding"

    hf_repo_draft: str = option(
        "",
        "-hfd -hfrd --hf-repo-draft --spec-draft-hf",
        "draft model of the Hugging Face Hub, instead of -md",
        env="SPEC_DRAFT_HF_REPO",
        metavar="USER/MODEL[:TYPE]",
    )


class FormParams(Params):
    """Options that abbreviate --form."""

    group = "context"

    delta_net: str = option(
        "auto",
        "--delta-net",
        "variant of Gated DeltaNet, short for --form delta_net=FORM",
        metavar="FORM",
    )

    @property
    def forms(self) -> dict[str, str]:
        return {} if self.delta_net == "auto" else {"delta_net": self.delta_net}


class SteeringParams(Params):
    """Adapters and control vectors."""

    group = "adapters"

    lora: tuple[tuple[str, float], ...] = option(
        (), "--lora", "LoRA adapters to apply", parse=plain_files, many=True, metavar="FILE,..."
    )
    lora_scaled: tuple[tuple[str, float], ...] = option(
        (),
        "--lora-scaled",
        "LoRA adapters to apply, each with a scale",
        parse=scaled_files,
        many=True,
        metavar="FILE:SCALE,...",
    )
    lora_init_without_apply: bool = option(
        False, "--lora-init-without-apply", "load the LoRA adapters without applying them"
    )
    control_vector: tuple[tuple[str, float], ...] = option(
        (),
        "--control-vector",
        "control vectors to add to the layers' outputs",
        parse=plain_files,
        many=True,
        metavar="FILE,...",
    )
    control_vector_scaled: tuple[tuple[str, float], ...] = option(
        (),
        "--control-vector-scaled",
        "control vectors to add to the layers' outputs, each with a scale",
        parse=scaled_files,
        many=True,
        metavar="FILE:SCALE,...",
    )
    control_vector_layer_range: tuple[int, ...] = option(
        (),
        "--control-vector-layer-range",
        "first and last layer for control vectors",
        parse=integer,
        nargs=2,
        metavar=("START", "END"),
    )


class InputParams(Params):
    """Options for the input of debugging tools."""

    group = "prompt"

    prompt: str = option("", "-p --prompt", "prompt to run", metavar="TEXT")
    tokens: tuple[int, ...] = option(
        (), "--tokens", "token ids to run, instead of a prompt", parse=token_list, metavar="1,2,3"
    )
    decode: int = option(
        0, "--decode", "number of tokens to decode after the prompt, chosen greedily"
    )
