"""What ai.onnx.ml does to features before a model: scale, choose, replace and put them side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cuvil_build.cuir.dtypes import FLOAT32, FLOAT64, DType
from cuvil_build.cuir.int_expr import ONE, ZERO, IntExpr
from cuvil_build.errors import InvalidModel, ShapeMismatch, UnsupportedAttribute
from cuvil_build.kernel.builder import Index, NestBuilder, View
from cuvil_build.kernel.expr import Const, Expr, apply
from cuvil_build.kernel.routine_writer import load
from cuvil_build.kernel.view import concatenate, reindex, reshape
from cuvil_build.ops.gather import wrapped
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.scalar import call, cast, div, mul, select, sub

DOMAIN = "ai.onnx.ml"
INPUTS = ("float32", "float64", "int32", "int64")


def per_feature(build: NestBuilder, values: Sequence[float], dtype: DType) -> Callable[[Index], Expr]:
    """One number for all features, or one for each."""
    if len(values) == 1:
        constant = Const(float(values[0]) if dtype.is_float else int(values[0]), dtype)
        return lambda index: constant
    table = build.table(np.array(values, dtype.numpy))
    return lambda index: load(table, index[-1])


def check_features(ctx: InferContext, x: Known, values: Sequence[float], what: str) -> None:
    if not x.rank:
        raise ShapeMismatch(f"{what} of a scalar")
    if len(values) != 1:
        ctx.require_equal(x.shape[-1], IntExpr.of(len(values)), f"{what}, one for each feature")


# Scaler -------------------------------------------------------------------------------------------


def infer_scaler(
    ctx: InferContext, x: Known, *, offset: Sequence[float] = (), scale: Sequence[float] = ()
) -> Known:
    check_features(ctx, x, offset, "offset of Scaler")
    check_features(ctx, x, scale, "scale of Scaler")
    return Known(FLOAT32, x.shape)


def lower_scaler(
    build: NestBuilder, x: View, *, offset: Sequence[float] = (), scale: Sequence[float] = ()
) -> View:
    dtype = FLOAT64 if x.dtype == FLOAT64 else FLOAT32
    offsets, scales = (per_feature(build, values, dtype) for values in (offset, scale))

    def at(index: Index) -> Expr:
        return cast(mul(sub(cast(x.at(index), dtype), offsets(index)), scales(index)), FLOAT32)

    return build.compute(x.shape, FLOAT32, at)


# Choosing -----------------------------------------------------------------------------------------


def infer_extractor(ctx: InferContext, x: Known, indices: Known) -> Known:
    if not x.rank:
        raise ShapeMismatch("ArrayFeatureExtractor of a scalar")
    return Known(x.dtype, ((ONE,) if x.rank == 1 else x.shape[:-1]) + (_count(indices.shape),))


def _count(shape: Sequence[IntExpr]) -> IntExpr:
    total = ONE
    for dim in shape:
        total = total * dim
    return total


def lower_extractor(build: NestBuilder, x: View, indices: View) -> View:
    source = build.buffer(x)
    flat = reshape(indices, (_count(indices.shape),))

    def at(index: Index) -> Expr:
        position = wrapped(flat.at(index[-1:]), x.shape[-1])
        return load(source, *(index[:-1] if x.rank > 1 else ()), position)

    return build.compute(build.results[0][1], x.dtype, at)


def infer_vectorizer(ctx: InferContext, *operands: Known, inputdimensions: Sequence[int] = ()) -> Known:
    if not operands or len(inputdimensions) != len(operands):
        raise InvalidModel(f"FeatureVectorizer of {len(operands)} inputs and {len(inputdimensions)} sizes")
    rows = _matrix_shape(operands[0])[0]
    for operand in operands[1:]:
        rows = ctx.require_equal(rows, _matrix_shape(operand)[0], "rows of FeatureVectorizer")
    return Known(FLOAT32, (rows, IntExpr.of(sum(inputdimensions))))


def _matrix_shape(x: Known | View) -> tuple[IntExpr, IntExpr]:
    """A list is one row."""
    if x.rank == 0:
        raise ShapeMismatch("FeatureVectorizer of a scalar")
    return (ONE, x.shape[0]) if x.rank == 1 else (x.shape[0], _count(x.shape[1:]))


def lower_vectorizer(build: NestBuilder, *operands: View, inputdimensions: Sequence[int] = ()) -> View:
    """Of a wider input the first numbers, of a narrower one zeros behind it."""
    pieces = []
    for operand, width in zip(operands, inputdimensions):
        matrix = build.cast(reshape(operand, _matrix_shape(operand)), FLOAT32)
        extent = matrix.shape[1]
        if not extent.is_static:
            raise UnsupportedAttribute(f"FeatureVectorizer of {extent} features is not supported")
        kept = min(width, extent.value)
        pieces.append(reindex(matrix, (matrix.shape[0], IntExpr.of(kept)), lambda index: index))
        if kept < width:
            pieces.append(build.full(0.0, FLOAT32, (matrix.shape[0], IntExpr.of(width - kept))))
    kept_pieces = [piece for piece in pieces if piece.shape[1] != ZERO]
    return concatenate(kept_pieces, 1, build.results[0][1])


# Replacing ----------------------------------------------------------------------------------------


def infer_same(ctx: InferContext, x: Known, *, threshold: float = 0.0) -> Known:
    return Known(x.dtype, x.shape)


def lower_binarizer(build: NestBuilder, x: View, *, threshold: float = 0.0) -> View:
    if x.dtype.is_float:
        return build.map(lambda e: cast(call("gt", e, threshold), x.dtype), x)
    return build.map(lambda e: cast(call("gt", cast(e, FLOAT32), threshold), x.dtype), x)


def infer_imputer(
    ctx: InferContext,
    x: Known,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> Known:
    values: Sequence[float] = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    check_features(ctx, x, values, "values of Imputer")
    return Known(x.dtype, x.shape)


def lower_imputer(
    build: NestBuilder,
    x: View,
    *,
    imputed_value_floats: Sequence[float] = (),
    imputed_value_int64s: Sequence[int] = (),
    replaced_value_float: float = 0.0,
    replaced_value_int64: int = 0,
) -> View:
    values: Sequence[float] = imputed_value_floats if x.dtype.is_float else imputed_value_int64s
    imputed = per_feature(build, values, x.dtype)
    replaced = replaced_value_float if x.dtype.is_float else replaced_value_int64

    def at(index: Index) -> Expr:
        value = x.at(index)
        is_gap = apply("isnan", value) if np.isnan(replaced) else call("eq", value, replaced)
        return select(is_gap, imputed(index), value)

    return build.compute(x.shape, x.dtype, at)


# Normalizer ---------------------------------------------------------------------------------------


def infer_normalizer(ctx: InferContext, x: Known, *, norm: str = "MAX") -> Known:
    if norm not in ("MAX", "L1", "L2"):
        raise UnsupportedAttribute(f"norm='{norm}' is not supported")
    if x.rank not in (1, 2):
        raise ShapeMismatch(f"Normalizer of a tensor of rank {x.rank}")
    return Known(FLOAT32, x.shape)


def lower_normalizer(build: NestBuilder, x: View, *, norm: str = "MAX") -> View:
    """A row of zeros stays one."""
    x = build.operand(build.cast(x, FLOAT32))
    if norm == "MAX":
        size = build.reduce("max", x, [-1])
    elif norm == "L1":
        size = build.reduce("sum", build.map("abs", x), [-1])
    else:
        size = build.map("sqrt", build.reduce("sum", build.map(lambda e: mul(e, e), x), [-1]))
    return build.map(lambda e, s: select(call("eq", s, 0.0), e, div(e, s)), x, size)


OPS = (
    Operator("Scaler", infer_scaler, lower_scaler, domain=DOMAIN, dtypes=INPUTS),
    Operator(
        "ArrayFeatureExtractor", infer_extractor, lower_extractor, kind="gather", domain=DOMAIN, dtypes=INPUTS
    ),
    Operator(
        "FeatureVectorizer", infer_vectorizer, lower_vectorizer, kind="copy", domain=DOMAIN, dtypes=INPUTS
    ),
    Operator("Binarizer", infer_same, lower_binarizer, domain=DOMAIN, dtypes=INPUTS),
    Operator("Imputer", infer_imputer, lower_imputer, domain=DOMAIN, dtypes=INPUTS),
    Operator("Normalizer", infer_normalizer, lower_normalizer, kind="reduce", domain=DOMAIN, dtypes=INPUTS),
)
