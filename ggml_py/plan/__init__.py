"""From a graph to a plan: which device runs what, in which order, and in which memory."""

from ggml_py.plan.plan import Plan, PlanInWaves, Plans, Split, SplitTime

__all__ = ["Plan", "PlanInWaves", "Plans", "Split", "SplitTime"]
