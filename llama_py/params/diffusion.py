"""Options of diffusion models: a text is masked, then unmasked token by token in any order."""

from __future__ import annotations

from ggml_py.errors import ContextError
from llama_py.params.option import Params, option
from llama_py.params.rules import integers, numbers
from llama_py.params.texts import number

ALGORITHMS = ("origin", "entropy", "margin", "random", "confidence")
STEPS, EPS = 128, 1e-3


class DiffusionParams(Params):
    """Options of unmasking (examples/diffusion)."""

    error = ContextError

    steps: int | None = option(
        None,
        "--diffusion-steps",
        f"number of denoising steps (default: {STEPS})",
        check=integers(1),
        env="",
    )
    eps: float = option(
        0.0,
        "--diffusion-eps",
        f"smallest timestep of a schedule over the whole text (default: {EPS:g} without"
        " --diffusion-block-length)",
        check=numbers(0, 1),
        env="",
    )
    block_length: int = option(
        0,
        "--diffusion-block-length",
        "tokens per block, for unmasking block by block (0: the whole text)",
        check=integers(0),
        env="",
    )
    algorithm: int = option(
        4,
        "--diffusion-algorithm",
        "order of unmasking; 0: any masked token; drawn tokens: 1: lowest entropy, 2: largest"
        " margin to the second, 3: any, 4: highest probability",
        check=integers(0, len(ALGORITHMS) - 1),
        metavar="0..4",
        env="",
    )
    alg_temp: float = option(
        0.0,
        "--diffusion-alg-temp",
        "randomness of the order of unmasking (0: off)",
        check=numbers(0),
        env="",
    )
    cfg_scale: float = option(
        0.0,
        "--diffusion-cfg-scale",
        "scale of classifier-free guidance, away from the text without the prompt (0: off)",
        check=numbers(0),
        env="",
    )
    add_gumbel_noise: bool = option(
        False,
        "--diffusion-add-gumbel-noise",
        "add Gumbel noise to the logits if the temperature is above 0",
        parse=lambda text: bool(number(text)),
        metavar="0|1",
        env="",
    )
    visual: bool = option(False, "--diffusion-visual", "print the text after each step", env="")

    @property
    def is_set(self) -> bool:
        """True if any option is set."""
        return bool(self.steps or self.eps or self.block_length)
