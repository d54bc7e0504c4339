"""One operator at a time, against onnxruntime: inferred shapes, and the numbers of the lowered nests."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from cuvil_build.comparison import last_place
from cuvil_build.cuir.dims import DimSpec, FreeDim, write_dims
from cuvil_build.cuir.dtypes import INT64, dtype_of_array, pack_bits, unpack_bits
from cuvil_build.cuir.int_expr import Bounds, IntExpr
from cuvil_build.kernel.expr import INPUT, OUTPUT, Buffer
from cuvil_build.kernel.interpret import interpret
from cuvil_build.kernel.lowered import LoweredRegion
from cuvil_build.ops.infer import attributes_of, infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.lowering import RegionNode, lower_region
from cuvil_build.ops.operator import Known
from cuvil_build.reference import Reference

OPSET = 26


@dataclass(frozen=True)
class Case:
    """One node: operands in order; `constants` are those known at build time, `free` the free dims."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[int] = ()
    outputs: int = 1
    fixed: Sequence[tuple[int, int]] = ()
    """(operand, axis) that stay numbers when all other dims are free."""
    domain: str = ""
    same_as: Sequence[tuple[tuple[int, int], tuple[int, int]]] = ()
    """Pairs of (operand, axis) that share a symbol."""

    def __post_init__(self) -> None:
        arrays = [None if a is None else np.asarray(a) for a in self.inputs]
        object.__setattr__(self, "inputs", arrays)

    def __str__(self) -> str:
        shapes = ",".join("-" if a is None else "x".join(map(str, a.shape)) or "()" for a in self.inputs)
        return f"{self.op}({shapes}) {dict(self.attributes)}"


