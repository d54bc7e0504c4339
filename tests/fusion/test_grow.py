from cuvil_build.fusion.facts import FUNCTIONS
from cuvil_build.fusion.grow import Region, grow
from cuvil_build.fusion.pattern import Chain, parse_pattern
from tests.fusion.rule_files import node_of, scope_of


def region(text: str, chain: str, anchor: str) -> Region | None:
    scope = scope_of(text)
    pattern = parse_pattern(chain, FUNCTIONS)
    assert isinstance(pattern, Chain)
    found = grow(scope, pattern, node_of(scope, anchor))
    return None if found is None or found.lacks_link else found


def results(found: Region | None) -> list[str]:
    assert found is not None
    return sorted(str(node.outputs[0].name) for node in found.nodes)


MATMUL = "agraph (float[N, 4] x, float[4, 4] w, float[4] b)"


def test_branches_inside_are_taken_as_a_whole() -> None:
    text = f"{MATMUL} => (float[N, 4] y) {{ m = MatMul(x, w)  s = Sigmoid(m)  t = Tanh(m)  y = Mul(s, t) }}"
    found = region(text, "MatMul -> Any(map)*", "m")
    assert results(found) == ["m", "s", "t", "y"]


def test_a_branch_that_leads_outside_ends_the_region_before_the_fork() -> None:
    text = f"""{MATMUL} => (float[N, 4] y, float[N, 4] z)
        {{ m = MatMul(x, w)  a = Add(m, b)  s = Sigmoid(a)  y = MatMul(s, w)  z = Mul(a, s) }}"""
    found = region(text, "MatMul -> Any(map)*", "m")
    assert results(found) == ["a", "m"]
    assert found is not None and [reason for reason, _ in found.refusals] == [
        "value 's' is read by node 'MatMul_3' (MatMul) too"
    ]


def test_a_required_link_must_be_there() -> None:
    text = f"{MATMUL} => (float[N, 4] y) {{ m = MatMul(x, w)  y = Tanh(m) }}"
    assert region(text, "MatMul -> Relu", "m") is None
    assert region(text, "MatMul -> Relu+", "m") is None
    assert results(region(text, "MatMul -> Relu?", "m")) == ["m"]
    assert results(region(text, "MatMul -> Relu? -> Tanh", "m")) == ["m", "y"]


def test_at_most_one_optional_link() -> None:
    text = f"{MATMUL} => (float[N, 4] y) {{ m = MatMul(x, w)  r = Relu(m)  y = Relu(r) }}"
    assert results(region(text, "MatMul -> Relu?", "m")) == ["m", "r"]
    assert results(region(text, "MatMul -> Relu*", "m")) == ["m", "r", "y"]


def test_shape_arithmetic_is_never_part_of_a_region() -> None:
    text = """agraph (float[N, 4] x) => (int64[1] y)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}>
        { s = Shape(x)  n = Slice(s, zero, one)  d = Mul(n, two)  y = Add(d, one) }"""
    assert region(text, "Any(map)* -> Any(map)", "y") is None


def test_a_reshape_that_mixes_dims_is_no_view() -> None:
    text = """agraph (float[2, 3, 4] a, float[4, 4] w) => (float[6, 4] y) <int64[2] s = {4, 6}>
        { m = MatMul(a, w)  r = Reshape(m, s)  y = Transpose <perm = [1, 0]> (r) }"""
    found = region(text, "MatMul -> (Transpose|Reshape)*", "m")
    assert results(found) == ["m"]
    assert (
        found is not None
        and found.refusals[0][0] == "node 'Reshape_1' mixes dims in a way that is not affine"
    )


def test_an_operand_of_a_dtype_without_a_kernel_ends_the_region() -> None:
    text = "agraph (double[N, 4] x, double[4, 4] w) => (double[N, 4] y) { m = MatMul(x, w)  y = Tanh(m) }"
    scope = scope_of(text)
    tanh = node_of(scope, "y")
    operator = scope.operator(tanh)
    assert operator is not None
    expected = "" if "float64" in operator.dtypes else "no kernel for Tanh on float64"
    assert scope.obstacle(tanh) == expected
