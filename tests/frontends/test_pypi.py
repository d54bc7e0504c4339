"""Members out of wheels: a local folder of wheels stands in for the package index."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from cuvil_build.errors import CuvilError
from cuvil_build.frontends import pypi
from cuvil_build.frontends.pypi import DigestMismatch, FetchFailed, fetch_member

CONTENT = b"not really a model" * 100
DIGEST = hashlib.sha256(CONTENT).hexdigest()
MEMBER = "tiny_models/data/net.onnx"


def write_wheel(folder: Path, tag: str = "py3-none-any", version: str = "1.2.0") -> Path:
    path = folder / f"tiny_models-{version}-{tag}.whl"
    info = f"tiny_models-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(MEMBER, CONTENT)
        wheel.writestr("tiny_models/__init__.py", "")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: tiny-models\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_member_is_taken_out_and_nothing_else_is_left(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    path = fetch_member("tiny-models", "1.2.0", MEMBER, DIGEST, tmp_path / "out")
    assert path == tmp_path / "out" / "net.onnx" and path.read_bytes() == CONTENT
    assert [p.name for p in path.parent.iterdir()] == ["net.onnx"]


def test_wheel_of_another_platform_is_only_an_archive(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from a machine that the wheel is not for: the plain download finds nothing."""
    write_wheel(index, "cp311-cp311-manylinux_2_28_x86_64")
    pip = pypi._pip

    def foreign(package: str, version: str, folder: Path, platform: Sequence[str]) -> tuple[int, str]:
        return pip(package, version, folder, platform) if platform else (1, "ERROR: (from versions: none)")

    monkeypatch.setattr(pypi, "_pip", foreign)
    assert fetch_member("tiny-models", "1.2.0", MEMBER, DIGEST, tmp_path).read_bytes() == CONTENT


def test_file_with_the_pinned_digest_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pypi, "_download", lambda *_: pytest.fail("nothing is to be downloaded"))
    (tmp_path / "net.onnx").write_bytes(CONTENT)
    assert fetch_member("tiny-models", "1.2.0", MEMBER, DIGEST, tmp_path).read_bytes() == CONTENT


def test_other_content_is_refused_and_not_kept(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    with pytest.raises(DigestMismatch, match=f"has sha256 {DIGEST}, pinned is 0000"):
        fetch_member("tiny-models", "1.2.0", MEMBER, "0" * 64, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_unknown_member_names_the_nearest(index: Path, tmp_path: Path) -> None:
    write_wheel(index)
    with pytest.raises(FetchFailed) as caught:
        fetch_member("tiny-models", "1.2.0", "tiny_models/net.onnx", None, tmp_path)
    assert "has no member 'tiny_models/net.onnx'" in str(caught.value)
    assert f"hint: nearest: {MEMBER}" in str(caught.value)


def test_unknown_version_names_the_nearest(index: Path, tmp_path: Path) -> None:
    write_wheel(index, version="1.2.0")
    write_wheel(index, version="1.3.0")
    with pytest.raises(FetchFailed) as caught:
        fetch_member("tiny-models", "1.2.5", MEMBER, None, tmp_path)
    assert "tiny-models has no version 1.2.5" in str(caught.value)
    assert "nearest: 1.2.0" in str(caught.value)


def test_unknown_package_is_told(index: Path, tmp_path: Path) -> None:
    with pytest.raises(FetchFailed, match=r"has no wheel of tiny-models 1\.2\.0"):
        fetch_member("tiny-models", "1.2.0", MEMBER, None, tmp_path)


def test_no_network_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "WARNING: Retrying after connection broken by 'NewConnectionError'\nERROR: (from versions: none)"
    monkeypatch.setattr(pypi, "_pip", lambda *_: (1, said))
    with pytest.raises(FetchFailed, match="the package index can't be reached"):
        fetch_member("tiny-models", "1.2.0", MEMBER, None, tmp_path)


def test_damaged_wheel_is_told(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = write_wheel(index)
    content = bytearray(wheel.read_bytes())
    content[60:70] = b"x" * 10
    wheel.write_bytes(bytes(content))
    monkeypatch.setattr(pypi, "_download", lambda *_: wheel)
    with pytest.raises(FetchFailed, match="is damaged"):
        fetch_member("tiny-models", "1.2.0", MEMBER, None, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_member_beyond_the_limit_is_refused(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = write_wheel(index)
    monkeypatch.setattr(pypi, "_download", lambda *_: wheel)
    monkeypatch.setattr(pypi, "MAX_MEMBER_BYTES", 100)
    with pytest.raises(FetchFailed, match="more than the limit of 100"):
        fetch_member("tiny-models", "1.2.0", MEMBER, None, tmp_path)


@pytest.mark.parametrize(
    ("package", "version", "member"),
    [
        ("--index-url=x", "1.0", "a"),
        ("https://host/x.whl", "1.0", "a"),
        ("../local", "1.0", "a"),
        ("x", "1.0 --pre", "a"),
        ("x", ">=1", "a"),
        ("x", "1.0", "../../etc/passwd"),
        ("x", "1.0", "/etc/passwd"),
        ("x", "1.0", "a\\..\\b"),
        ("x", "1.0", ""),
    ],
)
def test_names_that_could_be_something_else_never_reach_pip(
    package: str, version: str, member: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pypi, "_pip", lambda *_: pytest.fail("pip was called"))
    with pytest.raises(CuvilError):
        fetch_member(package, version, member, None, tmp_path)


@pytest.mark.models
def test_a_published_model_is_fetched(tmp_path: Path) -> None:
    digest = "1a153a22f4509e292a94e67d6f9b85e8deb25b4988682b7e174c65279d8788e3"
    path = fetch_member("silero-vad", "6.2.3", "silero_vad/data/silero_vad.onnx", digest, tmp_path)
    assert path.stat().st_size == 2327524