def f32(*shape: int, seed: int = 0, low: float = -2.0, high: float = 2.0) -> np.ndarray:
    generator = np.random.default_rng([seed, *shape])
    return np.asarray(generator.uniform(low, high, shape), dtype=np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def check(case: Case, *, tolerance: float = 2e-6, evaluator: bool = False) -> LoweredRegion:
    """The case with numbers as dims, then with every dim free where that is possible.

    `evaluator` takes onnx's own for the reference, where onnxruntime is wrong or has no kernel.
    """
    wanted = reference(case, evaluator=evaluator)
    region = check_one(case, wanted, free=False, tolerance=tolerance)
    if any(a is not None and a.ndim and n not in case.constants for n, a in enumerate(case.inputs)):
        check_one(case, wanted, free=True, tolerance=tolerance)
    return region


def reference(case: Case, *, evaluator: bool = False) -> list[np.ndarray]:
    feeds = {f"x{n}": a for n, a in enumerate(case.inputs) if a is not None and n not in case.constants}
    return [np.asarray(v) for v in Reference(_model(case), evaluator=evaluator).run(feeds).outputs.values()]


def check_one(case: Case, wanted: Sequence[np.ndarray], *, free: bool, tolerance: float) -> LoweredRegion:
    region, sizes = lowered(case, wanted, free=free)
    have = run_region(region, operand_arrays(case), sizes)
    for n, (got, want) in enumerate(zip(have, wanted)):
        compare(f"{case} output {n}{' with free dims' if free else ''}", got, want, tolerance)
    return region


def lowered(
    case: Case, wanted: Sequence[np.ndarray], *, free: bool = False
) -> tuple[LoweredRegion, dict[str, int]]:
    """The case's region, and the sizes of its dims; what is inferred is compared with what is wanted."""
    names = _free_names(case) if free else {}
    model = ir.from_proto(_model(case))
    sizes: dict[str, int] = {}
    dims: dict[str, FreeDim] = {}
    for (n, axis), name in names.items():
        array = case.inputs[n]
        assert array is not None
        value = next(v for v in model.graph.inputs if v.name == f"x{n}")
        assert value.shape is not None
        entries = [*value.shape]
        entries[axis] = ir.SymbolicDim(name)
        value.shape = ir.Shape(entries)
        sizes[name] = array.shape[axis]
        dims.setdefault(name, FreeDim(name, DimSpec(0), (f"x{n}", axis)))
    write_dims(model, dims)
    inference = infer_model(model, annotate=False)
    node = next(iter(model.graph))
    known = {
        v.name or "": inference.operand(v) if v in node.inputs else k for v, k in inference.known.items()
    }
    for value, read in inference.read.items():
        elements = operand_arrays(case)[value.name or ""].reshape(-1)
        sizes |= {dim.name: int(number) for dim, number in zip(read.dims, elements, strict=True)}
    sizes |= measured_sizes(case, node, inference, known, sizes)
    for guards in inference.guards.values():
        for guard in guards:
            left, right = guard.left.evaluate(sizes), guard.right.evaluate(sizes)
            assert {"==": left == right, "<=": left <= right, "!=": left != right}[guard.relation], guard
    for n, want in enumerate(wanted):
        found = known[f"y{n}"]
        assert tuple(d.evaluate(sizes) for d in found.shape) == want.shape, f"{case}: {found.shape}"
        assert found.dtype.numpy == want.dtype, f"{case}: {found.dtype} is not {want.dtype}"
    return lower_case(node, known, len(wanted), inference.bounds), sizes


POISON = {"float": np.nan, "int": -77, "uint": 77, "bool": True}


def poisoned(buffer: Buffer, sizes: Mapping[str, int]) -> np.ndarray:
    shape = tuple(d.evaluate(sizes) for d in buffer.shape)
    return np.full(shape, POISON[buffer.dtype.kind], dtype=buffer.dtype.numpy)


def run_region(
    region: LoweredRegion, arrays: Mapping[str, np.ndarray], sizes: Mapping[str, int]
) -> list[np.ndarray]:
    """The region's outputs; memory that no nest wrote stays poisoned."""
    memory = input_arrays(region, arrays)
    memory |= {b.name: poisoned(b, sizes) for b in (*region.inner, *region.outputs)}
    for nest in region.nests:
        interpret(nest, memory, sizes)
    return [memory[b.name] for b in region.outputs]


def input_arrays(region: LoweredRegion, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Operands and tables, by the region's names."""
    own = len(region.inputs) - len(region.tables)
    memory = {b.name: _in_memory(np.asarray(arrays[b.name])) for b in region.inputs[:own]}
    return memory | {b.name: table for b, table in zip(region.inputs[own:], region.tables)}


def _in_memory(array: np.ndarray) -> np.ndarray:
    """Elements of less than 8 bits share bytes."""
    return pack_bits(array) if dtype_of_array(array).is_packed else array


def compare(what: str, have: np.ndarray, want: np.ndarray, tolerance: float) -> None:
    dtype = dtype_of_array(want)
    if dtype.is_packed:
        have = unpack_bits(have, dtype, want.size).reshape(want.shape)
    if dtype.is_stored_only:
        have, want = (np.asarray(a).astype(np.float32) for a in (have, want))
        tolerance = max(tolerance, last_place(dtype.numpy) if dtype.is_float else 0.0)
    assert have.shape == want.shape, f"{what}: {have.shape} is not {want.shape}"
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(have, want, err_msg=what)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = float(finite.max()) if finite.size else 1.0
    np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance * max(scale, 1e-3), err_msg=what)


def measured_sizes(
    case: Case, node: ir.Node, inference: Inference, known: Mapping[str, Known], sizes: Mapping[str, int]
) -> dict[str, int]:
    """The dims that the operator's `measure` computes."""
    dims = inference.measured.get(node, ())
    if not dims:
        return {}
    names = [f"#{n}" for n in range(len(dims))]
    inputs = [(name, buffer_of(name, known[name], INPUT)) for name in _operand_names(node)]
    outputs = [(name, Buffer(f"y{n}", INT64, (), (), OUTPUT)) for n, name in enumerate(names)]
    facts = {**known, **dict.fromkeys(names, Known(INT64, ()))}
    row = replace(_row(node), outputs=tuple(names), measures=True)
    region = lower_region([row], facts, inputs, outputs, inference.bounds)
    numbers = [int(a) for a in run_region(region, operand_arrays(case), sizes)]
    for dim, number in zip(dims, numbers):
        assert dim.low <= number, dim
        assert dim.high is None or number <= dim.high.evaluate({**sizes}), dim
    return {dim.name: number for dim, number in zip(dims, numbers)}


def _operand_names(node: ir.Node) -> list[str]:
    return list(dict.fromkeys(v.name or "" for v in node.inputs if v is not None))


def _row(node: ir.Node) -> RegionNode:
    return RegionNode(
        node.name or node.op_type,
        node.op_type,
        tuple("" if v is None else v.name or "" for v in node.inputs),
        tuple(v.name or "" for v in node.outputs),
        attributes_of(node),
        node.domain,
    )


def lower_case(
    node: ir.Node, known: Mapping[str, Known], outputs: int, bounds: Mapping[str, Bounds] | None = None
) -> LoweredRegion:
    results = [v.name or "" for v in node.outputs]
    inputs = [(name, buffer_of(name, known[name], INPUT)) for name in _operand_names(node)]
    made = [(name, buffer_of(name, known[name], OUTPUT)) for name in results[:outputs]]
    return lower_region([_row(node)], known, inputs, made, bounds)


def buffer_of(name: str, known: Known, role: str, order: tuple[int, ...] | None = None) -> Buffer:
    chosen = order or tuple(range(known.rank))
    return Buffer(name, known.dtype, known.shape, chosen, role, known.constant is not None)


def known_of(array: np.ndarray, shape: Sequence[IntExpr] | None = None, constant: bool = False) -> Known:
    dims = tuple(shape or (IntExpr.of(n) for n in array.shape))
    return Known(dtype_of_array(array), dims, constant=array if constant else None)


def operand_arrays(case: Case) -> dict[str, np.ndarray]:
    return {f"x{n}": a for n, a in enumerate(case.inputs) if a is not None}


def _free_names(case: Case) -> dict[tuple[int, int], str]:
    found: dict[tuple[int, int], str] = {}
    shared = dict(case.same_as)
    for n, array in enumerate(case.inputs):
        if array is None or n in case.constants:
            continue
        for axis, size in enumerate(array.shape):
            # a dim of size 1 may be there to be spread: it must stay a number
            if size == 1 or (n, axis) in case.fixed:
                continue
            key = shared.get((n, axis), (n, axis))
            found[n, axis] = f"s{key[0]}_{key[1]}"
    return found


def _model(case: Case) -> onnx.ModelProto:
    operands = ["" if a is None else f"x{n}" for n, a in enumerate(case.inputs)]
    attributes = dict(case.attributes)
    node = helper.make_node(
        case.op,
        operands,
        [f"y{n}" for n in range(case.outputs)],
        name="node",
        domain=case.domain,
        **attributes,
    )
    given = [(n, a) for n, a in enumerate(case.inputs) if a is not None]
    inputs = [
        helper.make_tensor_value_info(f"x{n}", helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in given
        if n not in case.constants
    ]
    constants = [numpy_helper.from_array(a, f"x{n}") for n, a in given if n in case.constants]
    outputs = [onnx.ValueInfoProto(name=f"y{n}") for n in range(case.outputs)]
    graph = helper.make_graph([node], "case", inputs, outputs, constants)
    opsets = [helper.make_opsetid("", OPSET)]
    if case.domain:
        opsets.append(helper.make_opsetid(case.domain, _version(case)))
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _version(case: Case) -> int:
    if case.domain != "ai.onnx.ml":
        return 1
    return {"TreeEnsemble": 5, "LabelEncoder": 4}.get(case.op, 3)


def product_of(**choices: Sequence[Any]) -> list[dict[str, Any]]:
    """Every combination, as keyword dictionaries."""
    return [dict(zip(choices, values)) for values in itertools.product(*choices.values())]
