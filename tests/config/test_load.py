from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from cuvil_build import paths
from cuvil_build.config.load import LoadedProject, load_project
from cuvil_build.config.matrix import variants
from cuvil_build.config.project import json_schema
from cuvil_build.errors import CuvilError, NotYet

BASE = """\
version: 1
project: demo
models:
  m: {source: m.onnx, dims: {batch: 4}}
targets:
  x64: {use: x86_64-avx2}
"""


def load(
    folder: Path,
    more: str = "",
    *,
    base: str = BASE,
    profile: str | None = None,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> LoadedProject:
    (folder / "cuvil.yaml").write_text(base + more, encoding="utf-8")
    return load_project(folder, profile=profile, sets=sets, environ=environ or {})


LAYERS = "cache: {mode: read-write}\nprofiles:\n  ci: {cache: {mode: read-only}}\n"


def test_layers_override_in_order_and_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"CUVIL__CACHE__MODE": "off"}
    plain = load(tmp_path, "profiles:\n  ci: {cache: {mode: read-only}}\n")
    assert (plain.project.cache.mode, plain.origins["cache.mode"]) == ("read-write", "default")
    in_file = load(tmp_path, LAYERS)
    assert (in_file.project.cache.mode, in_file.origins["cache.mode"]) == ("read-write", "cuvil.yaml:7:15")
    in_profile = load(tmp_path, LAYERS, profile="ci")
    assert in_profile.project.cache.mode == "read-only"
    assert in_profile.origins["cache.mode"] == "cuvil.yaml:9:22 (profile ci)"
    in_env = load(tmp_path, LAYERS, profile="ci", environ=env)
    assert (in_env.project.cache.mode, in_env.origins["cache.mode"]) == ("off", "CUVIL__CACHE__MODE")
    by_set = load(tmp_path, LAYERS, profile="ci", environ=env, sets=["cache.mode=read-write"])
    assert by_set.project.cache.mode == "read-write"
    assert by_set.origins["cache.mode"] == "--set cache.mode"


def test_overrides_are_yaml_values_of_any_depth(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "builds:\n  - {model: m}\n",
        sets=[
            "models.m.dims.batch={min: 1, max: 8}",
            "verify.every_pass=false",
            "models.m.dims.image[2]=64",
            "builds.0.tags=[a, b]",
        ],
        environ={"CUVIL__VERIFY__REFERENCE": "onnx", "CUVIL__MODELS__M__TAGS": "[edge]"},
    )
    model = loaded.project.models["m"]
    assert (model.dims["batch"].min, model.dims["batch"].max) == (1, 8)
    assert model.dims["image[2]"].is_fixed
    assert loaded.project.verify.every_pass is False
    assert loaded.project.verify.reference == "onnx"
    assert loaded.project.builds[0].tags == ("a", "b")
    assert model.tags == ("edge",)


def test_a_fixed_dim_is_a_range_of_one_size(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.project.models["m"].dims["batch"].max == 4
    assert loaded.origins["models.m.dims.batch.max"] == str(loaded.loc("models.m.dims.batch"))


def test_places_of_keys_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    loaded = load(tmp_path)
    assert str(loaded.loc("models.m.source")) == "cuvil.yaml:4:15"
    assert str(loaded.loc("models.m.outputs")) == "cuvil.yaml:4:6"
    assert loaded.folder == tmp_path


def test_environment_references_are_replaced_and_recorded(tmp_path: Path) -> None:
    more = 'verify:\n  every_pass: ${env:CHECK}\nfusion: {overrides: "${env:TAG:-none.yaml}"}\n'
    base = BASE.replace("source: m.onnx", 'source: "${env:DIR}/$${x}.onnx"')
    loaded = load(tmp_path, more, base=base, environ={"DIR": "data", "CHECK": "false", "OTHER": "x"})
    assert loaded.project.models["m"].source.path == "data/${x}.onnx"  # type: ignore[union-attr]
    assert loaded.project.verify.every_pass is False
    assert loaded.project.fusion.overrides == "none.yaml"
    assert loaded.reads.env == {"CHECK": "false", "DIR": "data", "TAG": None}
    assert loaded.reads.env_keys["DIR"] == ("models.m.source",)
    assert loaded.reads.files == (tmp_path / "cuvil.yaml",)


def test_a_quoted_reference_stays_text(tmp_path: Path) -> None:
    source = '{pypi: p, version: "${env:V}", member: m.onnx}'
    loaded = load(tmp_path, base=BASE.replace("m.onnx", source), environ={"V": "1.10"})
    assert loaded.project.models["m"].source.version == "1.10"  # type: ignore[union-attr]


def test_overrides_from_the_environment_are_reads_too(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"CUVIL__CACHE__MODE": "off"})
    assert loaded.reads.env == {"CUVIL__CACHE__MODE": "off"}
    assert loaded.reads.env_keys["CUVIL__CACHE__MODE"] == ("cache.mode",)


