"""Training ops: loss, counts of labels, optimizer steps."""

from __future__ import annotations

from ggml_py.ops.registry import node, op, require, view_result
from ggml_py.tensor import Tensor
from ggml_py.types import F32, I64


@op("CROSS_ENTROPY_LOSS")
def cross_entropy_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """-sum(labels * log_softmax(logits)) / rows, rows along dimension 0
    (ggml.c:ggml_cross_entropy_loss). Both F32 [n, ...] -> [1]
    """
    _rows("cross_entropy_loss", logits, labels)
    return node("CROSS_ENTROPY_LOSS", F32, (1,), logits, labels)


@op("CROSS_ENTROPY_LOSS_BACK")
def cross_entropy_loss_back(grad: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    """The gradient of the loss with respect to logits, (softmax(logits) - labels) * grad / rows
    (ggml.c:ggml_cross_entropy_loss_back). grad F32 [1] -> like logits
    """
    _rows("cross_entropy_loss_back", logits, labels)
    one = grad.n_elements == 1 and grad.type is F32
    require(one, "cross_entropy_loss_back: grad must be one f32", grad)
    return node("CROSS_ENTROPY_LOSS_BACK", F32, logits.ne, grad, logits, labels)


@op("COUNT_EQUAL")
def count_equal(a: Tensor, b: Tensor) -> Tensor:
    """Count the equal elements of a and b (ggml.c:ggml_count_equal). -> I64 [1]

    Counts all rows; ggml-cpu counts wrong rows of tensors with more than two dimensions.
    """
    require(a.same_shape(b), "count_equal: both must have the same shape", a, b)
    return node("COUNT_EQUAL", I64, (1,), a, b)


@op("OPT_STEP_ADAMW", writes=(2, 3))
def opt_step_adamw(a: Tensor, grad: Tensor, m: Tensor, v: Tensor, params: Tensor) -> Tensor:
    """One step of AdamW on a, in place; its moments m and v are updated too
    (ggml.c:ggml_opt_step_adamw, arXiv 1711.05101).

    params F32 [7]: learning rate, beta1, beta2, eps, weight decay, 1 / (1 - beta1^t), 1 / (1 -
    beta2^t) of step t. -> a view of a
    """
    _step("opt_step_adamw", 7, params, a, grad, m, v)
    return view_result("OPT_STEP_ADAMW", a, a, grad, m, v, params)


@op("OPT_STEP_SGD")
def opt_step_sgd(a: Tensor, grad: Tensor, params: Tensor) -> Tensor:
    """a = a * (1 - rate * decay) - rate * grad, in place (ggml.c:ggml_opt_step_sgd).

    params F32 [2]: learning rate, weight decay. -> a view of a
    """
    _step("opt_step_sgd", 2, params, a, grad)
    return view_result("OPT_STEP_SGD", a, a, grad, params)


def _rows(name: str, *tensors: Tensor) -> None:
    fits = all(t.type is F32 and t.ne == tensors[0].ne for t in tensors)
    require(fits, f"{name}: all must be f32 of the same shape", *tensors)
    dense = all(t.has_contiguous_rows() for t in tensors)
    require(dense, f"{name}: rows must be dense", *tensors)


def _step(name: str, n_params: int, params: Tensor, *tensors: Tensor) -> None:
    fits = all(t.type is F32 and t.ne == tensors[0].ne for t in tensors)
    require(fits, f"{name}: all must be f32 of the same shape", *tensors)
    dense = all(t.is_contiguous() for t in (*tensors, params))
    require(dense, f"{name}: all must be contiguous", *tensors, params)
    known = params.type is F32 and params.n_elements == n_params
    require(known, f"{name}: params must be {n_params} f32", params)
