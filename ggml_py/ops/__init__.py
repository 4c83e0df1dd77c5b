"""Op builders, named as ggml's without the prefix. Families are in the files beside this one."""

from ggml_py.ops.attention import *  # noqa: F403
from ggml_py.ops.copy import *  # noqa: F403
from ggml_py.ops.elementwise import *  # noqa: F403
from ggml_py.ops.mask import *  # noqa: F403
from ggml_py.ops.matrix import *  # noqa: F403
from ggml_py.ops.norm import *  # noqa: F403
from ggml_py.ops.recurrent import *  # noqa: F403
from ggml_py.ops.reduce import *  # noqa: F403
from ggml_py.ops.rope import *  # noqa: F403
from ggml_py.ops.rows import *  # noqa: F403
from ggml_py.ops.shape import *  # noqa: F403
