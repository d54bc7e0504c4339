import time
from pathlib import Path

import pytest

from cuvil_build import yaml_source
from cuvil_build.errors import CuvilError, YamlSyntax, YamlTooLarge


def test_every_key_and_value_has_its_place() -> None:
    source = yaml_source.parse("a:\n  - {b: 1, c: x}\n", "f.yaml")
    assert source.data == {"a": [{"b": 1, "c": "x"}]}
    assert str(source.loc(("a", 0, "c"))) == "f.yaml:2:15"
    assert str(source.loc(("a", 0, "c"), key=True)) == "f.yaml:2:12"
    assert str(source.loc(("a", 0, "missing", "deeper"))) == "f.yaml:2:5"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("off", "off"),
        ("true", True),
        ("False", False),
        ("~", None),
        ("12", 12),
        ("-3", -3),
        ("0x1f", 31),
        ("010", "010"),
        ("1_000", "1_000"),
        ("1:30", "1:30"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("1.4.4", "1.4.4"),
        ("2024-01-01", "2024-01-01"),
        ("'12'", "12"),
        ("!!str 12", "12"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_scalars_are_read_as_yaml_1_2_does(text: str, value: object) -> None:
    data = yaml_source.parse(f"k: {text}", "f").data["k"]
    assert data == value
    assert type(data) is type(value)


def test_merge_keys_and_anchors_work_and_keep_places() -> None:
    source = yaml_source.parse("base: &b {x: 1, y: 2}\nm:\n  <<: *b\n  y: 3\nn: {<<: [{z: 5}, *b]}\n", "f")
    assert source.data["m"] == {"x": 1, "y": 3}
    assert source.data["n"] == {"z": 5, "x": 1, "y": 2}
    assert str(source.loc(("m", "x"))) == "f:1:14"
    assert str(source.loc(("m", "y"))) == "f:4:6"


def test_all_duplicate_keys_are_reported() -> None:
    with pytest.raises(CuvilError) as caught:
        yaml_source.parse("a: 1\na: 2\nb: {c: 1, c: 2}\n", "f")
    assert [str(d.loc) for d in caught.value.diagnostics()] == ["f:2:1", "f:3:11"]


@pytest.mark.parametrize(
    "text",
    [
        "a: [1",
        "a: *nothing",
        "a: &a [*a]",
        "a: 1\n---\nb: 2",
        "? [1]\n: 2",
        "a: !!python/name:os.system x",
        "a: !custom {}",
        "a: \x01",
        "<<: 3",
        "[" * 5000,
    ],
)
def test_what_is_not_the_yaml_we_read_is_refused_with_a_place(text: str) -> None:
    with pytest.raises(YamlSyntax) as caught:
        yaml_source.parse(text, "f")
    assert caught.value.loc.line


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100 + "]" * 100,
        "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{<<: *a{i - 1}}}\n" for i in range(1, 500)),
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 12)),
        "a0: &a0 {k: 1}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 40)),
    ],
    ids=["depth", "merge chain", "billion laughs", "doubling"],
)
def test_hostile_files_end_soon(text: str) -> None:
    began = time.process_time()
    with pytest.raises(YamlTooLarge):
        yaml_source.parse(text, "f")
    assert time.process_time() - began < 30  # not a speed test: without the limits this never ends


def test_a_file_that_is_not_utf8_says_so(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"a: 1\nb: \xff\n")
    with pytest.raises(YamlSyntax, match="not UTF-8") as caught:
        yaml_source.load(file, "x.yaml")
    assert caught.value.loc.line == 2


def test_a_byte_order_mark_and_an_empty_file_are_fine(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert yaml_source.load(file).data == {"a": 1}
    assert yaml_source.parse("# nothing\n", "f").data is None
