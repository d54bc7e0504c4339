import onnx_ir as ir
import pytest

from cuvil_build import paths
from cuvil_build.cuir.dims import read_dims
from cuvil_build.fusion.gain import BALANCES, FUNCTION, PASSES, REFERENCE, Balance, Cost, Costs
from cuvil_build.target.load import load_target, target_names
from tests.fusion.rule_files import scope_of


def costs(text: str) -> tuple[Costs, list[ir.Node], ir.Value]:
    scope = scope_of(text)
    graph = scope.model.graph
    return Costs.of(scope, read_dims(scope.model)), list(graph), graph.outputs[0]


def test_a_gain_is_time_of_the_reference_machine() -> None:
    machine = Balance(10.0, 100.0, 1.0)
    assert machine.seconds(Cost(20, 50, 3)) == 2 + 0.5 + 3
    assert Cost(64, 128, 1).nanoseconds == round(REFERENCE.seconds(Cost(64, 128, 1)) * 1e9) == 2003
    assert Cost(5, 5, 5) - Cost(1, 2, 3) == Cost(4, 3, 2)


def test_a_region_saves_what_its_inner_values_move() -> None:
    found, nodes, result = costs(
        "agraph (float[8, 16] x) => (float[8, 16] y) { a = Abs(x)  b = Neg(a)  y = Add(b, x) }"
    )
    size = 8 * 16 * 4
    assert found.apart(nodes) == Cost(2 * size + 2 * size + 3 * size, 3 * 8 * 16, 3)
    assert found.region(nodes, result) == Cost(2 * size, 3 * 8 * 16, 1)


def test_a_reshape_costs_nothing_and_a_transpose_does() -> None:
    found, (reshape, transpose), _ = costs(
        "agraph (float[8, 16] x) => (float[4, 32] y) <int64[2] s = {32, 4}> "
        "{ a = Reshape(x, s)  y = Transpose(a) }"
    )
    assert found.apart([reshape]) == Cost()
    assert found.apart([transpose]) == Cost(2 * 8 * 16 * 4, 0, 1)


def test_products_and_windows_count_their_multiplications() -> None:
    found, nodes, _ = costs("agraph (float[6, 8] x, float[8, 10] w) => (float[6, 10] y) { y = MatMul(x, w) }")
    assert found.apart(nodes).flops == 2 * 6 * 8 * 10
    found, nodes, _ = costs(
        "agraph (float[1, 4, 5, 5] x, float[6, 4, 3, 3] w) => (float[1, 6, 3, 3] y) { y = Conv(x, w) }"
    )
    assert found.apart(nodes).flops == 2 * (6 * 3 * 3) * (4 * 3 * 3)


def test_what_a_product_reads_is_stored_unless_a_group_keeps_it() -> None:
    found, nodes, result = costs(
        "agraph (float[6, 8] x, float[8, 10] w) => (float[6, 10] y) { a = Abs(x)  y = MatMul(a, w) }"
    )
    assert found.region(nodes, result).launches == 2
    assert found.region(nodes, result).bytes == found.apart(nodes).bytes
    (inner,) = found.wanted_in_memory(nodes)
    assert found.region(nodes, result, {inner}).launches == 1
    assert found.region(nodes, result, {inner}).bytes < found.apart(nodes).bytes


def test_what_a_normalization_reads_is_computed_for_each_of_its_passes() -> None:
    found, nodes, result = costs(
        "agraph (float[64, 512] x) => (float[64, 512] y) { e = Exp(x)  y = Softmax(e) }"
    )
    count = 64 * 512
    again = found.region(nodes, result).flops - found.apart(nodes).flops
    assert again == (PASSES - 1) * FUNCTION * count
    saved = found.apart(nodes) - found.region(nodes, result)
    assert saved.bytes > 0 and saved.flops < 0 and saved.nanoseconds < 0


def test_a_gain_that_is_a_loss_on_other_cpus_is_not_sure() -> None:
    assert Cost(100, 0, 1).is_sure and Cost(-100, -5, 0).is_sure
    assert not Cost(1000, -1500, 0).is_sure


@pytest.mark.parametrize("name", target_names(paths.search_path("targets")))
def test_balances_span_the_targets(name: str) -> None:
    """Operations per cycle, against those of the reference: one 8-float multiply-add at 2 GHz sustained."""
    target = load_target(name, paths.search_path("targets"))
    per_cycle = target.lanes(4) * (2 if target.fma.fused else 1)
    ends = [b.flops_per_second / REFERENCE.flops_per_second for b in BALANCES]
    assert min(ends) <= per_cycle / 16 <= max(ends)