def test_values_do_not_depend_on_comments_and_key_order(tmp_path: Path) -> None:
    shuffled = """\
# a comment
targets: {x64: {use: [x86_64-avx2]}}
models:
    m:
        dims: {batch: {max: 4, min: 4}}
        source: {path: m.onnx}
project: "demo"
version: 1
"""
    one, two = load(tmp_path).project, load(tmp_path, base=shuffled).project
    assert one == two
    assert variants(one) == variants(two)


def test_all_mistakes_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    base = BASE.replace("avx2", "avx9").replace("dims", "dimz")
    with pytest.raises(CuvilError) as caught:
        load(tmp_path, "cache: {mode: 3}\nprofiles: {ci: {nope: 1}}\n", base=base)
    names = [d.name for d in caught.value.diagnostics()]
    assert names == ["unknown-key", "unknown-target", "invalid-value", "unknown-key"]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "base",
    [
        "",
        "# only a comment\n",
        "- a\n",
        "3\n",
        "version: 1\n",
        "models: 3\nbuilds: 3\ntargets: [x]\nprofiles: 1\n",
    ],
)
def test_files_of_another_shape_are_mistakes_and_no_crash(tmp_path: Path, base: str) -> None:
    with pytest.raises(CuvilError) as caught:
        load(tmp_path, base=base)
    assert caught.value.exit_code == 2


def test_what_a_profile_has_not_yet_waits_until_it_is_selected(tmp_path: Path) -> None:
    more = "profiles: {far: {cache: {remote: 's3://bucket'}}}\n"
    assert load(tmp_path, more).project.cache.remote is None
    with pytest.raises(NotYet):
        load(tmp_path, more, profile="far")


def test_models_that_share_c_names_are_refused(tmp_path: Path) -> None:
    base = BASE.replace("targets:", "  a-b: {source: x}\n  A_b: {source: x}\ntargets:")
    with pytest.raises(CuvilError, match="would share their C names"):
        load(tmp_path, base=base)


def test_a_target_of_the_project_is_found(tmp_path: Path) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets" / "mine.yaml").write_text("name: mine\nextends: x86_64\n")
    loaded = load(tmp_path, base=BASE.replace("x86_64-avx2", "mine"))
    assert [v.target_id for v in variants(loaded.project)] == ["mine"]


def test_the_example_loads_and_has_every_option() -> None:
    file = paths.example_config()
    loaded = load_project(file, profile="ci", sets=(), environ={})
    assert loaded.project.cache.mode == "read-only"
    text = file.read_text(encoding="utf-8")
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    options = {key for section in sections for key in section.get("properties", {})}
    options -= {"at_most", "pipeline_parallel"}  # siblings of at_least and tensor_parallel
    assert [key for key in sorted(options) if f"{key}:" not in text] == []


@pytest.mark.parametrize("marked", ["torch", "saved_model", "hub", "state", "inputs"])
def test_options_marked_not_yet_in_the_example_are_refused(marked: str, tmp_path: Path) -> None:
    values = {
        "torch": "source: {torch: 'a:b'}",
        "saved_model": "source: {saved_model: a}",
        "hub": "source: {hub: a/b, file: m.onnx}",
        "state": "source: m.onnx, state: {a: b}",
        "inputs": "source: m.onnx, inputs: {x: {layout: NHWC}}",
    }
    with pytest.raises(NotYet) as caught:
        load(tmp_path, base=BASE.replace("source: m.onnx", values[marked]))
    assert caught.value.exit_code == 2
    assert marked in caught.value.message
