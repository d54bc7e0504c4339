import json
from dataclasses import replace

from cuvil_build.fusion.decisions import Decision, decisions_text
from cuvil_build.fusion.gain import Cost
from cuvil_build.fusion.trust import Trust

APPLIED = Decision(
    "epilogue",
    "operator",
    "fuse",
    ("a", "b"),
    True,
    4,
    Cost(1600, -640, 1),
    Trust(0.95, 0.9, 1.0),
    ("elementwise-chain",),
    True,
    "ConvRelu_01234567",
)
REFUSED = Decision(
    "epilogue", "operator", "fuse", ("c",), False, 4, Cost(), Trust(0.123456, 1, 1), refused_by="no kernel"
)


def test_a_line_for_each_decision() -> None:
    first, second = decisions_text([APPLIED, REFUSED]).splitlines()
    assert json.loads(first) == {
        "id": APPLIED.id,
        "rule": "epilogue",
        "granularity": "operator",
        "stage": "fuse",
        "nodes": ["a", "b"],
        "applied": True,
        "fusion_src": 4,
        "bytes_saved": 1600,
        "flops_saved": -640,
        "gain": 25 - 10 + 2000,
        "decision_trust": 0.855,
        "trust": {"pattern": 0.95, "model": 0.9, "numeric": 1.0},
        "contested_by": ["elementwise-chain"],
        "review": True,
        "function": "ConvRelu_01234567",
    }
    assert json.loads(second)["refused_by"] == "no kernel"
    assert json.loads(second)["decision_trust"] == 0.1235


def test_an_id_is_of_the_rule_its_stage_and_the_nodes() -> None:
    assert APPLIED.id == replace(APPLIED, applied=False, trust=REFUSED.trust, function="").id
    assert APPLIED.id != REFUSED.id
