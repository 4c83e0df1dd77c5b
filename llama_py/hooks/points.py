"""TransformerLens's hook points, and the node that has each value.

Nodes have llama.cpp's names, but some values have no name: attention's term of the residual
stream, for example, is the unnamed product with `wo`. A rule finds such a value from a named node:
here, the other operand of `ffn_inp-3`. It returns None if the layer does not have the value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ggml_py.tensor import Tensor


class NamedNodes(Protocol):
    """The nodes of a graph by name."""

    def get_nodes(self, name: str) -> Sequence[Tensor]:
        """Return the nodes of a name in the order of the graph, or an empty sequence."""


Rule = Callable[[NamedNodes, int], Tensor | None]

EMBEDDINGS = ("inp_scaled", "embd", "inp_embd", "model.input_embed", "model.embed_tokens")
BEFORE_LAYERS = ("inpL", "inp_norm", *EMBEDDINGS)
BESIDE_PRODUCT = ("ADD", "MUL", "CLAMP", "RESHAPE", "VIEW", "CONT")
NORMS = ("RMS_NORM", "NORM")


def last_node(*names: str) -> Rule:
    """Return a rule for the last node of the first existing name; `{il}` is the layer's number."""

    def rule(nodes: NamedNodes, il: int) -> Tensor | None:
        found = (nodes.get_nodes(name.format(il=il)) for name in names)
        return next((same[-1] for same in found if same), None)

    return rule


def first_node(name: str) -> Rule:
    def rule(nodes: NamedNodes, il: int) -> Tensor | None:
        return next(iter(nodes.get_nodes(name.format(il=il))), None)

    return rule


def last_projection(*names: str) -> Rule:
    """Return a rule for the last product of weights, with a bias: before norms and RoPE."""

    def rule(nodes: NamedNodes, il: int) -> Tensor | None:
        found = (
            t for name in names for t in nodes.get_nodes(name.format(il=il)) if _is_projected(t)
        )
        return next(reversed([*found]), None)

    return rule


def last_rope(*names: str) -> Rule:
    def rule(nodes: NamedNodes, il: int) -> Tensor | None:
        all_of = [t for name in names for t in nodes.get_nodes(name.format(il=il))]
        return next((t for t in reversed(all_of) if t.op == "ROPE"), None)

    return rule


