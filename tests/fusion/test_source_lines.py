from __future__ import annotations

from cuvil_build.cuir.locations import set_location
from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.source_lines import source_lines

TRACE = (
    'File "zoo/net.py", line 40, in forward\n    x = self.head(x)\nFile "zoo/head.py", line 7, in forward\n'
)


def test_lines_come_from_what_the_exporter_kept_of_each_node() -> None:
    model = parse_model("agraph (float[4] x) => (float[4] y) { a = Exp(x)  b = Abs(a)  y = Neg(b) }")
    nodes = list(model.graph)
    for node, name in zip(nodes, ("exp", "abs", "neg")):
        set_location(node, "net.onnx", name, node.op_type, 18)
    nodes[0].metadata_props["pkg.torch.onnx.stack_trace"] = TRACE
    nodes[1].metadata_props["where"] = "zoo/net.py:41"
    nodes[1].metadata_props["cuvil.note"] = "zoo/other.py:1"
    assert source_lines(model) == {"exp": ("zoo/net.py:40", "zoo/head.py:7"), "abs": ("zoo/net.py:41",)}
