"""How long the rule engine takes: `python -m tests.fusion.benchmark [NODES] [RULES]`.

A graph of transformer blocks with everything spelled out, squeeze-and-excite blocks and long element-wise
chains; the shipped rules, and copies of them under other names that compete for the same nodes.
"""

from __future__ import annotations

import re
import sys
import time
from dataclasses import replace

import onnx_ir as ir

from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.rule import Rule
from cuvil_build.ops.infer import infer_model
from tests.fusion.rule_files import shipped_rules

CONSTANTS = """int64[4] heads = {0, 0, 2, 8}, int64[3] flat = {0, 0, 16}, float root = {2.8284271},
    float r = {1.4142135}, float one = {1}, float half = {0.5}, float two = {2}, float eps = {1e-5},
    int64[1] last = {-1}, float three = {3}, float zero = {0}, float six = {6}"""
WEIGHTS = (
    "float[16, 16] w, float[16] b, float[16, 32] u, float[32] c, float[32, 16] d, float[16] g, float[16] h"
)


def block(n: int) -> tuple[str, int]:
    """Statements from `x{n}` to `x{n + 1}`, and how many they are."""
    text = """
        qm = MatMul(x, w)  qa = Add(qm, b)  qr = Reshape(qa, heads)  q = Transpose <perm = [0, 2, 1, 3]> (qr)
        km = MatMul(x, w)  ka = Add(km, b)  kr = Reshape(ka, heads)  k = Transpose <perm = [0, 2, 3, 1]> (kr)
        vm = MatMul(x, w)  va = Add(vm, b)  vr = Reshape(va, heads)  v = Transpose <perm = [0, 2, 1, 3]> (vr)
        s = MatMul(q, k)  sd = Div(s, root)  sp = ReduceMax <keepdims = 1> (sd, last)  sg = Sub(sd, sp)
        se = Exp(sg)  st = ReduceSum <keepdims = 1> (se, last)  p = Div(se, st)
        o = MatMul(p, v)  ot = Transpose <perm = [0, 2, 1, 3]> (o)  or = Reshape(ot, flat)
        om = MatMul(or, w)  oa = Add(om, b)  y = Add(x, oa)
        m = ReduceMean(y, last)  f = Sub(y, m)  sq = Pow(f, two)  vq = ReduceMean(sq, last)  e = Add(vq, eps)
        rt = Sqrt(e)  n = Div(f, rt)  ng = Mul(n, g)  l = Add(ng, h)
        fm = MatMul(l, u)  fa = Add(fm, c)  fd = Div(fa, r)  fe = Erf(fd)  fs = Add(fe, one)
        fx = Mul(fa, fs)  ff = Mul(fx, half)  um = MatMul(ff, d)  ua = Add(um, b)  z = Add(ua, l)
        z1 = Tanh(z)  z2 = Sigmoid(z)  z3 = Mul(z1, z2)  z4 = Abs(z3)  z5 = Add(z4, three)
        z6 = Clip(z5, zero, six)  z7 = Mul(z4, z6)  out = Div(z7, six)
    """
    words = text.split()
    names = {words[i - 1] for i, word in enumerate(words) if word == "="} - {"perm", "keepdims", "<perm"}
    names = {name for name in names if name.isidentifier()}
    for old in sorted(names | {"x"}):
        new = f"x{n + 1}" if old == "out" else f"x{n}" if old == "x" else f"{old}_{n}"
        text = _renamed(text, old, new)
    return text, len(names)


def _renamed(text: str, old: str, new: str) -> str:
    return re.sub(rf"\b{old}\b(?!\s*=\s*[\[\d])", new, text)


def graph(nodes: int) -> ir.Model:
    texts, count, n = [], 0, 0
    while count < nodes:
        text, more = block(n)
        texts.append(text)
        count, n = count + more, n + 1
    head = f"agraph (float[2, S, 16] x0, {WEIGHTS}) => (float[2, S, 16] x{n}) <{CONSTANTS}>"
    model = parse_model(f"{head} {{ {''.join(texts)} }}")
    infer_model(model)
    return model


def rules(count: int) -> list[Rule]:
    shipped = shipped_rules()
    more = [replace(shipped[i % len(shipped)], name=f"copy-{i}") for i in range(max(0, count - len(shipped)))]
    return [*shipped, *more]


def main(arguments: list[str]) -> None:
    nodes, count = ([*map(int, arguments), 5000, 60][i] if i < 2 else 0 for i in (0, 1))
    model, chosen = graph(nodes), rules(count)
    size = sum(1 for _ in model.graph)
    start, busy = time.perf_counter(), time.process_time()
    result = fuse_graph(model, chosen)
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    applied = sum(decision.applied for decision in result.decisions)
    told = f"{seconds:.2f} s, {busy:.2f} s of them on a CPU, {applied} applied"
    print(f"{size} nodes, {len(chosen)} rules: {told}, {sum(1 for _ in model.graph)} nodes left")


if __name__ == "__main__":
    main(sys.argv[1:])
