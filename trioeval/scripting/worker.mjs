// A worker for JavaScript and TypeScript in Node: equivalent to providers/programs/worker.py, which describes
// its arguments, requests and answers. With three arguments it is equivalent to suite/sources/one_shot.py. With
// one argument, a file, it prints the syntax error of that, and runs nothing of it.
//
// The name of the function begins with the way in which it is found:
//
// exact:NAME    the export NAME
// prefer:NAME   the export NAME, otherwise the default export, or the only function that the file exports
// value:NAME    the export NAME, or the default export; called if it is a function. A function inside of the
//               value becomes a reference to it.
// provider:NAME the export NAME, or the default export, is a class with `callApi`, or a function; the arguments
//               of each request are the prompt, the context and the options of the class
// script:       the arguments are a function of a list in JSON, as text, and that list; it finds functions of
//               files with trioevalFind

import fs from 'node:fs';
import Module, { createRequire } from 'node:module';
import net from 'node:net';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import vm from 'node:vm';
import { Worker } from 'node:worker_threads';

const SHOWN = 200;
const TRACE = 2048;
const ENVELOPE = 64; // bytes of an answer besides its result
const OWN = fileURLToPath(import.meta.url);

// In a thread, because the user's code may never let this one run. Nothing is written to the pipe: its end
// means that the process which started this one was killed.
function endWith(lifeline) {
  const code = `
    const { workerData } = require('node:worker_threads');
    const end = () => process.kill(-workerData.group, 'SIGKILL');
    new (require('node:net').Socket)({ fd: workerData.lifeline }).on('error', end).on('close', end).resume();
  `;
  const workerData = { lifeline, group: process.pid };
  new Worker(code, { eval: true, workerData, execArgv: [] }).unref();
}

// Projects that are compiled or bundled leave out suffixes, or name the compiled file.
function findSources() {
  if (Module.registerHooks === undefined) return;
  const endings = ['.ts', '.mts', '.cts', '.js', '.mjs', '.cjs', '.json', '/index.ts', '/index.js'];
  Module.registerHooks({
    resolve(specifier, context, next) {
      try {
        return next(specifier, context);
      } catch (error) {
        if (!/^\.{1,2}(\/|$)/.test(specifier) || !context.parentURL?.startsWith('file:')) throw error;
        const written = path.resolve(path.dirname(fileURLToPath(context.parentURL)), specifier);
        const compiled = written.replace(/\.([cm]?)js$/, '.$1ts');
        const tried = [compiled, ...endings.map((ending) => written + ending)];
        const found = tried.find((one) => fs.statSync(one, { throwIfNoEntry: false })?.isFile());
        if (found === undefined) throw error;
        return next(pathToFileURL(found).href, context);
      }
    },
    load(url, context, next) {
      const loaded = next(url, context);
      if (!/\.[cm]?ts$/.test(url) || !loaded.source || !Module.stripTypeScriptTypes) return loaded;
      return { ...loaded, source: withTypeImports(String(loaded.source)) };
    },
  });
}

