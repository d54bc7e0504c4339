"""Models of one fused attention each, in ONNX's textual syntax, and several of them as one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Dim = int | str
Shape = tuple[Dim, ...]


@dataclass(frozen=True)
class Attention:
    """A function and the operands of its call; dims are numbers or names."""

    inputs: Mapping[str, Shape]
    output: Shape
    body: str
    constants: Mapping[str, str] = field(default_factory=dict)
    """By name: type and numbers, as `float: 2.5`."""

    def feeds(self, sizes: Mapping[str, int], seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        shapes = {n: tuple(sizes[d] if isinstance(d, str) else d for d in s) for n, s in self.inputs.items()}
        return {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}


def model(attentions: Mapping[str, Attention]) -> str:
    """Each by its own name, which its operands' names begin with."""
    inputs, outputs, constants, calls, functions = [], [], [], [], []
    for name, one in attentions.items():
        inputs += [f"float[{_dims(s)}] {name}_{n}" for n, s in one.inputs.items()]
        outputs.append(f"float[{_dims(one.output)}] {name}_y")
        for n, text in one.constants.items():
            kind, numbers = text.split(": ")
            constants.append(f"{kind} {name}_{n} = {{{numbers}}}")
        names = [*one.inputs, *one.constants]
        calls.append(f"{name}_y = ai.cuvil.fused.{name} ({', '.join(f'{name}_{n}' for n in names)})")
        functions.append(
            f'<domain: "ai.cuvil.fused", opset_import: ["" : 23]>\n'
            f"{name} ({', '.join(names)}) => (y) {{ {one.body} }}"
        )
    given = f"<{', '.join(constants)}>" if constants else ""
    graph = f"agraph ({', '.join(inputs)}) => ({', '.join(outputs)}) {given} {{ {'; '.join(calls)} }}"
    return "\n".join([graph.replace("; ", "\n"), *functions])


def _dims(shape: Shape) -> str:
    return ", ".join(map(str, shape))


def bert(batch: Dim, heads: Dim, rows: Dim, size: int) -> Attention:
    """Heads beside the features, a scale and a mask that is added."""
    shape = (batch, rows, heads, size)
    body = """
      qt = Transpose <perm = [0, 2, 1, 3]> (q)
      kt = Transpose <perm = [0, 2, 3, 1]> (k)
      vt = Transpose <perm = [0, 2, 1, 3]> (v)
      scores = MatMul (qt, kt)
      scaled = Div (scores, root)
      masked = Add (scaled, mask)
      weights = Softmax <axis = -1> (masked)
      o = MatMul (weights, vt)
      y = Transpose <perm = [0, 2, 1, 3]> (o)"""
    inputs = {"q": shape, "k": shape, "v": shape, "mask": (batch, 1, 1, rows)}
    return Attention(inputs, shape, body, {"root": "float: 2.5"})


def scaled_query(batch: Dim, heads: int, rows: Dim, keys: Dim, size: int) -> Attention:
    """The scale on the query, and one row of results for all heads."""
    inputs = {
        "q": (batch, heads, rows, size),
        "k": (batch, heads, keys, size),
        "v": (batch, heads, keys, size),
    }
    body = """
      smaller = Mul (q, scale)
      kt = Transpose <perm = [0, 1, 3, 2]> (k)
      scores = MatMul (smaller, kt)
      weights = Softmax <axis = -1> (scores)
      o = MatMul (weights, v)
      t = Transpose <perm = [0, 2, 1, 3]> (o)
      y = Reshape (t, shape)"""
    constants = {"scale": "float: 0.3", "shape": f"int64[3]: 0, 0, {heads * size}"}
    return Attention(inputs, (batch, rows, heads * size), body, constants)


def grouped(batch: Dim, heads: int, repeat: int, rows: Dim, keys: Dim, size: int) -> Attention:
    """Several heads of the query read one of the keys; the query is rotated; a row sees some keys only."""
    inputs = {
        "q": (batch, heads * repeat, rows, size),
        "k": (batch, heads, keys, size),
        "v": (batch, heads, keys, size),
        "c": (rows, size),
        "s": (rows, size),
        "bias": (rows, keys),
    }
    body = """
      low, high = Split <axis = -1, num_outputs = 2> (q)
      minus = Neg (high)
      turned = Concat <axis = -1> (minus, low)
      qc = Mul (q, c)
      qs = Mul (turned, s)
      query = Add (qc, qs)
      kw = Unsqueeze (k, two)
      ke = Expand (kw, spread)
      kr = Reshape (ke, flat)
      vw = Unsqueeze (v, two)
      ve = Expand (vw, spread)
      vr = Reshape (ve, flat)
      kt = Transpose <perm = [0, 1, 3, 2]> (kr)
      scores = MatMul (query, kt)
      seen = Less (bias, half)
      kept = Where (seen, scores, lowest)
      weights = Softmax <axis = -1> (kept)
      y = MatMul (weights, vr)"""
    constants = {
        "two": "int64[1]: 2",
        "spread": f"int64[5]: 1, 1, {repeat}, 1, 1",
        "flat": f"int64[4]: 0, {heads * repeat}, -1, {size}",
        "half": "float: 0.5",
        "lowest": "float: -1e30",
    }
    return Attention(inputs, (batch, heads * repeat, rows, size), body, constants)
