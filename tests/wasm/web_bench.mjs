// Latency of built WebAssembly modules, in turn with another runtime, in Node or in a headless browser:
//
//   node web_bench.mjs [--rounds 30] [--warm 3] [--peer PACKAGE_FOLDER] [--browser CHROMIUM] FOLDER[=MODEL.onnx] ...
//
// FOLDER is a module's folder under build/; its golden inputs are what it runs on. Loading includes reading or
// fetching files, and the first of a runtime its own start: compare it with one folder at a time. The peer is a package folder
// of a runtime with onnxruntime's JavaScript API; it takes MODEL.onnx of each folder that names one. Ratios are
// what counts: all take turns, so that a machine whose speed drifts slows all alike. `--target` names the library
// that our loader must take, of a module that has several.
import fs from 'node:fs';
import http from 'node:http';
import os from 'node:os';
import path from 'node:path';
import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';
import { pathToFileURL } from 'node:url';
import { timeInTurn } from './bench_core.mjs';

const options = { rounds: 30, warm: 3, peer: '', browser: '', target: '' };
const folders = [];
const words = process.argv.slice(2);
while (words.length) {
  const word = words.shift();
  if (word.startsWith('--')) options[word.slice(2)] = words.shift();
  else folders.push(word.split('='));
}
const modules = folders.map(([folder, model]) => {
  const facts = JSON.parse(fs.readFileSync(path.join(folder, 'manifest.json'), 'utf8'));
  return { folder: path.resolve(folder), name: facts.model, model, bytes: facts.library_bytes };
});

async function inNode() {
  const peer = options.peer && createRequire(path.join(path.resolve(options.peer), 'package.json'))(path.resolve(options.peer));
  if (peer) peer.env.wasm.numThreads = 1;
  const jobs = modules.flatMap(({ folder, name, model }) => {
    const golden = new Uint8Array(fs.readFileSync(path.join(folder, 'golden.safetensors')));
    const loader = pathToFileURL(path.join(folder, `${name}.js`)).href;
    const ours = { label: name, loader, options: options.target ? { target: options.target } : {}, golden };
    return peer && model
      ? [{ label: `${name} peer`, peer, readModel: () => fs.readFileSync(model), golden }, ours]
      : [ours];
  });
  return timeInTurn(jobs, { rounds: Number(options.rounds), warm: Number(options.warm) });
}

const TYPES = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm', '.html': 'text/html' };

function pageText() {
  const rows = modules.map(({ name, model }, index) => ({ name, at: `/module${index}`, model: model ? `/model${index}` : '' }));
  return `<!doctype html><title>bench</title><script type="module">
    import { timeInTurn } from '/core/bench_core.mjs';
    const tell = (body) => fetch('/result', { method: 'POST', body: JSON.stringify(body) });
    try {
      const bytes = async (url) => new Uint8Array(await (await fetch(url)).arrayBuffer());
      let peer = null;
      if (${Boolean(options.peer)}) {
        peer = await import('/peer/dist/ort.wasm.min.mjs');
        peer.env.wasm.numThreads = 1;
      }
      const jobs = [];
      for (const { name, at, model } of ${JSON.stringify(rows)}) {
        const golden = await bytes(at + '/golden.safetensors');
        if (peer && model) jobs.push({ label: name + ' peer', peer, readModel: () => bytes(model), golden });
        jobs.push({ label: name, loader: at + '/' + name + '.js', options: ${JSON.stringify(options.target ? { target: options.target } : {})}, golden });
      }
      await tell(await timeInTurn(jobs, { rounds: ${Number(options.rounds)}, warm: ${Number(options.warm)} }));
    } catch (error) { await tell({ failed: String(error.stack || error) }); }
  </script>`;
}

function fileOf(url) {
  const [, root, ...rest] = decodeURIComponent(url.split('?')[0]).split('/');
  const inside = (folder) => path.join(folder, ...rest.filter((part) => part !== '..'));
  if (root === 'core') return inside(import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname));
  if (root === 'peer') return inside(path.resolve(options.peer));
  const module = /^module(\d+)$/.exec(root);
  if (module) return inside(modules[module[1]].folder);
  const model = /^model(\d+)$/.exec(root);
  return model ? modules[model[1]].model : '';
}

async function inBrowser() {
  const profile = fs.mkdtempSync(path.join(os.tmpdir(), 'web-bench-'));
  let browser;
  const results = new Promise((resolve, reject) => {
    const server = http.createServer((request, response) => {
      if (request.url === '/result') {
        let text = '';
        request.on('data', (part) => (text += part));
        request.on('end', () => { response.end(); server.close(); resolve(JSON.parse(text)); });
        return;
      }
      const file = request.url === '/' ? '' : fileOf(request.url);
      if (request.url !== '/' && !(file && fs.existsSync(file))) {
        response.writeHead(404).end();
        return;
      }
      const body = request.url === '/' ? pageText() : fs.readFileSync(file);
      const type = request.url === '/' ? 'text/html' : TYPES[path.extname(file)] ?? 'application/octet-stream';
      response.writeHead(200, { 'Content-Type': type, 'Content-Length': Buffer.byteLength(body) });
      response.end(body);
    });
    server.listen(0, '127.0.0.1', () => {
      browser = spawn(options.browser, ['--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run',
        '--disable-dev-shm-usage', '--disable-background-networking', '--disable-extensions',
        `--user-data-dir=${profile}`, `http://127.0.0.1:${server.address().port}/`], { stdio: 'ignore', detached: true });
      browser.on('error', reject);
    });
  });
  // Its processes are one group, and none may outlive this one.
  const end = () => { try { process.kill(-browser.pid, 'SIGKILL'); } catch { /* gone already */ } };
  process.on('exit', end);
  for (const signal of ['SIGTERM', 'SIGINT']) process.on(signal, () => process.exit(1));
  const found = await results;
  end();
  await new Promise((resolve) => browser.on('exit', resolve));
  fs.rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
  if (found.failed) throw new Error(found.failed);
  return found;
}

const rows = await (options.browser ? inBrowser() : inNode());
const show = (x) => x.toFixed(2);
let before = null;
for (const row of rows) {
  const isOurs = before !== null && before.label.endsWith(' peer') && !row.label.endsWith(' peer');
  const against = isOurs ? `; of peer: ${show(row.median / before.median)}, best ${show(row.best / before.best)}, load ${show(row.loadMs / before.loadMs)}` : '';
  console.log(`${row.label}: ${show(row.median)} ms (best ${show(row.best)}), load ${show(row.loadMs)}, ` +
    `first run ${show(row.firstMs)}, error ${row.error.toExponential(1)}${against}`);
  before = row;
}
for (const { name, bytes } of modules) console.log(`${name}: module of ${bytes} bytes`);
process.exit(0);
