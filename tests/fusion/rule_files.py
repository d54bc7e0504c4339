"""Rules and graphs for tests of the rule engine."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

import numpy as np
import onnx_ir as ir

from cuvil_build import paths, yaml_source
from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.rule import Rule, load_rules, parse_rule
from cuvil_build.fusion.scope import Scope
from cuvil_build.ops.infer import infer_model

HEAD = "name: test\ndescription: For a test.\ngranularity: operator\n"


def rule_from(text: str, name: str = "test") -> Rule:
    """A rule by its text without the keys that do not matter to a test."""
    body = HEAD.replace("test\n", f"{name}\n", 1) + textwrap.dedent(text)
    return parse_rule(yaml_source.parse(body, f"{name}.yaml"), body, name)


def shipped_rules(names: Iterable[str] = ()) -> list[Rule]:
    wanted = set(names)
    files = paths.find_yaml("rules")
    return load_rules(file for name, file in files.items() if not wanted or name in wanted)


def network(text: str) -> ir.Model:
    """A model whose inputs are weights, but for `x`."""
    model = parse_model(text)
    for number, value in enumerate(list(model.graph.inputs)):
        if value.name == "x":
            continue
        assert value.shape is not None
        array = np.random.default_rng(number).standard_normal(value.shape.numpy()).astype(np.float32)
        value.const_value = ir.Tensor(array, name=value.name)
        model.graph.inputs.remove(value)
        model.graph.register_initializer(value)
    infer_model(model)
    return model


def scope_of(text: str) -> Scope:
    model = parse_model(text)
    return Scope.of(model, infer_model(model))


def node_of(scope: Scope, result: str) -> ir.Node:
    return next(n for n in scope.model.graph.all_nodes() if n.outputs[0].name == result)
