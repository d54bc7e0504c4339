"""The ES module and its TypeScript declarations, beside a WebAssembly module."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from cuvil_build.bundle.manifest import TensorEntry
from cuvil_build.cuir.dtypes import DTYPES

_RUNTIME = Path(__file__).parent.parent / "runtime"

_BY_C_TYPE = {
    "float": "Float32Array",
    "double": "Float64Array",
    "int8_t": "Int8Array",
    "int16_t": "Int16Array",
    "int32_t": "Int32Array",
    "int64_t": "BigInt64Array",
    "uint8_t": "Uint8Array",
    "uint16_t": "Uint16Array",
    "uint32_t": "Uint32Array",
    "uint64_t": "BigUint64Array",
}
_ARRAYS = {d.name: _BY_C_TYPE[d.c_type] for d in DTYPES.values()}
"""JavaScript has no bool array, and no float16 array that every browser knows: bits of such dtypes travel as
they are. Elements of less than 8 bits share bytes, the first in the lowest bits."""


@dataclass(frozen=True, slots=True)
class Member:
    """A library that takes the place of the first where the engine has its features."""

    target: str
    library: str
    features: tuple[str, ...]


PROBED = ("relaxed_simd",)
"""Features that the loader can try out; every other one is taken for granted in WebAssembly."""


@dataclass(frozen=True, slots=True)
class JavaScriptFiles:
    module: str
    declarations: str


def render_javascript(
    *,
    model: str,
    inputs: Sequence[TensorEntry],
    outputs: Sequence[TensorEntry],
    version: str,
    library: str = "module.wasm",
    weights: str | None = "weights.safetensors",
    target: str = "wasm32-simd128",
    members: Sequence[Member] = (),
) -> JavaScriptFiles:
    """Text of `<model>.js` and `<model>.d.ts`; without `weights` they are in the library."""
    facts = {"name": model, "inputs": _tensors(inputs), "outputs": _tensors(outputs)}
    values = {
        "title": f"{model}: made by cuvil {version}",
        "prefix": model,
        "model": json.dumps(facts, ensure_ascii=True, indent=2),
        "library": library,
        "weights": weights,
        "target": target,
        # the last of a list asks for most
        "members": [
            {"target": m.target, "library": m.library, "features": json.dumps(_probed(m))}
            for m in reversed(members)
        ],
        "dtypes": " | ".join(f"'{name}'" for name in _ARRAYS),
        "kinds": [
            {"name": d.name, "array": _ARRAYS[d.name], "code": d.dlpack_code, "bits": d.bits}
            for d in DTYPES.values()
        ],
        "inputs": [_row(t) for t in inputs],
        "outputs": [_row(t) for t in outputs],
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_RUNTIME),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    files = (environment.get_template(f"module.{kind}.jinja").render(values) for kind in ("js", "d.ts"))
    return JavaScriptFiles(*files)


def _probed(member: Member) -> list[str]:
    return [feature for feature in PROBED if feature in member.features]


def _tensors(entries: Sequence[TensorEntry]) -> list[dict[str, object]]:
    return [{"name": e.name, "dtype": e.dtype, "shape": list(e.shape)} for e in entries]


def _row(entry: TensorEntry) -> dict[str, str]:
    shape = ", ".join(map(str, entry.shape))
    return {
        "key": json.dumps(entry.name),
        "dtype": entry.dtype,
        # a comment must not end early
        "shape": f"[{shape}]".replace("*/", "* /"),
        "array": _ARRAYS[entry.dtype],
    }