def resid_pre(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the previous layer's result; for the first layer its norm's input, unless an
    embedding."""
    if il:  # layers in between may be empty
        before = (resid_post(nodes, i) for i in reversed(range(il)))
        return next((t for t in before if t is not None), None)
    normed, middle = ln1(nodes, il), resid_mid(nodes, il)
    candidates = [last_node(name)(nodes, il) for name in BEFORE_LAYERS]
    candidates.insert(0, normed and normed.src[0])
    there = (t for t in candidates if t is not None)
    return next((t for t in there if middle is None or _find_addend(middle, t) is not None), None)


resid_mid = last_node("ffn_inp-{il}", "sa_out-{il}", "attn_residual-{il}")
resid_post = last_node("nemotron_h_block_out-{il}", "ffn_residual-{il}", "l_out-{il}")


def attn_out(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the value that attention adds to the residual stream."""
    return _find_addend(resid_mid(nodes, il), resid_pre(nodes, il))


def mlp_out(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the value that the rest of the layer adds, without a control vector."""
    total = resid_post(nodes, il)
    if total is not None and total.op == "ADD" and _is_direction(total.src[1]):
        total = total.src[0]
    return _find_addend(total, resid_mid(nodes, il))


def mlp_post(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the input of a feed-forward's last matrix; None for experts."""
    t = mlp_out(nodes, il)
    while t is not None and t.op in ("ADD", "MUL", "SCALE", *NORMS):
        t = t.src[0]
    return t.src[1] if t is not None and t.op == "MUL_MAT" else None


def mlp_pre(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the input of the activation function: of a gated block the gate."""
    post = t = mlp_post(nodes, il)
    if post is None or t is None:
        return None
    if _is_gated(post):
        return post.src[0]
    while len(s := _sources(t)) == 1 and s[0].ne == t.ne:
        t = s[0]
    return None if t is post else t


def mlp_pre_linear(nodes: NamedNodes, il: int) -> Tensor | None:
    t = mlp_post(nodes, il)
    return t.src[1] if t is not None and _is_gated(t) else None


def ln1(nodes: NamedNodes, il: int) -> Tensor | None:
    return _find_norm(
        last_node("attn_norm-{il}", "model.layers.{{}}.operator_norm-{il}")(nodes, il)
    )


def ln2(nodes: NamedNodes, il: int) -> Tensor | None:
    """Return the node that reads the residual stream after attention, under any name."""
    middle = resid_mid(nodes, il)
    for name in ("ffn_norm-{il}", "attn_post_norm-{il}"):
        norm = _find_norm(last_node(name)(nodes, il))
        if norm is not None and middle is not None and norm.src[0] is middle:
            return norm
    return None


POINTS: dict[str, Rule] = {
    "hook_embed": last_node(*EMBEDDINGS),
    "hook_pos_embed": last_node("pos_embd"),
    "ln_final.hook_normalized": lambda nodes, il: _find_norm(last_node("result_norm")(nodes, il)),
    "hook_logits": last_node("result_output"),
}
LAYER_POINTS: dict[str, Rule] = {
    "hook_resid_pre": resid_pre,
    "hook_resid_mid": resid_mid,
    "hook_resid_post": resid_post,
    "hook_attn_out": attn_out,
    "hook_mlp_out": mlp_out,
    "ln1.hook_normalized": ln1,
    "ln2.hook_normalized": ln2,
    "ln1_post.hook_normalized": lambda nodes, il: _find_norm(attn_out(nodes, il)),
    "ln2_post.hook_normalized": lambda nodes, il: _find_norm(mlp_out(nodes, il)),
    "attn.hook_q": last_projection("Qcur_reshaped-{il}", "Qcur_view-{il}", "Qcur-{il}"),
    "attn.hook_k": last_projection("Kcur-{il}"),
    "attn.hook_v": last_projection("Vcur-{il}"),
    "attn.hook_rot_q": last_rope("Qcur-{il}", "Qcur_pos-{il}", "Qcur-post-rope-{il}"),
    "attn.hook_rot_k": last_rope("Kcur-{il}", "Kcur_pos-{il}", "Kcur-post-rope-{il}"),
    "attn.hook_z": lambda nodes, il: (
        last_node("attn_pregate-{il}")(nodes, il) or first_node("kqv_out-{il}")(nodes, il)
    ),
    "mlp.hook_pre": mlp_pre,
    "mlp.hook_pre_linear": mlp_pre_linear,
    "mlp.hook_post": mlp_post,
    "mlp.hook_expert_weights": last_node("ffn_moe_probs-{il}"),
    "mlp.hook_expert_indices": last_node("ffn_moe_topk-{il}"),
}
PATTERN = "attn.hook_pattern"  # not stored by flash attention; see llama_py.hooks.names


def _find_addend(total: Tensor | None, residual: Tensor | None) -> Tensor | None:
    """Return the operand of a sum that is not the residual stream or its output rows."""
    if total is None or residual is None or total.op != "ADD":
        return None
    for i, operand in enumerate(total.src[:2]):
        if operand is residual or (
            operand is not None and operand.op == "GET_ROWS" and operand.src[0] is residual
        ):
            return total.src[1 - i]
    return None


def _find_norm(t: Tensor | None) -> Tensor | None:
    """Return the norm of a value that was then multiplied by weights and got a bias."""
    while t is not None and t.op in ("MUL", "ADD", "GET_ROWS"):
        t = t.src[0]
    return t if t is not None and t.op in NORMS else None


def _is_projected(t: Tensor | None) -> bool:
    while t is not None and t.op in BESIDE_PRODUCT:
        t = t.src[0]
    return t is not None and t.op == "MUL_MAT"


def _sources(t: Tensor) -> list[Tensor]:
    return [s for s in t.src if s is not None]


def _is_gated(t: Tensor) -> bool:
    """Return True for act(gate) * value."""
    sources = _sources(t)
    return len(sources) == 2 and all(s.ne == t.ne for s in sources)


def _is_direction(t: Tensor | None) -> bool:
    return t is not None and t.name.startswith("direction.")
