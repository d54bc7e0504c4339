"""The C that is shipped: no warning, no undefined behaviour, and no name that it needs from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pytest

from cuvil_build.codegen.c_names import c_identifier
from cuvil_build.paths import shipped
from cuvil_build.target.load import load_target
from cuvil_build.toolchain.command import compile_flags
from cuvil_build.toolchain.find import Toolchain, closed_environment, find_toolchain
from tests.e2e.workshop import LARGEST_ERROR, Built, Subject, Workshop, network
from tests.networks.networks import SMALL

TINY = ("mlp", "residual", "depthwise", "layernorm_gelu", "if_scalar", "lstm", "attention")
NATIVE = "x86_64-avx2"

IN_CI = {"residual", "if_scalar", "lstm"}
"""Every kind of instruction and most kinds of kernels; gcc takes a minute for each of the rest."""

STRICT = ("-std=c11", "-Wall", "-Wextra", "-Werror")
ALWAYS = {"memcpy", "memmove", "memset", "memcmp"}
FROM_THE_SYSTEM = {"pthread_create", "pthread_join", "mmap", "munmap", "open", "close", "fstat", "syscall"}

Subjects = Callable[[str], Subject]


def on_demand(names: Iterable[str], quick: Iterable[str]) -> list[Any]:
    """All names; what is not quick runs with `-m slow`."""
    return [pytest.param(n, id=n, marks=[] if n in set(quick) else [pytest.mark.slow]) for n in names]


needs_gcc = pytest.mark.skipif(not shutil.which("gcc"), reason="gcc is not installed")


@pytest.fixture(scope="session")
def subjects(tiny: Subjects) -> Subjects:
    names = {item.name for item in SMALL}
    return lambda name: network(name) if name in names else tiny(name)


@dataclass(frozen=True, slots=True)
class Unit:
    """One row of units.json."""

    name: str
    path: str
    flags: tuple[str, ...]
    folders: tuple[Path, ...]


def units(sources: Path) -> list[Unit]:
    found = []
    for row in json.loads((sources / "units.json").read_text()):
        headers = sorted({(sources / h).parent for h in row["headers"]})
        found.append(Unit(row["name"], row["path"], tuple(row["flags"]), tuple(headers)))
    return found


def compile_all(
    command: Iterable[str], wanted: Iterable[Unit], sources: Path, environment: Any = None
) -> None:
    """Each unit to an object beside its source; what a compiler says fails the test."""
    command = list(command)
    # sanitizers put guards around everything on the stack
    frames = ["-Wno-frame-larger-than"] if any("-fsanitize=" in word for word in command) else []
    commands = [
        [
            *(*command, *unit.flags, *frames, *(f"-I{f}" for f in unit.folders)),
            *("-c", unit.path, "-o", f"{unit.name}.o"),
        ]
        for unit in wanted
    ]

    def said(options: list[str]) -> str:
        done = subprocess.run(
            options, cwd=sources, capture_output=True, text=True, env=environment, check=False
        )
        return f"{options[-3]}: {done.stderr[:2000]}" if done.returncode or done.stderr else ""

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [text for text in pool.map(said, commands) if text]
    assert not problems, "\n".join(problems)


@needs_gcc
@pytest.mark.parametrize("name", on_demand([*TINY, *(item.name for item in SMALL)], IN_CI))
def test_gcc_has_nothing_to_say(workshop: Workshop, subjects: Subjects, tmp_path: Path, name: str) -> None:
    """At the level that its warnings need to see through the code. The shipped objects are zig's, made with
    the same warnings as errors."""
    sources = workshop.build(subjects(name), NATIVE).sources(tmp_path)
    march = f"-march={load_target(NATIVE, [shipped('targets')]).gcc_march}"
    command = ["gcc", *STRICT, "-Wno-psabi", "-O2", march, "-ffreestanding", "-fPIC"]
    compile_all(command, units(sources), sources)


def test_shipped_objects_are_made_with_warnings_as_errors() -> None:
    for target in ("x86_64", NATIVE, "x86_64-avx512", "aarch64-neon", "wasm32-simd128"):
        flags = compile_flags(find_toolchain(), load_target(target, [shipped("targets")]))
        assert set(STRICT) <= set(flags)
        assert not [flag for flag in flags if flag.startswith("-Wno-")]


def test_the_compilers_warnings_reach_this_test(tmp_path: Path) -> None:
    (tmp_path / "bad.c").write_text("int f(int a) { int b; return 0; }\n")
    bad = [Unit("bad", "bad.c", (), ())]
    zig: Toolchain = find_toolchain()
    commands: list[tuple[tuple[str, ...], Mapping[str, str] | None]] = [
        (zig.command, closed_environment(zig)),
        *([(("gcc",), None)] if shutil.which("gcc") else []),
    ]
    for command, environment in commands:
        with pytest.raises(AssertionError, match="unused"):
            compile_all([*command, *STRICT], bad, tmp_path, environment)


# ---- sanitizers -------------------------------------------------------------------------------------------


def dl_code(dtype: np.dtype[Any]) -> int:
    return {"i": 0, "u": 1, "f": 2, "b": 6}[dtype.kind]


def row(folder: Path, file: str, array: np.ndarray) -> dict[str, Any]:
    """Of a tensor in the driver; its bytes go into a file."""
    (folder / file).write_bytes(array.tobytes())
    return {
        "file": file,
        "shape": ", ".join(map(str, array.shape)) or "0",
        "rank": array.ndim,
        "nbytes": array.nbytes,
        "count": array.size,
        "code": dl_code(array.dtype),
        "bits": array.dtype.itemsize * 8,
    }


def write_driver(built: Built, folder: Path) -> None:
    """main.c, the tensors that it reads, and the weights."""
    cases = []
    manifest = built.manifest
    for number, feeds in enumerate(built.subject.cases):
        wanted = built.wanted(feeds)
        inputs = [feeds[t["name"]] for t in manifest["inputs"]]
        outputs = [wanted[t["name"]] for t in manifest["outputs"]]
        assert all(a.dtype == np.float32 for a in outputs), "the driver compares floats"
        cases.append(
            {
                "inputs": [row(folder, f"case{number}_in{i}", a) for i, a in enumerate(inputs)],
                "outputs": [row(folder, f"case{number}_out{i}", a) for i, a in enumerate(outputs)],
            }
        )
    model = c_identifier(built.subject.name)
    template = (Path(__file__).parent / "driver.c.jinja").read_text()
    environment = jinja2.Environment(trim_blocks=True, keep_trailing_newline=True)
    text = environment.from_string(template).render(
        model=model, upper=model.upper(), cases=cases, limit=LARGEST_ERROR
    )
    (folder / "main.c").write_text(text)
    shutil.copyfile(built.folder / "weights.safetensors", folder / "weights.safetensors")


@needs_gcc
@pytest.mark.parametrize("name", on_demand([*TINY, "resnet_small", "bert_small"], IN_CI))
def test_sanitizers_find_nothing(workshop: Workshop, subjects: Subjects, tmp_path: Path, name: str) -> None:
    built = workshop.build(subjects(name), NATIVE)
    sources = built.sources(tmp_path)
    write_driver(built, sources)
    own = [unit for unit in units(sources) if not unit.name.startswith("checks_")]
    assert {"module", "rt_run"} < {unit.name for unit in own}
    march = f"-march={load_target(NATIVE, [shipped('targets')]).gcc_march}"
    command = ["gcc", *STRICT, "-Wno-psabi", march, "-O1", "-g", "-fsanitize=address,undefined"]
    command += ["-fno-sanitize-recover=all"]
    used = [unit for unit in own if not unit.path.startswith("kernels/") or is_called(sources, unit.name)]
    compile_all(command, used, sources)
    objects = [f"{unit.name}.o" for unit in used]
    link = [*command, "-I.", "main.c", *objects, "-o", "main", "-lm", "-lpthread"]
    done = subprocess.run(link, cwd=sources, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["./main"], cwd=sources, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr[:4000]


def is_called(sources: Path, symbol: str) -> bool:
    """By the module itself; others are of the checks."""
    return symbol in json.loads((sources / "module.json").read_text())["kernels"]


# ---- what a module needs from its surroundings ------------------------------------------------------------


def undefined(library: Path) -> dict[str, str]:
    """Dynamic symbols that others must define, with their binding."""
    command = ["readelf", "-W", "--dyn-syms", str(library)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    fields = [line.split() for line in text.splitlines()]
    return {f[7]: f[4] for f in fields if len(f) >= 8 and f[6] == "UND"}


@pytest.mark.skipif(not shutil.which("readelf"), reason="readelf (binutils) lists the symbols")
@pytest.mark.parametrize("target", ["x86_64", NATIVE, "x86_64-avx512", "aarch64-neon"])
@pytest.mark.parametrize("name", ["resnet_small", "bert_small"])
def test_imports_are_the_promised_ones(workshop: Workshop, name: str, target: str) -> None:
    found = undefined(workshop.build(network(name), target).folder / "module.so")
    assert set(found) <= ALWAYS | FROM_THE_SYSTEM
    assert {symbol for symbol, binding in found.items() if binding != "WEAK"} <= ALWAYS


@pytest.mark.wasm
@pytest.mark.parametrize("name", ["resnet_small", "bert_small"])
def test_a_webassembly_module_imports_nothing(workshop: Workshop, name: str) -> None:
    import wasmtime

    path = workshop.build(network(name), "wasm32-simd128").folder / "module.wasm"
    module = wasmtime.Module.from_file(wasmtime.Engine(), str(path))
    assert [entry.name for entry in module.imports] == []


def test_weights_are_no_c_text(workshop: Workshop) -> None:
    """They are in a file that is mapped; what is compiled stays small whatever the model weighs."""
    built = workshop.build(network("resnet_small"), NATIVE)
    sizes = {path: blob.stat().st_size for path, blob in built.output("codegen", "sources").items()}
    assert built.manifest["weights_bytes"] > 500_000
    assert max(sizes.values()) < 150_000, sizes
