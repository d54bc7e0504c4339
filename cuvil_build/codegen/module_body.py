"""The body of a module: instructions as C statements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cuvil_build.codegen.c_expr import int_expr_to_c
from cuvil_build.codegen.c_functions import STATEMENTS, CFunction, indented
from cuvil_build.codegen.c_names import c_comment, c_string
from cuvil_build.codegen.module_tables import Tables
from cuvil_build.codegen.plan import Branch, Call, Copy, Guard, Instruction, SetSymbol
from cuvil_build.cuir.int_expr import IntExpr
from cuvil_build.errors import Internal

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
        return f"if ({name}(ctx)) return CUVIL_BAD_DATA;"

    def _groups(self, body: Sequence[Instruction]) -> Iterator[list[str]]:
        first = count = 0
        for instruction in body:
            if isinstance(instruction, Call):
                first = first if count else len(self.tables.call_rows)
                count += 1
                self.tables.add_call(instruction)
                continue
            if count:
                yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]
                count = 0
            yield self._statements(instruction)
        if count:
            yield [f"CUVIL_RT(calls)(ctx, {first}, {count});"]

    def _statements(self, instruction: Guard | SetSymbol | Copy | Branch) -> list[str]:
        if isinstance(instruction, Guard):
            return [self._guard(instruction)]
        if isinstance(instruction, SetSymbol):
            return self._set(instruction)
        if isinstance(instruction, Copy):
            sides = f"ctx->pointers[{instruction.target}], ctx->pointers[{instruction.source}]"
            return [f"CUVIL_RT(copy)({sides}, {self._text(instruction.nbytes)});"]
        return self._branch(instruction)

    def _branch(self, branch: Branch) -> list[str]:
        comment = f" /* {c_comment(branch.comment)} */" if branch.comment else ""
        lines = [f"if (*(const uint8_t *)ctx->pointers[{branch.condition}]) {{{comment}"]
        lines += indented(self.block(branch.then_body))
        otherwise = self.block(branch.else_body)
        if otherwise:
            lines += ["} else {", *indented(otherwise)]
        return [*lines, "}"]

    def _set(self, instruction: SetSymbol) -> list[str]:
        slot = self.tables.slots[instruction.symbol]
        self.tables.set_symbols.add(instruction.symbol)
        lines = [f"ctx->values[{slot}] = {self._text(instruction.value)};"]
        # whether anything depends on it is known only when the whole plan was read: always call
        return [*lines, f"after_{slot}(ctx->values);"]

    def _guard(self, guard: Guard) -> str:
        if guard.relation not in _RELATIONS:
            raise Internal(f"guard relation {guard.relation!r}")
        sides = f"{self._text(guard.left)}, {_RELATIONS[guard.relation]}, {self._text(guard.right)}"
        call = f"CUVIL_RT(guard)(ctx, {sides}, {c_string(guard.message)})"
        return f"if ({call}) return CUVIL_BAD_DATA;"

    def _text(self, expr: IntExpr) -> str:
        names = {name: f"ctx->values[{slot}]" for name, slot in self.tables.slots.items()}
        return int_expr_to_c(expr, names)


def _cut(groups: list[list[str]]) -> Iterator[list[list[str]]]:
    part: list[list[str]] = []
    for group in groups:
        if part and sum(map(len, part)) + len(group) > STATEMENTS:
            yield part
            part = []
        part.append(group)
    if part:
        yield part
