"""The ES module and its TypeScript declarations, beside a WebAssembly module."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jinja2

from cuvil_build.bundle.manifest import TensorEntry

_RUNTIME = Path(__file__).parent.parent / "runtime"

_ARRAYS = {
    "bool": "Uint8Array",
    "float16": "Uint16Array",
    "float32": "Float32Array",
    "float64": "Float64Array",
    "int8": "Int8Array",
    "int16": "Int16Array",
    "int32": "Int32Array",
    "int64": "BigInt64Array",
    "uint8": "Uint8Array",
    "uint16": "Uint16Array",
    "uint32": "Uint32Array",
    "uint64": "BigUint64Array",
}
"""JavaScript has no float16 and no bool array that every browser knows: their bits travel as they are."""


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
) -> JavaScriptFiles:
    """Text of `<model>.js` and `<model>.d.ts`; without `weights` they are in the library."""
    facts = {"name": model, "inputs": _tensors(inputs), "outputs": _tensors(outputs)}
    values = {
        "title": f"{model}: made by cuvil {version}",
        "prefix": model,
        "model": json.dumps(facts, ensure_ascii=True, indent=2),
        "library": library,
        "weights": weights,
        "dtypes": " | ".join(f"'{name}'" for name in _ARRAYS),
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
