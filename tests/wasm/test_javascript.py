"""The JavaScript module in Node: where it loads from, what it says, what its results are worth."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.toolchain.tiny_module import build_tiny, target

pytestmark = [
    pytest.mark.wasm,
    pytest.mark.skipif(
        not shutil.which("node") and not os.environ.get("CI"), reason="no node on this machine"
    ),
]
PRELUDE = """
const rows = (count) => ({ data: Float32Array.from({ length: count * 4 }, (_, i) => i), shape: [count, 4] });
const said = async (work) => {
  try { await work(); return 'nothing'; } catch (error) { return error.message; }
};
const show = (value) => console.log(JSON.stringify(value, (_, v) =>
  typeof v === 'bigint' ? `${v}n` : ArrayBuffer.isView(v) ? [v.constructor.name, ...v] : v));
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny(target("wasm32-simd128"), tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def page_server(tmp_path: Path) -> Iterator[str]:
    """Answers everything with an HTML page and status 200, but /missing with 404."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path.startswith("/missing") else 200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Not found</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def node(folder: Path, cwd: Path, script: str) -> Any:
    text = f"import {{ load }} from '{(folder / 'tiny.js').as_uri()}';\n{PRELUDE}{script}"
    command = ["node", "--input-type=module", "-e", text]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_loads_from_another_folder_than_its_own(folder: Path, tmp_path: Path) -> None:
    got = node(folder, tmp_path, "const m = await load(); show(m.run({ x: rows(2) }))")
    assert got == {
        "y": {
            "data": ["Float32Array", 1, 4, 9, 16, 9, 16, 25, 36],
            "shape": [2, 4],
            "dtype": "float32",
        },
        "total": {"data": ["BigInt64Array", "116n"], "shape": [], "dtype": "int64"},
    }


def test_takes_bytes_and_paths(folder: Path, tmp_path: Path) -> None:
    script = f"""
    import {{ readFileSync }} from 'node:fs';
    const wasm = readFileSync({json.dumps(str(folder / "module.wasm"))});
    const module = await load({{ wasm, weights: {json.dumps(str(folder / "weights.safetensors"))} }});
    show(module.run({{ x: rows(1) }}).total.data);
    """
    assert node(folder, tmp_path, script) == ["BigInt64Array", "30n"]


def test_results_outlive_later_runs_and_growing_memory(folder: Path, tmp_path: Path) -> None:
    script = """
    const module = await load();
    const first = module.run({ x: rows(1) });
    for (let i = 0; i < 20; i++) module.run({ x: rows(1000) });
    const again = module.run({ x: rows(1) });
    const other = await load();
    show([first.y.data, again.y.data, other.run({ x: rows(1) }).y.data]);
    """
    assert node(folder, tmp_path, script) == [["Float32Array", 1, 4, 9, 16]] * 3


def test_values_before_an_offset_of_a_view_are_not_taken(folder: Path, tmp_path: Path) -> None:
    script = """
    const data = new Float32Array([9, 9, 0, 1, 2, 3]).subarray(2);
    show((await load()).run({ x: { data, shape: [1, 4] } }).y.data);
    """
    assert node(folder, tmp_path, script) == ["Float32Array", 1, 4, 9, 16]


def test_page_in_place_of_a_file_is_recognised(folder: Path, tmp_path: Path, page_server: str) -> None:
    script = f"""
    const at = '{page_server}';
    show([
      await said(() => load({{ wasm: `${{at}}/module.wasm` }})),
      await said(() => load({{ weights: `${{at}}/weights` }})),
      await said(() => load({{ wasm: `${{at}}/missing.wasm` }})),
      await said(() => load({{ wasm: new Uint8Array([1, 2, 3]) }})),
    ]);
    """
    page, weights, missing, other = node(folder, tmp_path, script)
    assert page.startswith(
        f"tiny: {page_server}/module.wasm: expected a WebAssembly module, got an HTML page"
    )
    assert page.endswith("serve the file beside tiny.js or pass its URL")
    assert weights.startswith(f"tiny: {page_server}/weights: expected a weights file, got an HTML page")
    assert missing == f"tiny: {page_server}/missing.wasm: the server answered 404 Not Found"
    assert other.startswith("tiny: the bytes given: expected a WebAssembly module, got 3 other bytes")


@pytest.mark.parametrize("stream", ["bytes", "other"])
@pytest.mark.parametrize("told", ["their length", "nothing", "less than comes"])
def test_weights_arrive_in_parts(folder: Path, tmp_path: Path, told: str, stream: str) -> None:
    """As servers send them: of a known length, in chunks, compressed; not every engine fills buffers."""
    script = f"""
    import {{ readFileSync }} from 'node:fs';
    const weights = readFileSync({json.dumps(str(folder / "weights.safetensors"))});
    const [type, length] = [{{ bytes: 'bytes', other: undefined }}.{stream}, {json.dumps(told)}];
    globalThis.fetch = async () => {{
      const sizes = [100, 1, weights.length - 101];
      let at = 0;
      const body = new ReadableStream({{
        type,
        pull(controller) {{
          const size = sizes.shift();
          controller.enqueue(new Uint8Array(weights.subarray(at, at += size)));
          if (at === weights.length) controller.close();
        }},
      }});
      const told = {{ 'their length': weights.length, 'less than comes': 64 }}[length];
      return new Response(body, {{ headers: told ? {{ 'content-length': told }} : {{}} }});
    }};
    show((await load({{ weights: 'https://here/weights' }})).run({{ x: rows(2) }}).y.data);
    """
    assert node(folder, tmp_path, script) == ["Float32Array", 1, 4, 9, 16, 9, 16, 25, 36]


def test_wrong_inputs_are_named(folder: Path, tmp_path: Path) -> None:
    script = """
    const module = await load();
    const run = (inputs) => said(() => module.run(inputs));
    show([
      await run({}),
      await run({ x: rows(1), z: rows(1) }),
      await run({ x: { data: new Float64Array(4), shape: [1, 4] } }),
      await run({ x: { data: [1, 2, 3, 4], shape: [1, 4] } }),
      await run({ x: { data: new Float32Array(4), shape: [2, 4] } }),
      await run({ x: { data: new Float32Array(4) } }),
      await run({ x: { data: new Float32Array(4), shape: [4] } }),
      await said(() => load({ threads: 2 })),
      (module.close(), await run({ x: rows(1) })),
    ]);
    """
    assert node(folder, tmp_path, script) == [
        "tiny: missing input 'x'; the inputs are x",
        "tiny: unknown input 'z'; the inputs are x",
        "tiny: input 'x' (float32): expected a Float32Array, got Float64Array",
        "tiny: input 'x' (float32): expected a Float32Array, got Array",
        "tiny: input 'x': shape [2,4] does not hold 4 values",
        "tiny: input 'x': shape must be an array of numbers",
        "tiny: input 'x': shape is not [rows <= 1000, 4]",
        "tiny: threads: 2 is not there yet in WebAssembly; use threads: 1",
        "tiny: the module is closed",
    ]


def test_declarations_name_every_input_and_output(folder: Path) -> None:
    text = (folder / "tiny.d.ts").read_text()
    assert '"x": { data: Float32Array; shape: readonly number[] };' in text
    assert "\"total\": { data: BigInt64Array; shape: number[]; dtype: 'int64' };" in text


def test_module_needs_nothing_of_its_host(folder: Path, tmp_path: Path) -> None:
    script = f"""
    import {{ readFileSync }} from 'node:fs';
    const code = new WebAssembly.Module(readFileSync({json.dumps(str(folder / "module.wasm"))}));
    const names = WebAssembly.Module.exports(code).map(({{ name }}) => name);
    show([WebAssembly.Module.imports(code), names.sort()]);
    """
    imports, exports = node(folder, tmp_path, script)
    assert imports == []
    assert exports == sorted(
        [
            "__heap_base",
            "memory",
            *(f"tiny_{n}" for n in ("close", "error", "memory_bytes", "open_memory", "run")),
        ]
    )