const IMPORT = /^[ \t]*import\s+(?!type\b)([\w$\s,{}]+?)\s+from\s*(['"])[^'"\n]+\2;?/gm;

// Compilers drop imports that only types use, but Node keeps them unless they are marked as types. Lines stay.
function withTypeImports(source) {
  let compiled;
  try {
    compiled = Module.stripTypeScriptTypes(source, { mode: 'transform' });
  } catch {
    return source; // Node reports its error
  }
  const rest = compiled.replace(IMPORT, '');
  const isUsed = (name) => new RegExp(`(?<![\\w$.])${name.replaceAll('$', '\\$')}(?![\\w$])`).test(rest);
  return source.replace(IMPORT, (statement, names) => {
    const bindings = names.replace(/\btype\s+\w+/g, '').match(/[\w$]+(?!\s+as\b)(?=\s*(?:[,}]|$))/g) ?? [];
    const unused = bindings.filter((name) => !isUsed(name));
    if (unused.length === bindings.length) return statement.replace(/[^\n]/g, ' ');
    return statement.replace(/\{[^}]*\}/, (list) =>
      list.replace(/(?<=[{,]\s*)(?!type\s)([\w$]+(?:\s+as\s+([\w$]+))?)/g, (one, name, local) =>
        unused.includes(local ?? name) ? `type ${one}` : one,
      ),
    );
  });
}

async function load(file) {
  try {
    return await import(pathToFileURL(file).href);
  } catch (error) {
    const lacks = /^(require|module|exports|__filename|__dirname) is not defined/.test(error?.message);
    if (!(error instanceof ReferenceError && lacks && file.endsWith('.js'))) throw error;
    // CommonJS in a folder whose package.json says that its files are ES modules.
    const made = new Module(file);
    made.filename = file;
    made.paths = Module._nodeModulePaths(path.dirname(file));
    made._compile(fs.readFileSync(file, 'utf8'), file);
    return { default: made.exports };
  }
}

function member(holder, name) {
  return name.split('.').reduce((found, part) => found?.[part], holder);
}

function named(exported, name) {
  const holders = [exported, exported.default, exported.default?.default];
  return holders.map((holder) => member(holder, name)).find((one) => one !== undefined);
}

function main(exported) {
  return exported.default?.default ?? exported.default ?? exported;
}

async function find(file, target) {
  const [kind, name] = [target.slice(0, target.indexOf(':')), target.slice(target.indexOf(':') + 1)];
  if (kind === 'script') {
    // Code outside of any file calls `require`, or `process.mainModule.require` as in promptfoo.
    globalThis.require = createRequire(path.join(process.cwd(), 'suite.js'));
    const found = new Map();
    globalThis.trioevalFind = (one, which) => {
      const key = JSON.stringify([one, which]);
      if (!found.has(key)) found.set(key, find(one, which));
      return found.get(key);
    };
    Object.defineProperty(process, 'mainModule', { value: { require: globalThis.require } });
    return runScript;
  }
  const exported = await load(file);
  const missing = new TypeError(`it exports no function${name ? ` ${JSON.stringify(name)}` : ''}`);
  if (kind === 'value') {
    const value = name ? named(exported, name) : main(exported);
    if (value === undefined) throw new TypeError(`it exports no ${JSON.stringify(name)}`);
    return async (...values) => {
      const isMade = typeof value === 'function';
      const data = isMade ? await value(...values) : value;
      return asData(data, path.relative(process.cwd(), file), name && !isMade ? [name] : [], isMade);
    };
  }
  if (kind === 'provider') {
    const made = name ? named(exported, name) : main(exported);
    if (name && made === undefined) throw new TypeError(`it exports no ${JSON.stringify(name)}`);
    return provider(made, name ? `its export ${JSON.stringify(name)}` : 'its default export');
  }
  let found = name ? named(exported, name) : undefined;
  if (kind === 'prefer' && typeof found !== 'function') {
    found = main(exported);
    const functions = Object.values(exported).filter((one) => typeof one === 'function');
    if (typeof found !== 'function' && functions.length === 1) [found] = functions;
  }
  if (typeof found !== 'function') throw missing;
  return found;
}

// A value as data: a function, or a provider, becomes `file://FILE:` and its path in the export.
function asData(value, file, at, isMade) {
  if (typeof value === 'function' || typeof value?.callApi === 'function') {
    const place = `$.${at.join('.')}`;
    if (isMade) throw new TypeError(`${place} is a function, which the result of a function must not contain`);
    if (!at.every((name) => /^\w+$/.test(name))) throw new TypeError(`${place} is a function under an unusual key`);
    return `file://${file}:${at.join('.')}`;
  }
  if (Array.isArray(value)) return value.map((one, index) => asData(one, file, [...at, index], isMade));
  if (value === null || typeof value !== 'object' || typeof value.toJSON === 'function') return value;
  const members = Object.entries(value).map(([name, one]) => [name, asData(one, file, [...at, name], isMade)]);
  return Object.fromEntries(members);
}

// One object for each config, because it may keep state between calls.
function provider(made, what) {
  const objects = new Map();
  const isClass = typeof made === 'function' && /^class\b/.test(Function.prototype.toString.call(made));
  const isMade = isClass || typeof made?.prototype?.callApi === 'function';
  if (typeof made !== 'function' && typeof made?.callApi !== 'function') {
    throw new TypeError(`${what} is neither a class with callApi nor a function`);
  }
  const logger = Object.fromEntries(['debug', 'info', 'warn', 'error'].map((one) => [one, console.error]));
  return (prompt, context, options) => {
    context.logger = logger;
    if (!isMade) return typeof made === 'function' ? made(prompt, context, options) : made.callApi(prompt, context, {});
    const key = JSON.stringify(options);
    if (!objects.has(key)) objects.set(key, new made(options));
    const object = objects.get(key);
    if (typeof object.callApi === 'function') return object.callApi(prompt, context, {});
    if (typeof object.callEmbeddingApi !== 'function') throw new TypeError('its class has no method callApi');
    return embedded(object.callEmbeddingApi(prompt));
  };
}

async function embedded(pending) {
  const { embedding: output, ...rest } = (await pending) ?? {};
  return { ...(output === undefined ? {} : { output }), ...rest };
}

async function runScript(source, values) {
  try {
    const value = await (0, eval)(source)(JSON.stringify(values));
    return JSON.parse(encode({ value: value ?? null }, Infinity));
  } catch (error) {
    return { error: describe(error).what, limit: false };
  }
}

// The last part of a line of a stack: a file with its line and column.
const PLACE = /(?:file:\/\/)?(\/[^()\n]*?):(\d+)(?::(\d+))?\)?$/;

