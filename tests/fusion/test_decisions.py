import json

from cuvil_build.fusion.decisions import Decision, decisions_text


def test_a_line_for_each_decision() -> None:
    applied = Decision("epilogue", ("a", "b"), True, 4, 128, 0, 0.95, "ConvRelu_01234567")
    refused = Decision("epilogue", ("c",), False, 4, 0, 0, 0.123456, refused_by="no kernel for Conv")
    first, second = decisions_text([applied, refused]).splitlines()
    assert json.loads(first) == {
        "rule": "epilogue",
        "nodes": ["a", "b"],
        "applied": True,
        "fusion_src": 4,
        "bytes_saved": 128,
        "flops_saved": 0,
        "decision_trust": 0.95,
        "function": "ConvRelu_01234567",
    }
    assert json.loads(second)["refused_by"] == "no kernel for Conv"
    assert json.loads(second)["decision_trust"] == 0.1235
