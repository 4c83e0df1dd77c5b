"""Inserts bounds checks into LLVM modules, for every pointer made from an address.

Kernels access all memory except local variables by int64 addresses, so each access uses an
`inttoptr`. Therefore only this file handles the load and store instructions of the SIMD API.
"""

from __future__ import annotations

import re

import llvmlite.binding as llvm
from llvmlite import ir

from ggml_cpu.bounds.check import SPARE_BYTES
from ggml_py.errors import BackendError

CHECK, HERE = "bounds.check", "bounds.here"
I64 = ir.IntType(64)
# Let LLVM merge calls with equal arguments, although the check writes its record.
PURE = ("readnone", "nounwind")

# Index of the pointer operand, and 1 for a write. Masked intrinsics also have the mask's index.
ACCESSES = {
    "load": (0, 0),
    "store": (1, 1),
    "load atomic": (0, 0),
    "store atomic": (1, 1),
    "atomicrmw": (0, 1),
}
MASKED = {"load": (1, 0, 3), "store": (2, 1, 4), "gather": (1, 0, 3), "scatter": (2, 1, 4)}
CODE = "an address"  # callee of an indirect call

_RULE = "bounds checks support only the instructions in bounds/instrument.py"


def instrument(module: ir.Module) -> None:
    """Insert the checks; BackendError if an unknown instruction uses a pointer from an address."""
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
                operands[at] = _emit_check(builder, operands[at], touched, writes, lanes)
                instruction.operands = operands


def _is_address(pointer: ir.Value) -> bool:
    """Return True if a pointer is an `inttoptr` of an address, not a local variable."""
    return isinstance(pointer, ir.CastInstr) and pointer.opname == "inttoptr"


def _callee_name(instruction: ir.Instruction) -> str:
    if not isinstance(instruction, ir.CallInstr):
        return ""
    return str(instruction.callee.name) if isinstance(instruction.callee, ir.Function) else CODE


def _is_harmless(instruction: ir.Instruction) -> bool:
    """Return True if it accesses no memory at the address: a prefetch or a call of a kernel."""
    return _callee_name(instruction).startswith(("llvm.prefetch", CODE))


def _access(instruction: ir.Instruction) -> tuple[int, int, int | None]:
    """Return the index of the pointer operand, 1 if it is written, and the mask's index or None."""
    name = _callee_name(instruction)
    if name.startswith("llvm.masked."):
        return MASKED[name.split(".")[2]]
    return (*ACCESSES.get(instruction.opname, (-1, 0)), None)


def _nbytes(kind: ir.Type) -> int:
    if isinstance(kind, ir.VectorType):
        return int(kind.count * _nbytes(kind.element))
    return {"float": 4, "double": 8}.get(str(kind)) or -(-kind.width // 8)


def _emit_check(
    builder: ir.IRBuilder, pointer: ir.Value, touched: ir.Type, writes: int, mask: ir.Value | None
) -> ir.Value:
    """Emit the check of a pointer, or of each lane's pointer, and return the allowed pointer."""
    address, nbytes = pointer.operands[0], _nbytes(touched)
    assert nbytes <= SPARE_BYTES
    kind = ir.FunctionType(I64, [I64] * 3)
    known = builder.module.globals.get(CHECK)
    check = known or ir.Function(builder.module, kind, CHECK)
    check.attributes.update(PURE)

    def call_check(one: ir.Value, count: ir.Value) -> ir.Value:
        return builder.call(check, [one, count, I64(writes)])

    if not isinstance(address.type, ir.VectorType):
        count = I64(nbytes) if mask is None else _before_last(builder, mask, touched)
        return builder.inttoptr(call_check(address, count), pointer.type)
    for i in range(touched.count):
        wanted = builder.zext(builder.extract_element(mask, ir.IntType(32)(i)), I64)
        count = builder.mul(wanted, I64(_nbytes(touched.element)))
        one = call_check(builder.extract_element(address, ir.IntType(32)(i)), count)
        address = builder.insert_element(address, one, ir.IntType(32)(i))
    return builder.inttoptr(address, pointer.type)


def _before_last(builder: ir.IRBuilder, mask: ir.Value, touched: ir.VectorType) -> ir.Value:
    """Emit the number of bytes from lane 0 to the last lane in the mask."""
    bits = builder.bitcast(mask, ir.IntType(touched.count))
    zeros = builder.ctlz(bits, ir.IntType(1)(0))
    resized = builder.zext if touched.count <= 64 else builder.trunc
    lanes = builder.sub(I64(touched.count), resized(zeros, I64))
    return builder.mul(lanes, I64(_nbytes(touched.element)))


def complete(module: llvm.ModuleRef, entry: str, check: bytes) -> llvm.ModuleRef:
    """Link the check (bitcode) into an optimized kernel.

    Its calls get two more arguments: the parameter block and the description of the module.
    """
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
