// Run a WebAssembly module with its own JavaScript loader: node run_node.mjs LOADER.js FEEDS OUTPUTS COUNT
// Feeds and outputs are safetensors files whose tensors are named <case>/<name>; dtypes that exchange.py can't
// store are bytes there, and the metadata says dtype and shape.

import { readFileSync, writeFileSync } from 'node:fs';
import { pathToFileURL } from 'node:url';

const REFUSED = 3; // as process.py says
const ARRAYS = {
  bool: ['BOOL', Uint8Array], float16: ['F16', Uint16Array], float32: ['F32', Float32Array],
  float64: ['F64', Float64Array], int8: ['I8', Int8Array], int16: ['I16', Int16Array],
  int32: ['I32', Int32Array], int64: ['I64', BigInt64Array], uint8: ['U8', Uint8Array],
  uint16: ['U16', Uint16Array], uint32: ['U32', Uint32Array], uint64: ['U64', BigUint64Array],
};

function readCases(path, count) {
  const file = readFileSync(path);
  const length = Number(file.readBigUInt64LE(0));
  const header = JSON.parse(file.subarray(8, 8 + length).toString('utf8'));
  const cases = Array.from({ length: count }, () => ({}));
  const { __metadata__: kinds = {}, ...tensors } = header;
  for (const [key, { dtype, shape, data_offsets: [begin, end] }] of Object.entries(tensors)) {
    const slash = key.indexOf('/');
    const [, stored] = Object.values(ARRAYS).find(([name]) => name === dtype);
    const [kind, dims] = (kinds[key] ?? '').split(' ');
    const array = kind === 'bfloat16' ? Uint16Array : stored;
    const bytes = Uint8Array.from(file.subarray(8 + length + begin, 8 + length + end));
    cases[Number(key.slice(0, slash))][key.slice(slash + 1)] = {
      data: new array(bytes.buffer),
      shape: kind ? dims.split(',').filter(Boolean).map(Number) : shape,
    };
  }
  return cases;
}

function writeCases(path, cases) {
  const header = { __metadata__: {} };
  const parts = [];
  let end = 0;
  cases.forEach((outputs, index) => {
    for (const [name, { data, shape, dtype }] of Object.entries(outputs)) {
      const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
      header[`${index}/${name}`] = {
        dtype: dtype in ARRAYS ? ARRAYS[dtype][0] : 'U8',
        shape: dtype in ARRAYS ? shape : [bytes.length],
        data_offsets: [end, (end += bytes.length)],
      };
      if (!(dtype in ARRAYS)) {
        header.__metadata__[`${index}/${name}`] = `${dtype} ${shape.join(',')}`;
      }
      parts.push(bytes);
    }
  });
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, ...parts]));
}

const [loader, feeds, outputs, count] = process.argv.slice(2);
const cases = readCases(feeds, Number(count));
try {
  const { load } = await import(pathToFileURL(loader));
  const member = process.env.CUVIL_CPU;
  const module = await load(member ? { target: member } : {});
  writeCases(outputs, cases.map((inputs) => module.run(inputs)));
  module.close();
} catch (error) {
  const trapped = !(error instanceof Error) || error instanceof WebAssembly.RuntimeError;
  console.error(trapped ? error : error.message);
  process.exitCode = trapped ? 1 : REFUSED;
}
