"""Thread primitives: atomic int64 words, spin and sleep, the clock, and calls by address."""

from __future__ import annotations

import platform
import sys

from llvmlite import ir
from numba.core import cgutils, types

from ggml_cpu.target import ARM64, X86

from .vec import I32, I64, call, intrinsic, pointer


@intrinsic
def atomic_add(typing, addr, x):
    """Add `x` to the int64 at `addr` and return the old value (seq_cst)."""

    def emit(context, builder, sig, args):
        return builder.atomic_rmw("add", pointer(builder, args[0], I64), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), emit


@intrinsic
def atomic_load(typing, addr):
    """Return the int64 at `addr`, with acquire order."""

    def emit(context, builder, sig, args):
        return builder.load_atomic(pointer(builder, args[0], I64), "acquire", 8)

    return types.int64(types.int64), emit


@intrinsic
def atomic_store(typing, addr, x):
    """Store `x` to the int64 at `addr`, with release order."""

    def emit(context, builder, sig, args):
        builder.store_atomic(args[1], pointer(builder, args[0], I64), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), emit


@intrinsic
def pause(typing):
    """Emit a spin-wait hint: `pause` on x86, `yield` on ARM64."""

    def emit(context, builder, sig, args):
        if X86:
            call(builder, "llvm.x86.sse2.pause", ir.VoidType(), [])
        elif ARM64:
            call(builder, "llvm.aarch64.hint", ir.VoidType(), [I32(1)])
        return context.get_dummy_value()

    return types.void(), emit


@intrinsic
def sched_yield(typing):
    """Yield the core to another thread (sched_yield, SwitchToThread)."""

    def emit(context, builder, sig, args):
        call(builder, "sched_yield", I32, [])
        return context.get_dummy_value()

    return types.void(), emit


FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
WAIT, WAKE = 128, 129  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE


def _futex(builder: ir.IRBuilder, *args: ir.Value) -> None:
    assert FUTEX is not None
    call(builder, "syscall", I64, [I64(FUTEX), *args, *[I64(0)] * (6 - len(args))])


@intrinsic
def sleep_while(typing, addr, value, timeout):
    """Sleep while the word at `addr` equals `value`, until `wake` or the timeout (FUTEX_WAIT).

    `timeout` is the address of two int64 (seconds, ns). The call may return early; without futex,
    it is a `sched_yield`. Linux compares only the low 32 bits.
    """

    def emit(context, builder, sig, args):
        if FUTEX is None:
            call(builder, "sched_yield", I32, [])
        else:
            _futex(builder, args[0], I64(WAIT), args[1], args[2])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), emit


@intrinsic
def wake(typing, addr):
    """Wake all threads that sleep on this address (FUTEX_WAKE)."""

    def emit(context, builder, sig, args):
        if FUTEX is not None:
            _futex(builder, args[0], I64(WAKE), I64(2**31 - 1))
        return context.get_dummy_value()

    return types.void(types.int64), emit


@intrinsic
def nanoseconds(typing):
    """Return the system clock in ns since 1970."""

    def emit(context, builder, sig, args):
        # zeroed, since tv_nsec has only 32 bits on systems with a 32-bit `long`
        seconds = cgutils.alloca_once(builder, ir.ArrayType(I64, 2), zfill=True)
        call(builder, "timespec_get", I32, [seconds, I32(1)])
        whole, part = (builder.load(builder.gep(seconds, [I32(0), I32(i)])) for i in (0, 1))
        return builder.add(builder.mul(whole, I64(1_000_000_000)), part)

    return types.int64(), emit


@intrinsic
def call_kernel(typing, function, p, ith, nth):
    """Call the kernel at address `function` with (p, ith, nth)."""

    def emit(context, builder, sig, args):
        kind = ir.FunctionType(ir.VoidType(), [I64] * 3)
        builder.call(pointer(builder, args[0], kind), args[1:])
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), emit