function describe(error, file) {
  const isError = error instanceof Error || typeof error?.stack === 'string';
  const what = isError ? `${error.name}: ${error.message}` : `it throws ${String(error)}`;
  const stack = isError ? String(error.stack) : what;
  const lines = stack.split('\n').filter((line) => !line.includes(OWN) && !line.includes('(node:internal'));
  const places = lines.map((line) => PLACE.exec(line)).filter((found) => found !== null);
  const place = places.find((found) => file !== undefined && decodeURI(found[1]) === file) ?? places[0];
  let shown = what.split(/\s+/).join(' ').replace(/:? ?$/, '').slice(0, SHOWN);
  if (place) {
    const other = decodeURI(place[1]);
    shown += other === file ? ` (line ${place[2]})` : ` (line ${place[2]} of ${path.basename(other)})`;
  }
  return { what: shown, trace: lines.join('\n').slice(0, TRACE) };
}

// Replies may contain objects of a library that refer to themselves, such as timers.
const MOST_MEMBERS = 100_000;

function stringified(answer) {
  try {
    return JSON.stringify(answer);
  } catch (error) {
    if (!/circular/i.test(error.message)) throw error;
    return JSON.stringify(withoutCycles(answer, [], { left: MOST_MEMBERS }));
  }
}

function withoutCycles(value, above, members) {
  if (value === null || typeof value !== 'object' || typeof value.toJSON === 'function') return value;
  if (above.includes(value)) return '[Circular]';
  members.left -= 1;
  if (members.left < 0) throw new TypeError('it refers to itself, and is too large to be copied');
  const inside = [...above, value];
  if (Array.isArray(value)) return value.map((one) => withoutCycles(one, inside, members));
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, withoutCycles(one, inside, members)]));
}

function encode(answer, largest) {
  let message;
  try {
    message = Buffer.from(stringified(answer));
  } catch (error) {
    throw new TypeError(`the result must be JSON: ${error.message.split('\n')[0]}`);
  }
  if (message.length > largest + ENVELOPE) {
    const error = new RangeError(`the result is ${message.length} bytes of JSON, more than the maximum of ${largest}`);
    throw Object.assign(error, { isTooLarge: true });
  }
  return message;
}

