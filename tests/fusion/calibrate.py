"""Measures how far predicted speed-ups of regions are off: `python -m tests.fusion.calibrate [TARGET ...]`.

Each net is one region. It is built with its nodes apart and fused, and timed on one thread; the speed-up that
the engine's costs predict is held against the measured one. What is printed is the mean relative error by
kind of anchor, as the key `calibration` of the target's file has it.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx_ir as ir

from cuvil_build import paths
from cuvil_build.cuir.dims import read_dims
from cuvil_build.fusion.fuse import fuse_graph
from cuvil_build.fusion.gain import REFERENCE, Costs
from cuvil_build.fusion.scope import Scope
from cuvil_build.ops.infer import infer_model
from cuvil_build.ops.inference import Inference
from cuvil_build.ops.lower_graph import lower_graph
from cuvil_build.passes.assign_layouts import assign_layouts, order_of
from cuvil_build.target.descriptor import Target
from cuvil_build.target.load import load_target
from tests.codegen import module_plans as plans
from tests.codegen.built_graphs import planned
from tests.codegen.module_plans import Api, dl
from tests.fusion.rule_files import network, rule_from

RUNS = 400
NETS = {
    "map": (
        "(float[64, 4096] x) => (float[64, 4096] y) { a = Abs(x)  b = Relu(a)  c = Sqrt(b)  y = Neg(c) }",
        "(float[64, 4096] x, float[4096] s) => (float[64, 4096] y) "
        "{ a = Mul(x, s)  b = Add(a, x)  y = Relu(b) }",
        "(float[16, 1024] x, float[1024] s) => (float[16, 1024] y) "
        "{ a = Mul(x, s)  b = Sigmoid(a)  y = Mul(b, a) }",
        "(float[64, 4096] x) => (float[64, 4096] y) { a = Sigmoid(x)  y = Mul(x, a) }",
    ),
    "contraction": (
        "(float[64, 512] x, float[512, 512] w, float[512] b) => (float[64, 512] y) "
        "{ m = MatMul(x, w)  a = Add(m, b)  y = Relu(a) }",
        "(float[128, 256] x, float[256, 1024] w, float[1024] b) => (float[128, 1024] y) "
        "{ m = MatMul(x, w)  a = Add(m, b)  y = Gelu(a) }",
        "(float[256, 64] x, float[64, 64] w, float[64] b) => (float[256, 64] y) "
        "{ m = MatMul(x, w)  a = Add(m, b)  y = Add(a, x) }",
    ),
    "window": (
        "(float[1, 32, 56, 56] x, float[32, 32, 3, 3] w, float[32] b) => (float[1, 32, 56, 56] y) "
        "{ c = Conv <pads = [1, 1, 1, 1]> (x, w, b)  y = Relu(c) }",
        "(float[1, 64, 28, 28] x, float[64, 64, 1, 1] w, float[64] b) => (float[1, 64, 28, 28] y) "
        "{ c = Conv(x, w, b)  a = Add(c, x)  y = Relu(a) }",
        "(float[1, 64, 56, 56] x, float[64, 1, 3, 3] w, float[64] b) => (float[1, 64, 56, 56] y) "
        "{ c = Conv <group = 64, pads = [1, 1, 1, 1]> (x, w, b)  y = HardSwish(c) }",
    ),
    "reduce": (
        "(float[128, 768] x, float[768] s, float[768] b) => (float[128, 768] y) "
        "{ n = LayerNormalization(x, s, b)  y = Relu(n) }",
        "(float[128, 768] x) => (float[128, 1] y) <int64[1] last = {-1}> "
        "{ a = Mul(x, x)  m = ReduceMean(a, last)  y = Sqrt(m) }",
        "(float[256, 256] x, float[256] b) => (float[256, 256] y) "
        "{ a = Add(x, b)  s = Softmax(a)  y = Abs(s) }",
    ),
}
RULE = "stage: fuse\npattern: {}\naction: fuse\n"
CHAINS = {
    "map": "Any(map) -> Any(map)+",
    "contraction": "MatMul -> Any(map)+",
    "window": "Conv -> Any(map)+",
    "reduce": "Any(map)* -> Any(reduce) -> Any(map)*",
}


def predicted(model: ir.Model) -> float:
    """How many times faster one region is than its nodes apart."""
    scope = Scope.of(model, infer_model(model, annotate=False))
    costs = Costs.of(scope, read_dims(model))
    nodes = list(model.graph)
    region = costs.region(nodes, model.graph.outputs[0])
    return REFERENCE.seconds(costs.apart(nodes)) / REFERENCE.seconds(region)


def measured(model: ir.Model, inference: Inference, target: Target, folder: Path) -> float:
    """Seconds of the fastest run."""
    assign_layouts(model, inference)
    graph = lower_graph(model, infer_model(model, annotate=False), order_of)
    folder.mkdir()
    plan = planned(graph, folder / "packed", machine=target)
    flags = (*plans.STRICT, *plans.FREESTANDING, "-O3", f"-march={target.gcc_march}")
    api = Api(plans.build(plan, folder, flags=flags))
    (folder / "packed").replace(folder / "weights.safetensors")
    context = api.opened(threads=1)
    value = model.graph.inputs[0]
    assert value.shape is not None
    x = np.random.default_rng(0).standard_normal(value.shape.numpy()).astype(np.float32)
    tensor = dl(x)
    call, given, out = api.run, (type(tensor) * 1)(tensor), (type(tensor) * 1)(type(tensor)())
    best = math.inf
    for _ in range(RUNS):
        start = time.perf_counter()
        status = call(context, given, out)
        best = min(best, time.perf_counter() - start)
        assert status == 0, api.text(context)
    return best


def error_of(text: str, kind: str, target: Target, folder: Path) -> float:
    model = network(f"agraph {text}")
    guess = predicted(model)
    before = model.clone()
    apart = measured(before, infer_model(before), target, folder / "apart")
    result = fuse_graph(model, [rule_from(RULE.format(CHAINS[kind]))])
    assert sum(1 for _ in model.graph) == 1, "a net of this file is one region"
    fused = measured(model, result.inference, target, folder / "fused")
    real = apart / fused
    print(f"  {target.name} {kind}: predicted {guess:.2f}, measured {real:.2f}", file=sys.stderr)
    return abs(guess - real) / real


def main(arguments: list[str]) -> None:
    for name in arguments or ["x86_64", "x86_64-avx2"]:
        target = load_target(name, paths.search_path("targets"))
        errors: dict[str, list[float]] = defaultdict(list)
        for kind, texts in NETS.items():
            for text in texts:
                with tempfile.TemporaryDirectory() as folder:
                    errors[kind].append(error_of(text, kind, target, Path(folder)))
        rows = ", ".join(f"{kind}: {sum(e) / len(e):.2f}" for kind, e in sorted(errors.items()))
        print(f"{name}: calibration: {{{rows}}}")


if __name__ == "__main__":
    main(sys.argv[1:])
