"""Dropout as inference does it: nothing happens."""

from __future__ import annotations

from cuvil_build.cuir.dtypes import BOOL
from cuvil_build.kernel.builder import NestBuilder, View
from cuvil_build.ops.operator import InferContext, Known, Operator
from cuvil_build.ops.shapes import ANY, require_attribute


def infer(
    ctx: InferContext,
    x: Known,
    ratio: Known | None = None,
    training: Known | None = None,
    *,
    seed: int | None = None,
) -> tuple[Known, ...]:
    trains = training is not None and not (training.constant is not None and not training.constant.any())
    require_attribute(not trains, "training_mode", "export the model for inference")
    return (Known(x.dtype, x.shape), Known(BOOL, x.shape))[: ctx.output_count]


def lower(
    build: NestBuilder,
    x: View,
    ratio: View | None = None,
    training: View | None = None,
    *,
    seed: int | None = None,
) -> tuple[View, View]:
    return x, build.full(True, BOOL, x.shape)


OP = Operator("Dropout", infer, lower, kind="view", dtypes=ANY)
