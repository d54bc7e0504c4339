"""The body of a module: instructions as C statements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cuvil_build.codegen.c_expr import c_number
from cuvil_build.codegen.c_functions import STATEMENTS, CFunction, indented
from cuvil_build.codegen.c_names import c_comment, c_string
from cuvil_build.codegen.module_tables import Tables
from cuvil_build.codegen.plan import (
    Branch,
    Call,
    Copy,
    Ensure,
    Guard,
    Instruction,
    Launch,
    Loop,
    ReadSymbol,
    SetSymbol,
    SetSymbols,
)
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal
from cuvil_build.ops.lowered_graph import MAX_JOINED

_RELATIONS = {"==": "CUVIL_EQUAL", "!=": "CUVIL_UNEQUAL", "<=": "CUVIL_AT_MOST"}


@dataclass(slots=True)
class BodyPrinter:
    """Turns instructions into statements; calls go to the call table, and a row of them is one statement."""

    tables: Tables
    functions: list[CFunction] = field(default_factory=list)

    def main(self, body: Sequence[Instruction]) -> list[CFunction]:
        lines = self.block(body)
        unused = [] if any("ctx" in line for line in lines) else ["(void)ctx;"]
        text = [*unused, *lines, "return CUVIL_OK;"]
        main = CFunction("static int body(cuvil_ctx *ctx)", indented(text))
        return [*self.functions, main]

    def block(self, body: Sequence[Instruction]) -> list[str]:
        groups = list(self._groups(body))
        if sum(map(len, groups)) <= STATEMENTS:
            return [line for group in groups for line in group]
        return [self._outline(part) for part in _cut(groups)]

    def _outline(self, groups: list[list[str]]) -> str:
        name = f"body_{len(self.functions)}"
        lines = [line for group in groups for line in group]
        self.functions.append(
            CFunction(f"static int {name}(cuvil_ctx *ctx)", indented([*lines, "return CUVIL_OK;"]))
        )
        return f"CUVIL_TRY({name}(ctx));"

    def _groups(self, body: Sequence[Instruction]) -> Iterator[list[str]]:
        first = count = 0
        for instruction in body:
            calls = _calls(instruction)
            before = self._scratch(calls) if calls else self._statements(instruction)
            if before and count:
                yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]
                count = 0
            if before or not calls:
                yield before
            first = first if count else len(self.tables.call_rows)
            count += len(calls)
            for number, call in enumerate(calls, 1):
                self.tables.add_call(call, joined=number < len(calls))
        if count:
            yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]

    def _scratch(self, calls: Sequence[Call]) -> list[str]:
        """Lets every thread have what calls need whose scratch nothing bounds before the run."""
        sizes = [self.tables.scratch_of(call) for call in calls]
        open_sizes = dict.fromkeys(size for size in sizes if self.tables.most(size) is None)
        return [f"CUVIL_TRY(CUVIL_RT(scratch)(ctx, {self._text(size)}));" for size in open_sizes]

    def _statements(self, instruction: Instruction) -> list[str]:
        if isinstance(instruction, Guard):
            return [self._guard(instruction)]
        if isinstance(instruction, SetSymbol):
            return self._set({instruction.symbol: self._text(instruction.value)})
        if isinstance(instruction, SetSymbols):
            return self._set_all(instruction)
        if isinstance(instruction, ReadSymbol):
            return self._read(instruction)
        if isinstance(instruction, Ensure):
            name = c_string(self.tables.plan.buffers[instruction.buffer].name)
            size = f"{self._text(instruction.nbytes)}, {int(instruction.keep)}, {name}"
            return [f"CUVIL_TRY(CUVIL_RT(ensure)(ctx, {instruction.buffer}, {size}));"]
        if isinstance(instruction, Copy):
            return [self._copy(instruction)]
        if isinstance(instruction, Loop):
            return self._loop(instruction)
        assert isinstance(instruction, Branch)
        return self._branch(instruction)

    def _copy(self, copy: Copy) -> str:
        target = f"ctx->pointers[{copy.target}]"
        if copy.offset.terms:
            target = f"(uint8_t *){target} + {self._text(copy.offset)}"
        return f"CUVIL_RT(copy)({target}, ctx->pointers[{copy.source}], {self._text(copy.nbytes)});"

    def _branch(self, branch: Branch) -> list[str]:
        comment = f" /* {c_comment(branch.comment)} */" if branch.comment else ""
        lines = [f"if ({_bool(branch.condition)}) {{{comment}"]
        lines += indented(self.block(branch.then_body))
        otherwise = self.block(branch.else_body)
        if otherwise:
            lines += ["} else {", *indented(otherwise)]
        return [*lines, "}"]

    def _loop(self, loop: Loop) -> list[str]:
        """One block: its variables stand outside of what may be cut into functions."""
        comment = f" /* {c_comment(loop.comment)} */" if loop.comment else ""
        trips = "INT64_MAX" if loop.trips is None else self._text(loop.trips)
        more = "1" if loop.condition is None else _bool(loop.condition)
        number = self.tables.slots[loop.iteration]
        done, limit, again = f"done_{number}", f"trips_{number}", f"again_{number}"
        inner = [*self._set({loop.iteration: done}), *self.block(loop.body)]
        if loop.again is not None:
            inner.append(f"{again} = {_bool(loop.again)};")
        inner += [*self.block(loop.after), f"{done}++;"]
        return [
            f"{{{comment}",
            *indented(
                [
                    f"int64_t {done} = 0;",
                    f"const int64_t {limit} = {trips};",
                    f"int {again} = {more};",
                    f"while ({again} && {done} < {limit}) {{",
                    *indented(inner),
                    "}",
                    *self._set({loop.count: done}),
                ]
            ),
            "}",
        ]

    def _set(self, values: Mapping[str, str]) -> list[str]:
        lines = [f"ctx->values[{self.tables.slots[symbol]}] = {value};" for symbol, value in values.items()]
        # whether anything depends on it is known only when the whole plan was read: always call
        return [*lines, *(self._changed(symbol) for symbol in values)]

    def _set_all(self, instruction: SetSymbols) -> list[str]:
        if len(instruction.values) == 1:
            return self._set({symbol: self._text(value) for symbol, value in instruction.values})
        new = {symbol: f"new_{self.tables.slots[symbol]}" for symbol, _ in instruction.values}
        lines = [
            f"const int64_t {new[symbol]} = {self._text(value)};" for symbol, value in instruction.values
        ]
        return ["{", *indented([*lines, *self._set(new)]), "}"]

    def _read(self, read: ReadSymbol) -> list[str]:
        slot = self.tables.slots[read.symbol]
        high = "INT64_MAX" if read.high is None else self._text(read.high)
        kind = f"{read.dtype.dlpack_code}, {read.dtype.bits}"
        element = f"ctx->pointers[{read.buffer}], {read.element}, {kind}"
        bounds = f"{c_number(read.low)}, {high}, {c_string(read.message)}"
        call = f"CUVIL_RT(read)(ctx, &ctx->values[{slot}], {element}, {bounds})"
        return [f"CUVIL_TRY({call});", self._changed(read.symbol)]

    def _changed(self, symbol: str) -> str:
        self.tables.set_symbols.add(symbol)
        return f"after_{self.tables.slots[symbol]}(ctx->values);"

    def _guard(self, guard: Guard) -> str:
        if guard.relation not in _RELATIONS:
            raise Internal(f"guard relation {guard.relation!r}")
        sides = f"{self._text(guard.left)}, {_RELATIONS[guard.relation]}, {self._text(guard.right)}"
        return f"CUVIL_TRY(CUVIL_RT(guard)(ctx, {sides}, {c_string(guard.message)}));"

    def _text(self, expr: IntExpr) -> str:
        return self.tables.text(expr, "ctx->values")


def _calls(instruction: Instruction) -> tuple[Call, ...]:
    if isinstance(instruction, Call):
        return (instruction,)
    if not isinstance(instruction, Launch):
        return ()
    if len(instruction.calls) > MAX_JOINED:
        raise Internal(f"{len(instruction.calls)} calls in one launch")
    return instruction.calls


def _bool(buffer: int) -> str:
    return f"*(const uint8_t *)ctx->pointers[{buffer}] != 0"


def _cut(groups: list[list[str]]) -> Iterator[list[list[str]]]:
    part: list[list[str]] = []
    for group in groups:
        if part and sum(map(len, part)) + len(group) > STATEMENTS:
            yield part
            part = []
        part.append(group)
    if part:
        yield part
