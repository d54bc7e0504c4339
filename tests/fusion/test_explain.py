from __future__ import annotations

import json

from cuvil_build.fusion.explain import (
    DecisionRow,
    Explanation,
    as_json,
    by_gain,
    kernel_errors,
    mask_names,
    matching,
    read_decisions,
    rule_bits,
    with_errors,
)

LINES = [
    {"rule": "epilogue", "nodes": ["conv", "relu"], "applied": True, "fusion_src": 5, "gain": 20},
    {"rule": "epilogue", "nodes": ["head"], "applied": False, "refused_by": "where: a > 4", "gain": 50},
    {"rule": "gelu-erf", "nodes": ["div", "erf"], "applied": True, "later": "field", "trust": {"pattern": 1}},
]  # fmt: skip


def rows() -> list[DecisionRow]:
    return read_decisions("".join(json.dumps(line) + "\n" for line in LINES))


def test_logs_with_fewer_or_more_fields_are_read() -> None:
    first, second, third = rows()
    assert (first.rule, first.nodes, first.applied, first.trust) == ("epilogue", ("conv", "relu"), True, None)
    assert second.refused_by == "where: a > 4" and not second.applied
    assert third.trust is not None and third.trust.pattern == 1


def test_bits_of_a_mask_are_rules_in_the_order_of_their_names() -> None:
    bits = rule_bits(["gelu-erf", "epilogue", "reduction-chain"])
    assert [(bit.rule, bit.mask) for bit in bits] == [
        ("epilogue", 1),
        ("gelu-erf", 2),
        ("reduction-chain", 4),
    ]
    assert mask_names(5, bits) == ["epilogue", "reduction-chain"] and mask_names(0, bits) == []


def test_decisions_are_chosen_by_node_rule_and_refusal() -> None:
    assert [r.nodes[0] for r in matching(rows(), node="re*")] == ["conv"]
    assert [r.nodes[0] for r in matching(rows(), rule="gelu-*")] == ["div"]
    assert [r.nodes[0] for r in matching(rows(), rule="epilogue", refused=True)] == ["head"]
    assert matching(rows(), node="none") == []
    assert [r.gain for r in by_gain(rows())] == [50, 20, 0]


def test_a_region_has_the_worst_error_of_the_kernels_that_compute_it() -> None:
    calls = {
        "window_1": ["conv, relu", "conv2, relu2"],
        "map_2": ["erf"],
        "map_3": ["tail"],
        "map_4": ["conv"],
    }
    errors = kernel_errors(calls, {"conv2, relu2": 3e-7, "erf": 1e-7, "conv": 2e-7})
    told = with_errors(rows(), errors)
    assert [row.error for row in told] == [3e-7, None, 1e-7], "equal regions are one kernel"
    assert with_errors(rows(), {}) == rows()


def test_many_nodes_are_found_by_the_first_that_a_kernel_names() -> None:
    names = [f"n{i}" for i in range(20)]
    row = DecisionRow(rule="epilogue", nodes=tuple(names), applied=True)
    (told,) = with_errors(
        [row], kernel_errors({"map_1": [", ".join(names[:16])]}, {", ".join(names[:16]): 1e-6})
    )
    assert told.error == 1e-6


def test_the_json_form_has_what_was_read() -> None:
    found = Explanation(
        step="fuse:a/fp32", variants=("a/fp32/x64",), rules=rule_bits(["epilogue"]), decisions=tuple(rows())
    )
    (told,) = as_json([found])
    assert told["rules"] == [{"rule": "epilogue", "mask": 1}] and not found.is_measured
    assert [row["nodes"] for row in told["decisions"]] == [line["nodes"] for line in LINES]
