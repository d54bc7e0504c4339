// Times modules in turn with another runtime, in Node and in a page alike; web_bench.mjs drives it.

/** Cases of a golden file: inputs and expected outputs by name. */
export function goldenCases(bytes) {
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const cases = new Map();
  const { __metadata__: _kinds, ...tensors } = header;
  const arrays = {
    F32: Float32Array, F64: Float64Array, I8: Int8Array, I16: Int16Array, I32: Int32Array, I64: BigInt64Array,
    U8: Uint8Array, U16: Uint16Array, U32: Uint32Array, U64: BigUint64Array, F16: Uint16Array, BOOL: Uint8Array,
  };
  for (const [key, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(tensors)) {
    const [label, side, ...name] = key.split('/');
    if (!cases.has(label)) cases.set(label, { in: {}, out: {} });
    const data = new arrays[dtype](bytes.slice(8 + length + begin, 8 + length + end).buffer);
    cases.get(label)[side][name.join('/')] = { data, shape, dtype };
  }
  return [...cases.values()];
}

/** Largest difference from what was expected, as a share of the largest expected value. */
export function errorOf(got, expected) {
  let worst = 0;
  for (const [name, { data }] of Object.entries(expected)) {
    let scale = 0;
    let difference = 0;
    for (let i = 0; i < data.length; i++) {
      scale = Math.max(scale, Math.abs(Number(data[i])));
      difference = Math.max(difference, Math.abs(Number(got[name].data[i]) - Number(data[i])));
    }
    worst = Math.max(worst, difference / (scale || 1));
  }
  return worst;
}

const PEER_TYPES = { F32: 'float32', F64: 'float64', I32: 'int32', I64: 'int64', U8: 'uint8', I8: 'int8', BOOL: 'bool' };

async function ourJob({ label, loader, options, golden }) {
  const { load } = await import(loader);
  const [{ in: inputs, out: expected }] = goldenCases(golden);
  let start = performance.now();
  const module = await load(options);
  const loadMs = performance.now() - start;
  start = performance.now();
  const first = module.run(inputs);
  const firstMs = performance.now() - start;
  return { label: label + (module.target ? ` (${module.target})` : ''), loadMs, firstMs,
    error: errorOf(first, expected), call: () => module.run(inputs), times: [] };
}

async function peerJob({ label, peer, readModel, golden }) {
  const [{ in: inputs, out: expected }] = goldenCases(golden);
  let start = performance.now();
  const session = await peer.InferenceSession.create(await readModel(), { executionProviders: ['wasm'] });
  const loadMs = performance.now() - start;
  const feeds = Object.fromEntries(
    Object.entries(inputs).map(([name, t]) => [name, new peer.Tensor(PEER_TYPES[t.dtype], t.data, t.shape)]),
  );
  start = performance.now();
  const first = await session.run(feeds);
  const firstMs = performance.now() - start;
  return { label, loadMs, firstMs, error: errorOf(first, expected), call: () => session.run(feeds), times: [] };
}

/** Engines compile hot functions again in the background, so every job is warmed up before the timed turns. */
export async function timeInTurn(pairs, { rounds, warm }) {
  const jobs = [];
  for (const pair of pairs) {
    // what compiles in the background since the last one started must not count as this one's loading
    await new Promise((resolve) => setTimeout(resolve, 1500));
    jobs.push(await (pair.peer ? peerJob(pair) : ourJob(pair)));
  }
  for (const job of jobs) {
    const until = performance.now() + 1000 * warm;
    while (performance.now() < until) {
      await job.call();
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }
  for (let round = 0; round < rounds; round++) {
    for (const job of jobs) {
      const start = performance.now();
      await job.call();
      job.times.push(performance.now() - start);
    }
  }
  return jobs.map(({ label, loadMs, firstMs, error, times }) => {
    const sorted = [...times].sort((a, b) => a - b);
    return { label, loadMs, firstMs, error, median: sorted[sorted.length >> 1], best: sorted[0] };
  });
}