function serve([descriptor, lifeline, file, target, largest]) {
  endWith(Number(lifeline));
  const channel = new net.Socket({ fd: Number(descriptor), readable: true, writable: true });
  channel.on('error', () => process.exit(0)).on('close', () => process.exit(0));
  let received = Buffer.alloc(0);
  let called;
  const answer = async (request) => {
    let isLoading = called === undefined;
    let message;
    try {
      called ??= await find(file, target);
      isLoading = false;
      const value = (await called(...request.arguments)) ?? null;
      message = encode({ id: request.id, value }, Number(largest));
    } catch (error) {
      const failure = { ...describe(error, file), loading: isLoading, large: error?.isTooLarge === true };
      message = Buffer.from(JSON.stringify({ id: request.id, error: failure }));
    }
    const head = Buffer.alloc(4);
    head.writeUInt32BE(message.length);
    channel.write(Buffer.concat([head, message]));
  };
  const parts = [];
  channel.on('data', (part) => {
    parts.push(part);
    const size = parts.reduce((sum, one) => sum + one.length, received.length);
    if (size < 4) return;
    if (received.length < 4) received = Buffer.concat([received, ...parts.splice(0)]);
    const end = 4 + received.readUInt32BE(0);
    if (size < end) return; // a long request is joined only once
    received = Buffer.concat([received, ...parts.splice(0)]);
    const request = JSON.parse(received.subarray(4, end).toString());
    received = received.subarray(end);
    void answer(request);
  });
}

async function once([requested, answered, lifeline]) {
  endWith(Number(lifeline));
  const { file, function: target, calls } = JSON.parse(fs.readFileSync(Number(requested), 'utf8'));
  process.argv = [process.argv[0], file];
  const values = [];
  let answer;
  try {
    const called = await find(file, target);
    for (const given of calls) {
      const value = (await called(...given)) ?? null;
      encode({ value }, Infinity);
      values.push(value);
    }
    answer = { values };
  } catch (error) {
    answer = { error: { ...describe(error, path.resolve(file)), line: null, call: values.length } };
  }
  fs.writeFileSync(Number(answered), JSON.stringify(answer));
  process.exit(0);
}

// Node itself checks no ES modules in files whose suffix leaves open what they are.
function check(file) {
  const written = fs.readFileSync(file, 'utf8').replace(/^#!.*/, '');
  const isTyped = /\.[cm]?ts$/i.test(file) && Module.stripTypeScriptTypes !== undefined;
  try {
    const source = isTyped ? Module.stripTypeScriptTypes(written, { mode: 'transform' }) : written;
    let plain;
    try {
      new vm.Script(Module.wrap(source), { filename: file });
      return;
    } catch (error) {
      plain = error;
    }
    try {
      new vm.SourceTextModule(source, { identifier: file });
    } catch (error) {
      throw /^\s*(?:import|export)\b/m.test(source) ? error : plain;
    }
  } catch (error) {
    const first = String(error.message).trim().split('\n', 1)[0];
    process.stdout.write(`${error.name}: ${first}${lineOf(error) ?? lineOf(errorOfPlain(written)) ?? ''}`);
  }
}

function lineOf(error) {
  const line = /:(\d+)$/.exec(String(error?.stack).split('\n', 1)[0])?.[1];
  return line === undefined ? undefined : ` (line ${line})`;
}

// The syntax error of a module has no line, but that of the same code as a function has.
function errorOfPlain(source) {
  const plain = source.replace(/^import\b.*$/gm, '').replace(/^export\s+(default\b)?/gm, (found) => (found.includes('default') ? 'void ' : ''));
  try {
    new vm.Script(`(async () => {${plain}\n})`, { filename: 'module' });
  } catch (error) {
    return error;
  }
}

const given = process.argv.slice(2);
if (given.length === 1) {
  check(given[0]);
} else {
  process.argv = [process.argv[0], given[2]];
  findSources();
  if (given.length === 3) await once(given);
  else serve(given);
}
