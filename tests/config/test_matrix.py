from typing import Any

from cuvil_build.config.matrix import variants
from cuvil_build.config.project import Project

BASE: dict[str, Any] = {
    "version": 1,
    "project": "p",
    "models": {"b": {"source": "b.onnx", "tags": ["edge"]}, "a": {"source": "a.onnx"}},
    "targets": {"x": {"use": "x86_64"}, "w": {"use": ["wasm32-simd128"]}},
}


def test_without_builds_everything_is_built() -> None:
    found = variants(Project.model_validate(BASE))
    assert [v.id for v in found] == ["a/fp32/w", "a/fp32/x", "b/fp32/w", "b/fp32/x"]
    assert [v.target_id for v in found] == ["wasm32-simd128", "x86_64"] * 2


def test_what_a_build_leaves_out_means_all_and_tags_add_up() -> None:
    builds = [{"model": "b", "tags": ["r"]}, {"model": ["b"], "target": "x", "tags": ["q"]}]
    found = variants(Project.model_validate({**BASE, "builds": builds}))
    assert [(v.id, v.tags) for v in found] == [("b/fp32/w", ("edge", "r")), ("b/fp32/x", ("edge", "q", "r"))]


def test_a_shipped_target_needs_no_entry() -> None:
    found = variants(Project.model_validate({**BASE, "builds": [{"model": "a", "target": "x86_64-avx2"}]}))
    assert [(v.target, v.target_id) for v in found] == [("x86_64-avx2", "x86_64-avx2")]
