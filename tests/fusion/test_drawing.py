from __future__ import annotations

import random
from itertools import pairwise

import pytest

from cuvil_build.cuir.text import parse_model
from cuvil_build.fusion.drawing import HEIGHT, WIDTH, Drawing, draw, place
from cuvil_build.ops.infer import infer_model


def random_edges(count: int, seed: int) -> list[tuple[int, int]]:
    order = random.Random(seed)
    chain = [(at - 1, at) for at in range(1, count) if order.random() < 0.8]
    skips = [tuple(sorted(order.sample(range(count), 2))) for _ in range(count // 4)]
    return sorted({*chain, *skips})


def drawn(count: int, edges: list[tuple[int, int]]) -> Drawing:
    return place([((f"n{at}",), "Add") for at in range(count)], edges)


@pytest.mark.parametrize("seed", range(8))
def test_nodes_lie_apart_and_edges_lead_down(seed: int) -> None:
    picture = drawn(120, random_edges(120, seed))
    boxes = sorted((node.y, node.x) for node in picture.nodes)
    for (y, x), (other_y, other_x) in pairwise(boxes):
        assert other_y > y + HEIGHT or (other_y == y and other_x >= x + WIDTH), "boxes overlap"
    for edge in picture.edges:
        first, second = (picture.nodes[at] for at in edge.between)
        assert edge.points[0] == (first.x + WIDTH // 2, first.y + HEIGHT)
        assert edge.points[-1] == (second.x + WIDTH // 2, second.y)
        assert all(y < below for (_, y), (_, below) in pairwise(edge.points))
    assert all(
        n.x > 0 and n.x + WIDTH < picture.width and n.y + HEIGHT < picture.height for n in picture.nodes
    )


def test_edges_pass_beside_nodes() -> None:
    """A connection around a long chain."""
    picture = drawn(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)])
    long = next(edge for edge in picture.edges if edge.between == (0, 5))
    assert len(long.points) == 10
    inner = picture.nodes[1:5]
    for x, y in long.points[1:-1]:
        assert not any(n.x < x < n.x + WIDTH and n.y <= y <= n.y + HEIGHT for n in inner)


def test_a_chain_is_straight() -> None:
    picture = drawn(5, [(0, 1), (1, 2), (2, 3), (3, 4)])
    assert len({node.x for node in picture.nodes}) == 1


def test_the_same_graph_is_drawn_the_same() -> None:
    edges = random_edges(80, 3)
    assert drawn(80, edges) == drawn(80, list(reversed(edges)))


def test_nothing_is_an_empty_page() -> None:
    assert drawn(0, []).nodes == ()


def test_a_graph_is_drawn_without_its_weights() -> None:
    text = """agraph (float[N, 4] x, float[4, 4] w, bool c) => (float[N, 4] y, float[N, 4] z)
        { m = MatMul(x, w)  y = Tanh(m)
          z = If(c) <then_branch = t () => (float[N, 4] a) { a = Exp(m) },
                     else_branch = e () => (float[N, 4] b) { b = Neg(m) }> }"""
    model = parse_model(text)
    infer_model(model)
    model.graph[0].metadata_props["pkg.torch.onnx.stack_trace"] = 'File "zoo/net.py", line 40, in forward'
    picture = draw(model)
    assert [node.lines for node in picture.nodes[:2]] == [("zoo/net.py:40",), ()]
    assert sorted(node.op for node in picture.nodes) == ["Exp", "If", "MatMul", "Neg", "Tanh"]
    ops = [node.op for node in picture.nodes]
    told = sorted((ops[a], ops[b]) for a, b in (edge.between for edge in picture.edges))
    assert told == [("MatMul", "Exp"), ("MatMul", "If"), ("MatMul", "Neg"), ("MatMul", "Tanh")]
