"""Which nodes of a graph a name means.

A name is a node's (`l_out-3`), a pattern of such (`l_out-*`, as `fnmatch` has them), or one of
TransformerLens's hook points (`blocks.3.hook_resid_post`, `blocks.*.hook_resid_post`). Of several
nodes with one name the last is meant; `Qcur-3#0` is the first, `Qcur-3#-2` the last but one.

`kq_soft_max-3`, and `blocks.3.attn.hook_pattern`, are there with flash attention too, which never
makes them: they are computed beside it.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ggml_py.errors import ContextError
from ggml_py.tensor import FLAG_COMPUTE, Tensor
from llama_py.graph.result import GraphResult, Weights

WEIGHTS = "kq_soft_max-{il}"
EMBEDDINGS = ("inp_scaled", "embd", "inp_embd", "model.input_embed")
# hook point -> nodes that it may be, the best first
POINTS = {
    "hook_embed": EMBEDDINGS,
    "ln_final.hook_normalized": ("result_norm",),
    "hook_logits": ("result_output",),
}
LAYER_POINTS = {
    "hook_resid_pre": ("l_out-{before}", *EMBEDDINGS),
    "hook_resid_mid": ("ffn_inp-{il}", "attn_residual-{il}"),
    "hook_resid_post": ("l_out-{il}",),
    "hook_attn_out": ("attn_post_norm-{il}", "attn_out-{il}", "attn_output-{il}",
                      "linear_attn_out-{il}", "kqv_out-{il}"),
    "hook_mlp_out": ("ffn_post_norm-{il}", "ffn_out-{il}", "ffn_moe_out-{il}"),
    "ln1.hook_normalized": ("attn_norm-{il}",),
    "ln2.hook_normalized": ("ffn_norm-{il}", "attn_post_norm-{il}"),
    "attn.hook_q": ("Qcur_normed-{il}", "Qcur-{il}#0"),
    "attn.hook_k": ("Kcur_normed-{il}", "Kcur-{il}#0"),
    "attn.hook_v": ("Vcur-{il}#0",),
    "attn.hook_rot_q": ("Qcur-{il}",),
    "attn.hook_rot_k": ("Kcur-{il}",),
    "attn.hook_attn_scores": ("kq-{il}",),
    "attn.hook_pattern": (WEIGHTS,),
    "attn.hook_z": ("kqv_out-{il}",),
    "mlp.hook_post": ("ffn_swiglu-{il}", "ffn_geglu-{il}", "ffn_reglu-{il}", "ffn_silu-{il}",
                      "ffn_gelu-{il}", "ffn_relu-{il}"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Found:
    """A node that was asked for.

    key      what it is called for the one who asked
    weights  builds what is meant instead of its own value: the weights of its attention
    """

    key: str
    node: Tensor
    weights: Weights | None = None


class Names:
    """The names of a graph's nodes."""

    def __init__(self, res: GraphResult) -> None:
        self._nodes: dict[str, list[Found]] = {}
        for t in res.graph.nodes:
            if t.flags & FLAG_COMPUTE:
                self._nodes.setdefault(t.name, []).append(Found(t.name, t))
        for il, (node, weights) in res.attention.items():
            self._nodes.setdefault(WEIGHTS.format(il=il), [Found("", node, weights)])
        self._n_layers = 1 + max((_layer(name) for name in self._nodes), default=-1)

    def find(self, pattern: str) -> list[Found]:
        """What a name or a pattern means; nothing where there is no such node."""
        if "hook_" in pattern:
            return [
                Found(point, found.node, found.weights)
                for point, names in self._points()
                if fnmatchcase(point, pattern) and (found := self._first(names)) is not None
            ]
        name, _, number = pattern.partition("#")
        names = [name] if name in self._nodes else fnmatch_all(self._nodes, name)
        numbered = [(n, self._numbered(n, number)) for n in names]
        end = f"#{number}" if number else ""
        return [Found(n + end, f.node, f.weights) for n, f in numbered if f is not None]

    def similar(self, pattern: str) -> list[str]:
        """A few names that may have been meant."""
        known = [*(point for point, _ in self._points()), *self._nodes]
        return difflib.get_close_matches(pattern, known, 4, 0.5)

    def _numbered(self, name: str, number: str) -> Found | None:
        nodes, i = self._nodes[name], int(number or -1)
        return nodes[i] if -len(nodes) <= i < len(nodes) else None

    def _first(self, names: Iterable[str]) -> Found | None:
        for name in names:
            name, _, number = name.partition("#")
            if name in self._nodes:
                return self._numbered(name, number)
        return None

    def _points(self) -> list[tuple[str, list[str]]]:
        points = [(point, list(names)) for point, names in POINTS.items()]
        for il in range(self._n_layers):
            for point, names in LAYER_POINTS.items():
                made = [n.format(il=il, before=il - 1) for n in names]
                if point == "hook_resid_pre" and il:
                    made = made[:1]
                points.append((f"blocks.{il}.{point}", made))
        return points


def checked(pattern: str) -> str:
    """ContextError for what can be no name."""
    if not isinstance(pattern, str) or not re.fullmatch(r"[^#]+(#-?\d+)?", pattern):
        raise ContextError(
            f"{pattern!r} is no name of nodes; l_out-3, l_out-*, Qcur-3#0 and"
            " blocks.3.hook_resid_post are"
        )
    return pattern


def fnmatch_all(names: Iterable[str], pattern: str) -> list[str]:
    return [name for name in names if fnmatchcase(name, pattern)]


def _layer(name: str) -> int:
    found = re.search(r"-(\d+)$", name)
    return int(found[1]) if found else -1
