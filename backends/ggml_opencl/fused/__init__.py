"""Launchers of steps of several nodes, one file a family, with kernels in `kernels/fused/`."""

from __future__ import annotations

from ggml_opencl.fused import experts, norm, ssm

FUSED = (experts, norm, ssm)
