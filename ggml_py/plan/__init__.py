"""Planning of a graph: device, order and memory of each node."""

from ggml_py.plan.plan import Plan, PlanInWaves, Plans, Split, SplitTime

__all__ = ["Plan", "PlanInWaves", "Plans", "Split", "SplitTime"]
