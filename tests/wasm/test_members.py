"""A module of two libraries: the loader takes relaxed SIMD where the engine computes it rightly."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wasmtime

from cuvil_build.bundle.javascript import Member, render_javascript
from cuvil_build.toolchain.runner import run_module, runners_of
from tests.e2e.chromium import browser, find_chromium
from tests.toolchain.tiny_module import INPUTS, OUTPUTS, build_tiny, expected, rows, target

RELAXED = "wasm32-relaxed-simd"
pytestmark = [
    pytest.mark.wasm,
    pytest.mark.skipif(
        not shutil.which("node") and not os.environ.get("CI"), reason="no node on this machine"
    ),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plain module, the other one beside it, and a loader that knows both."""
    plain = build_tiny(target("wasm32-simd128"), tmp_path_factory.mktemp("plain"))
    other = build_tiny(target(RELAXED), tmp_path_factory.mktemp("relaxed"))
    name = f"module.{RELAXED}.wasm"
    shutil.copyfile(other / "module.wasm", plain / name)
    member = Member(RELAXED, name, ("relaxed_simd", "simd128"))
    files = render_javascript(
        model="tiny", inputs=INPUTS, outputs=OUTPUTS, version="0", members=(member,), target="wasm32-simd128"
    )
    (plain / "tiny.js").write_text(files.module)
    (plain / "tiny.d.ts").write_text(files.declarations)
    manifest = json.loads((plain / "manifest.json").read_text())
    (plain / "manifest.json").write_text(json.dumps({**manifest, "libraries": {RELAXED: name}}))
    return plain


def node(folder: Path, script: str, *flags: str) -> str:
    text = f"import {{ load }} from '{(folder / 'tiny.js').as_uri()}';\n{script}"
    command = ["node", *flags, "--input-type=module", "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def probe(folder: Path) -> bytes:
    """The bytes that the loader tries out."""
    text = re.search(r"relaxed_simd: \[((?:\s*'[0-9a-f]+'(?: \+)?)+)", (folder / "tiny.js").read_text())
    assert text is not None
    return bytes.fromhex("".join(re.findall(r"'([0-9a-f]+)'", text[1])))


def test_probe_asks_what_only_right_engines_answer(folder: Path) -> None:
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    exports: Any = wasmtime.Instance(store, wasmtime.Module(engine, probe(folder)), []).exports(store)
    cases = {"m": (2.0, 3.0, 4.0), "n": (2.0, 3.0, 4.0), "d": (2, 3, 1)}
    answers = [exports[name](store, *values) for name, values in cases.items()]
    assert answers == [10.0, -2.0, 25]
    asked = (folder / "tiny.js").read_text()
    assert "m(2, 3, 4) === 10 && n(2, 3, 4) === -2 && d(2, 3, 1) === 25" in asked


@pytest.mark.parametrize("flag", [[], ["--experimental-wasm-relaxed-simd"]])
def test_node_takes_the_plain_library(folder: Path, flag: list[str]) -> None:
    """Without the flag it refuses the other one; with it, version 20 computes it wrongly."""
    major = int(
        subprocess.run(["node", "--version"], capture_output=True, text=True).stdout[1:].split(".")[0]
    )
    if major > 20:
        pytest.skip("no Node on this machine that is as old as this CPU of 20")
    known = subprocess.run(["node", *flag, "-e", ""], capture_output=True).returncode == 0
    assert known
    assert node(folder, "console.log((await load()).target)", *flag) == "wasm32-simd128"


def test_a_library_can_be_named(folder: Path) -> None:
    script = """
    const wrong = await load({ target: 'wasm64' }).catch((error) => error.message);
    const plain = await load({ target: 'wasm32-simd128' });
    console.log([wrong, plain.target].join('|'));
    """
    names = f"wasm32-simd128, {RELAXED}"
    assert node(folder, script) == f"tiny: unknown target 'wasm64'; there are {names}|wasm32-simd128"


def test_wasmtime_runs_both(folder: Path) -> None:
    feeds = [rows(3), rows(1)]
    for member in ("", RELAXED):
        results = run_module(folder, target("wasm32-simd128"), feeds, cpu=member)
        for feed, outputs in zip(feeds, results, strict=True):
            np.testing.assert_array_equal(outputs["y"], expected(feed["x"])["y"])


def test_node_is_no_runner_of_relaxed_simd() -> None:
    assert runners_of(target(RELAXED)) == ("wasmtime",)


@pytest.mark.skipif(
    find_chromium() is None and not os.environ.get("CI"), reason="no Chromium on this machine"
)
def test_chromium_takes_the_relaxed_library(folder: Path, tmp_path: Path) -> None:
    code, weights = (
        list((folder / n).read_bytes()) for n in (f"module.{RELAXED}.wasm", "weights.safetensors")
    )
    text = (folder / "tiny.js").read_text()
    script = f"""(async () => {{
      const at = URL.createObjectURL(new Blob([{json.dumps(text)}], {{ type: 'text/javascript' }}));
      const asked = [];
      const files = {{ '{RELAXED}': {code}, 'weights': {weights} }};
      globalThis.fetch = async (url) => {{
        asked.push(String(url).split('/').pop());
        const name = String(url).includes('{RELAXED}') ? '{RELAXED}' : 'weights';
        return new Response(new Uint8Array(files[name]));
      }};
      const real = globalThis.URL;
      globalThis.URL = class extends real {{
        constructor(path, base) {{ super(path, String(base).startsWith('blob:') ? 'https://here/' : base); }}
      }};
      const {{ load }} = await import(at);
      const module = await load();
      const x = {{ data: new Float32Array([0, 1, 2, 3]), shape: [1, 4] }};
      return JSON.stringify([module.target, asked.sort(), Array.from(module.run({{ x }}).y.data)]);
    }})()"""
    with browser(tmp_path / "profile") as page:
        page.go("about:blank")
        found = json.loads(page.run(script))
    wanted = list(expected(rows(1)["x"])["y"].reshape(-1))
    assert found == [RELAXED, [f"module.{RELAXED}.wasm", "weights.safetensors"], wanted]
