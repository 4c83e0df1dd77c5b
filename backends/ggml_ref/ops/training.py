"""NumPy references of the ops in ggml_py/ops/training.py."""

from __future__ import annotations

import numpy as np

from ggml_py.tensor import Tensor
from ggml_ref.functions import exp, log, max_along, sqrt, total
from ggml_ref.table import table
from ggml_ref.values import Integers, Values, load, store


def _log_soft_max(x: Values) -> Values:
    x = x - max_along(x)
    return x - log(total(exp(x)))


@table.op("CROSS_ENTROPY_LOSS")
def cross_entropy_loss(node: Tensor, logits: Values, labels: Values) -> Values:
    return -total(labels * _log_soft_max(logits), None) / node.source(0).n_rows


@table.op("CROSS_ENTROPY_LOSS_BACK")
def cross_entropy_loss_back(node: Tensor, grad: Values, logits: Values, labels: Values) -> Values:
    return (exp(_log_soft_max(logits)) - labels) * grad.item() / node.n_rows


@table.op("COUNT_EQUAL")
def count_equal(node: Tensor, a: Integers, b: Integers) -> Integers:
    count: Integers = np.count_nonzero(a == b, keepdims=True)
    return count


@table.step("OPT_STEP_ADAMW")
def opt_step_adamw(node: Tensor) -> None:
    a, grad, m, v, params = (load(t) for t in node.sources())
    rate, beta1, beta2, eps, decay, scale1, scale2 = params.reshape(-1)
    m = m * beta1 + grad * (1 - beta1)
    v = v * beta2 + grad**2 * (1 - beta2)
    store(node, a * (1 - rate * decay) - rate * m * scale1 / (sqrt(v * scale2) + eps))
    store(node.source(2), m)
    store(node.source(3), v)


@table.op("OPT_STEP_SGD")
def opt_step_sgd(node: Tensor, a: Values, grad: Values, params: Values) -> Values:
    rate, decay = params.reshape(-1)
    return a * (1 - rate * decay) - rate * grad
