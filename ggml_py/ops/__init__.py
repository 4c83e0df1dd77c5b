"""Op builders, named like ggml's without the prefix, in one file per family."""

from typing import TYPE_CHECKING

from ggml_py._moved import former_names
from ggml_py.ops.arithmetic import *  # noqa: F403
from ggml_py.ops.attention import *  # noqa: F403
from ggml_py.ops.backward import *  # noqa: F403
from ggml_py.ops.collective import *  # noqa: F403
from ggml_py.ops.concat import *  # noqa: F403
from ggml_py.ops.conv import *  # noqa: F403
from ggml_py.ops.conv_transpose import *  # noqa: F403
from ggml_py.ops.copy import *  # noqa: F403
from ggml_py.ops.delta_net import *  # noqa: F403
from ggml_py.ops.glu import *  # noqa: F403
from ggml_py.ops.hyper_connections import *  # noqa: F403
from ggml_py.ops.linear_attention import *  # noqa: F403
from ggml_py.ops.mask import *  # noqa: F403
from ggml_py.ops.matrix import *  # noqa: F403
from ggml_py.ops.norm import *  # noqa: F403
from ggml_py.ops.pad import *  # noqa: F403
from ggml_py.ops.pool import *  # noqa: F403
from ggml_py.ops.reduce import *  # noqa: F403
from ggml_py.ops.rope import *  # noqa: F403
from ggml_py.ops.rows import *  # noqa: F403
from ggml_py.ops.sequence import *  # noqa: F403
from ggml_py.ops.shape import *  # noqa: F403
from ggml_py.ops.sort import *  # noqa: F403
from ggml_py.ops.ssm import *  # noqa: F403
from ggml_py.ops.training import *  # noqa: F403
from ggml_py.ops.unary import *  # noqa: F403
from ggml_py.ops.upscale import *  # noqa: F403
from ggml_py.ops.window import *  # noqa: F403

if not TYPE_CHECKING:
    __getattr__ = former_names(__name__, reduced="reduce_part")
