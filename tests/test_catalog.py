import sys
from pathlib import Path

import pytest

from cuvil_build import catalog
from cuvil_build.errors import NameClash

RECORD = "from types import SimpleNamespace as Record\n"


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    folder = tmp_path / f"catalog_case_{abs(hash(request.node.name))}"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return folder


def test_records_and_tuples_of_records_are_found_in_sorted_order(package: Path) -> None:
    (package / "zeta.py").write_text(RECORD + "OP = Record(name='alpha')\n")
    (package / "beta.py").write_text(RECORD + "OPS = (Record(name='two'), Record(name='one'))\n")
    (package / "record.py").write_text(RECORD)
    found = catalog.discover(package.name, ("OP", "OPS"))
    assert list(found) == ["alpha", "one", "two"]
    assert found["one"].name == "one"
    assert catalog.module_names(package.name) == ["beta", "record", "zeta"]


def test_a_clash_names_both_files(package: Path) -> None:
    (package / "first.py").write_text(RECORD + "OP = Record(name='same')\n")
    (package / "second.py").write_text(RECORD + "OP = Record(name='same')\n")
    with pytest.raises(NameClash, match=r"'same' is defined in \S*\.first and in \S*\.second"):
        catalog.discover(package.name, "OP")
