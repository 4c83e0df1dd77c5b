"""Calls of the check in LLVM modules: every address that becomes a pointer goes through it.

All memory but a function's own variables is reached by addresses, `inttoptr` in LLVM; so this is
the one place that has to know of loads and stores, however the vocabulary makes them.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm
from llvmlite import ir

from ggml_cpu.bounds.check import SPARE_BYTES
from ggml_py.errors import BackendError

CHECK, HERE = "bounds.check", "bounds.here"
I64 = ir.IntType(64)
# A declaration that LLVM believes: what it can tell is the same call is made once.
PURE = ("readnone", "nounwind")

# Which operand is the pointer, and whether it is written to; of intrinsics, after the function, the
# mask, too.
ACCESSES = {
    "load": (0, 0),
    "store": (1, 1),
    "load atomic": (0, 0),
    "store atomic": (1, 1),
    "atomicrmw": (0, 1),
}
MASKED = {"load": (1, 0, 3), "store": (2, 1, 4), "gather": (1, 0, 3), "scatter": (2, 1, 4)}
CODE = "an address"  # of a function

_RULE = "bounds checks support only the instructions in bounds/instrument.py"


def instrument(module: ir.Module) -> None:
    """Put them in. Raises BackendError where a pointer made of an address is used otherwise."""
    for block in [block for function in module.functions for block in function.blocks]:
        for instruction in list(block.instructions):
            operands = list(instruction.operands)
            made = [i for i, pointer in enumerate(operands) if _is_address(pointer)]
            if made and not _is_harmless(instruction):
                at, writes, mask = _access(instruction)
                if made != [at]:
                    name = f"{block.function.name}: {instruction.opname}"
                    raise BackendError(f"{name} of an address; {_RULE}")
                builder = ir.IRBuilder(block)
                builder.position_before(instruction)
                touched = operands[at - 1].type if writes and at else instruction.type
                lanes = None if mask is None else operands[mask]
                operands[at] = _checked(builder, operands[at], touched, writes, lanes)
                instruction.operands = operands


def _is_address(pointer: ir.Value) -> bool:
    """Whether a pointer is made of an address; else it is that of a variable."""
    return isinstance(pointer, ir.CastInstr) and pointer.opname == "inttoptr"


def _called(instruction: ir.Instruction) -> str:
    if not isinstance(instruction, ir.CallInstr):
        return ""
    return str(instruction.callee.name) if isinstance(instruction.callee, ir.Function) else CODE


def _is_harmless(instruction: ir.Instruction) -> bool:
    """Whether it touches no memory at an address: a hint, or the call of a kernel."""
    return _called(instruction).startswith(("llvm.prefetch", CODE))


def _access(instruction: ir.Instruction) -> tuple[int, int, int | None]:
    """Numbers of the operand that points to memory, 1 if that is written, and of the mask."""
    name = _called(instruction)
    if name.startswith("llvm.masked."):
        return MASKED[name.split(".")[2]]
    return (*ACCESSES.get(instruction.opname, (-1, 0)), None)


def _nbytes(kind: ir.Type) -> int:
    if isinstance(kind, ir.VectorType):
        return int(kind.count * _nbytes(kind.element))
    return {"float": 4, "double": 8}.get(str(kind)) or -(-kind.width // 8)


def _checked(
    builder: ir.IRBuilder, pointer: ir.Value, touched: ir.Type, writes: int, mask: ir.Value | None
) -> ir.Value:
    """The pointer, or the pointers, that the check allows."""
    address, nbytes = pointer.operands[0], _nbytes(touched)
    assert nbytes <= SPARE_BYTES
    kind = ir.FunctionType(I64, [I64] * 3)
    known = builder.module.globals.get(CHECK)
    check = known or ir.Function(builder.module, kind, CHECK)
    check.attributes.update(PURE)

    def of(one: ir.Value, count: ir.Value) -> ir.Value:
        return builder.call(check, [one, count, I64(writes)])

    if not isinstance(address.type, ir.VectorType):
        count = I64(nbytes) if mask is None else _before_last(builder, mask, touched)
        return builder.inttoptr(of(address, count), pointer.type)
    for i in range(touched.count):
        wanted = builder.zext(builder.extract_element(mask, ir.IntType(32)(i)), I64)
        count = builder.mul(wanted, I64(_nbytes(touched.element)))
        one = of(builder.extract_element(address, ir.IntType(32)(i)), count)
        address = builder.insert_element(address, one, ir.IntType(32)(i))
    return builder.inttoptr(address, pointer.type)


def _before_last(builder: ir.IRBuilder, mask: ir.Value, touched: ir.VectorType) -> ir.Value:
    """Bytes from the first lane to the last one that a mask has."""
    bits = builder.bitcast(mask, ir.IntType(touched.count))
    zeros = builder.ctlz(bits, ir.IntType(1)(0))
    resized = builder.zext if touched.count <= 64 else builder.trunc
    lanes = builder.sub(I64(touched.count), resized(zeros, I64))
    return builder.mul(lanes, I64(_nbytes(touched.element)))


def complete(module: llvm.ModuleRef, entry: str, check: bytes) -> llvm.ModuleRef:
    """An optimised kernel with the check (bitcode), which gets as well the parameter block and what
    is known of the module."""
    block = next(iter(module.get_function(entry).arguments)).name
    sizes = llvm.create_target_data(module.data_layout)
    tables = [g for g in module.global_variables if not g.is_declaration]
    words = [f'ptrtoint (ptr @"{entry}" to i64)', str(len(tables))]
    for g in tables:
        size = sizes.get_abi_size(g.global_value_type)
        words += [f'ptrtoint (ptr @"{g.name}" to i64)', str(size)]
    text = re.sub(rf"^declare .*@{CHECK}\(.*\n", "", str(module), flags=re.MULTILINE)
    text = text.replace(f"@{CHECK}(", f"@{CHECK}(i64 %{block}, i64 ptrtoint (ptr @{HERE} to i64), ")
    text += f"\ndeclare i64 @{CHECK}(i64, i64, i64, i64, i64)\n"
    text += f"@{HERE} = internal constant [{len(words)} x i64] [i64 {', i64 '.join(words)}]\n"
    found = llvm.parse_assembly(text)
    found.link_in(llvm.parse_bitcode(check))
    found.get_function(CHECK).linkage = "internal"
    found.verify()
    return found
