"""Names that no C compiler would take, and two models of the same names in one program."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.runner import why_not_executed
from tests.e2e.workshop import Built, Subject, Workshop

NATIVE = "x86_64"
WHY_NOT = why_not_executed(load_target(NATIVE, [shipped("targets")]))
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2.5
ODD = (
    "n" * 1000,
    "größe",
    "日本語",
    "a b",
    "a_b",
    "a.b",
    'q"uote',
    "*/",
    "back\\slash",
    "new\nline",
    "for",
    "ctx",
)


def subject(
    name: str, nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str]
) -> Subject:
    def value(text: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(text, TensorProto.FLOAT, [2, 3])

    weight = numpy_helper.from_array(np.full((2, 3), 1 + len(name), np.float32), "w")
    graph = helper.make_graph(nodes, "main_graph", [*map(value, inputs)], [*map(value, outputs)], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    cases = [{text: X + number for number, text in enumerate(inputs)}]
    return Subject(name, {}, cases, lambda path: onnx.save(model, path))


def test_names_that_are_no_identifiers(workshop: Workshop) -> None:
    """Verified by the build: each output is the input of the same place, through a node of an odd name."""
    nodes = [helper.make_node("Mul", [name, "w"], [f"{name}!"], f"node {name}") for name in ODD] + [
        helper.make_node("Tanh", [f"{name}!"], [f"{name}?"], f"a node {name}") for name in ODD
    ]
    built = workshop.build(subject("odd-names", nodes, ODD, [f"{name}?" for name in ODD]), NATIVE)
    assert [t["name"] for t in built.manifest["outputs"]] == [f"{name}?" for name in ODD]
    if shutil.which("gcc") is not None:
        command = [
            "gcc",
            "-fsyntax-only",
            "-std=c11",
            "-Wall",
            "-Werror",
            "-x",
            "c",
            str(built.folder / "odd_names.h"),
        ]
        compiled = subprocess.run(command, capture_output=True, text=True, check=False)
        assert compiled.returncode == 0, compiled.stderr


MAIN = """
#include <math.h>
#include <stdio.h>
#include "first.h"
#include "second.h"

static const float x[2][3] = {{ -2.5f, -1.5f, -0.5f }, { 0.5f, 1.5f, 2.5f }};

int main(void) {
  first_ctx *one;
  second_ctx *other;
  float y[2][3], z[2][3];
  if (first_open(&one, "first.weights", NULL)) return printf("%s\\n", first_error(one)), 1;
  if (second_open(&other, "second.weights", NULL)) return printf("%s\\n", second_error(other)), 1;
  if (first_infer(one, x, y) || second_infer(other, x, z)) return 2;
  for (int i = 0; i < 6; i++) {
    if (fabsf(y[0][i] - expf(x[0][i] * 6)) > 1e-4f * expf(15)) return printf("y[%d] is %g\\n", i, y[0][i]), 3;
    if (fabsf(z[0][i] - tanhf(x[0][i] * 7)) > 1e-5f) return printf("z[%d] is %g\\n", i, z[0][i]), 4;
  }
  first_close(one);
  second_close(other);
  return 0;
}
"""


def objects_of(built: Built) -> dict[str, bytes]:
    """Units of the module, without those of its checks."""
    return {n: path.read_bytes() for n, path in built.objects().items() if not n.startswith("checks")}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
def test_two_models_with_the_same_names_link_into_one_program(workshop: Workshop, tmp_path: Path) -> None:
    def nodes(op: str) -> list[onnx.NodeProto]:
        return [helper.make_node("Mul", ["x", "w"], ["t"], "a"), helper.make_node(op, ["t"], ["y"], "b")]

    made = [
        workshop.build(subject(n, nodes(op), ["x"], ["y"]), NATIVE)
        for n, op in (("first", "Exp"), ("second", "Tanh"))
    ]
    kept: dict[bytes, Path] = {}
    for built in made:
        name = built.subject.name
        shutil.copyfile(built.folder / "weights.safetensors", tmp_path / f"{name}.weights")
        shutil.copyfile(built.folder / f"{name}.h", tmp_path / f"{name}.h")
        for unit, content in objects_of(built).items():
            kept.setdefault(content, tmp_path / f"{name}-{unit}.o").write_bytes(content)
    (tmp_path / "main.c").write_text(MAIN)
    command = ["gcc", "main.c", *sorted(map(str, kept.values())), "-o", "program", "-lm", "-lpthread"]
    linked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert linked.returncode == 0, linked.stderr
    done = subprocess.run(["./program"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
