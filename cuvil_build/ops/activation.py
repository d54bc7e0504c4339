"""Activations that optimisers write into other operators, by name and parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from cuvil_build.errors import UnsupportedAttribute, nearest
from cuvil_build.ops.expansion import Expansion

PARAMETERS: dict[str, tuple[tuple[str, float], ...]] = {
    "Elu": (("alpha", 1.0),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
    "LeakyRelu": (("alpha", 0.01),),
    "Relu": (),
    "Selu": (("alpha", 1.67326319217681884765625), ("gamma", 1.05070102214813232421875)),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": (("alpha", 1.0),),
}


def activated(build: Expansion, x: ir.Value, name: str, values: Sequence[float | None] = ()) -> ir.Value:
    """The activation of a value; no name: the value itself."""
    if not name:
        return x
    if name == "Clip":
        low, high = (*values, None, None)[:2]
        return build.op("Clip", x, *(None if v is None else build.scalar(v, x) for v in (low, high)))
    if name not in PARAMETERS:
        raise UnsupportedAttribute(f"activation='{name}' is not supported", hint=nearest(name, PARAMETERS))
    given = (*values, None, None, None)
    attributes: dict[str, Any] = {
        key: default if value is None else value for (key, default), value in zip(PARAMETERS[name], given)
    }
    return build.op(name, x, **attributes)
