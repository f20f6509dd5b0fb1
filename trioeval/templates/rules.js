// Rules for nunjucks: what its templates may do, what counts as undefined, and how values go in and out.
//
// A script in strict mode, evaluated after nunjucks in the same context. Its value is a function that makes
// environments. nunjucks writes names of a template into JavaScript without escapes, and lets a template reach
// every property of every value, so `inspect` admits only names that stay names, and `member` no property
// that leads to functions which compile code. Afterwards all intrinsics are frozen.
(function () {
  "use strict";
  const { Environment, compiler, lexer, lib, nodes, parser, runtime } = globalThis.nunjucks;
  const { hasOwn, setPrototypeOf, getPrototypeOf, getOwnPropertyDescriptors, freeze } = Object;
  const compileFunction = Function;

  // Bounds.

  const STEPS = 1000000;
  const CALL_STEPS = 10;
  const CHARACTERS = 10000000;
  const TOO_LONG = `the template printed more than ${CHARACTERS} characters`;
  let steps = STEPS;

  class Fault extends Error {
    constructor(kind, message, more) {
      super(message);
      this.kind = kind;
      this.more = more;
    }
  }

  function take(count) {
    steps -= count;
    if (!(steps >= 0)) throw new Fault("limit", `the template took more than ${STEPS} steps`);
  }

  // Values. JSON has no NaN, no infinities and no whole numbers beyond 2^53, which are objects with one key.

  const SPECIAL = "\u0000special";
  const numbers = { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity };
  const jsonArray = Object.create(Array.prototype, { toString: { value() { return JSON.stringify(this); } } });
  const jsonObject = Object.create(Object.prototype, { toString: { value() { return JSON.stringify(this); } } });
  BigInt.prototype.toJSON = function () { return JSON.rawJSON(String(this)); };

  function revived(_key, value) {
    if (value === null || typeof value !== "object" || !hasOwn(value, SPECIAL)) return value;
    const text = value[SPECIAL];
    return hasOwn(numbers, text) ? numbers[text] : BigInt(text);
  }

  function printedAsJson(value) {
    if (value === null || typeof value !== "object") return;
    Object.values(value).forEach(printedAsJson);
    setPrototypeOf(value, Array.isArray(value) ? jsonArray : jsonObject);
  }

  function special(_key, value) {
    if (value instanceof runtime.SafeString) return value.val;
    if (typeof value === "number" && !Number.isFinite(value)) return { [SPECIAL]: String(value) };
    return value;
  }

  function written(value) {
    return value === undefined || typeof value === "function" ? "null" : JSON.stringify(value, special);
  }

  // Members and variables.

  const CLOSED = new Set([
    "constructor", "__proto__", "prototype", "__defineGetter__", "__defineSetter__", "__lookupGetter__",
    "__lookupSetter__", "caller", "callee", "arguments",
  ]);

  function keyOf(name) {
    return typeof name === "number" || typeof name === "string" ? name : String(name);
  }

  function member(owner, name) {
    if (owner === undefined || owner === null) return undefined;
    const key = keyOf(name);
    if (CLOSED.has(key)) {
      const isData = typeof owner === "object" && hasOwn(owner, key) && typeof owner[key] !== "function";
      return isData ? owner[key] : undefined;
    }
    const value = owner[key];
    if (typeof value !== "function") return value;
    const bound = (...given) => value.apply(owner, given);
    bound.named = key;
    return bound;
  }

  function variable(context, frame, name) {
    const value = frame.lookup(name);
    if (value !== undefined) return value;
    if (hasOwn(context.ctx, name)) return context.ctx[name];
    return context.env.globals[name];
  }

  runtime.memberLookup = member;
  runtime.contextOrFrameLookup = variable;
  runtime.take = take;
  runtime.known = function (value, name) {
    if (value === undefined) throw new Fault("undefined", name);
    return value;
  };
  runtime.knownMember = function (owner, name, environment) {
    const value = member(owner, name);
    if (value === undefined && owner !== environment) {
      throw new Fault("member", written(keyOf(name)), written(owner));
    }
    return value;
  };
  runtime.suppressValue = function (value) {
    if (typeof value !== "function") return value === undefined || value === null ? "" : value;
    throw new Fault("other", `a function is printed${value.named ? `, ${value.named}` : ""}: call it`);
  };

  // The engine throws null if it has no memory for an error.
  const noMemory = new Fault("memory", "");
  const { handleError } = runtime;
  runtime.handleError = (error, lineno, colno) => handleError(error === null ? noMemory : error, lineno, colno);

  // As in nunjucks, without the splitting of names at dots, which is most of the time of a loop.
  runtime.Frame.prototype.set = function (name, value, resolveUp) {
    const owner = resolveUp ? this.resolve(name, true) : undefined;
    (owner || this).variables[name] = value;
  };
  runtime.bindLoop = function (frame, index0, length) {
    const loop = frame.variables.loop || (frame.variables.loop = {});
    loop.index = index0 + 1;
    loop.index0 = index0;
    loop.revindex = length - index0;
    loop.revindex0 = length - index0 - 1;
    loop.first = index0 === 0;
    loop.last = index0 === length - 1;
    loop.length = length;
  };

  // Syntax trees.

  const Step = nodes.Node.extend("Step", { fields: ["cost"] });
  const Kept = nodes.Node.extend("Kept", { fields: ["value"] });
  const IDENTIFIER = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;
  const UNSAFE = /["'`\\\s]/;
  const REFUSED = {
    AsyncAll: ["asyncAll", "write `for`"],
    AsyncEach: ["asyncEach", "write `for`"],
    Extends: ["extends", "templates read no files: write the whole text here"],
    FromImport: ["from", "templates read no files: write the macro here"],
    IfAsync: ["ifAsync", "write `if`"],
    Import: ["import", "templates read no files: write the macro here"],
    Include: ["include", "templates read no files: write its text here, or pass it as a variable"],
  };
  const CHECKS_OF_UNDEFINED = new Set([
    "defined", "undefined", "mapping", "string", "number", "iterable", "truthy", "falsy",
  ]);
  const EQUALITIES = new Set(["==", "!=", "===", "!=="]);
  const DEFAULTS = new Set(["default", "d"]);

  let settings = null; // of the environment whose text is compiled
  let found = null; // the names of variables in this text

  function fail(node, message) {
    throw new lib.TemplateError(message, node.lineno + 1, node.colno + 1);
  }

  class Scope {
    constructor(top, parent) {
      this.names = new Set();
      this.parent = parent;
      this.top = top || this;
    }
    has(name) { return this.names.has(name) || (this.parent ? this.parent.has(name) : false); }
    inner() { return new Scope(this.top, this); }
  }

  function bind(scope, node) {
    if (!(node instanceof nodes.Symbol)) fail(node, "expected a name");
    if (!IDENTIFIER.test(node.value)) fail(node, `${node.value} is not a name`);
    scope.names.add(node.value);
  }

  // Checks a part of a tree, notes the variables that it reads, adds the counting of steps, and marks where an
  // undefined value is an error. `open` is true where it is not.
  function inspect(node, scope, open) {
    if (node === null || node === undefined) return;
    if (hasOwn(REFUSED, node.typename)) {
      const [tag, hint] = REFUSED[node.typename];
      fail(node, `\`{% ${tag} %}\` is not supported; ${hint}`);
    }
    const rules = settings.strict;
    const lenient = open || rules === 0;
    switch (node.typename) {
      case "Symbol":
        if (UNSAFE.test(node.value)) fail(node, `unexpected characters in ${node.value}`);
        if (!scope.has(node.value)) found.add(node.value);
        node.isKnown = !lenient;
        break;
      case "LookupVal":
        inspect(node.target, scope, open);
        inspect(node.val, scope, false);
        node.isKnown = !lenient;
        break;
      case "Group":
      case "NodeList":
      case "Root":
      case "Output":
        for (const child of node.children) inspect(child, scope, open);
        break;
      case "If": {
        inspect(node.cond, scope, rules === 1);
        inspect(node.body, scope.inner(), false);
        inspect(node.else_, scope.inner(), false);
        break;
      }
      case "InlineIf":
        inspect(node.cond, scope, rules === 1);
        inspect(node.body, scope, open);
        inspect(node.else_, scope, open);
        break;
      case "Not":
        inspect(node.target, scope, rules === 1);
        break;
      case "And":
        inspect(node.left, scope, open);
        inspect(node.right, scope, open);
        break;
      case "Or":
        inspect(node.left, scope, open || rules === 1);
        inspect(node.right, scope, open);
        break;
      case "Compare": {
        const isOpen = rules === 1 && node.ops.every((op) => EQUALITIES.has(op.type));
        inspect(node.expr, scope, isOpen);
        for (const op of node.ops) inspect(op.expr, scope, isOpen);
        break;
      }
      case "In":
        inspect(node.left, scope, rules === 1);
        inspect(node.right, scope, false);
        break;
      case "Is": {
        const named = node.right.name ? node.right.name.value : node.right.value;
        const name = String(named);
        if (!hasOwn(settings.environment.tests, name)) fail(node, `No test named '${name}'.`);
        inspect(node.left, scope, CHECKS_OF_UNDEFINED.has(name));
        inspect(node.right.args, scope, false);
        break;
      }
      case "Filter": {
        const name = node.name.value;
        if (!hasOwn(settings.environment.filters, name)) fail(node, `No filter named '${name}'.`);
        node.args.children.forEach((arg, place) => inspect(arg, scope, place === 0 && DEFAULTS.has(name)));
        break;
      }
      case "FunCall":
        inspect(node.name, scope, false);
        inspect(node.args, scope, false);
        break;
      case "Pair":
        inspect(node.value, scope, false);
        break;
      case "Set": {
        inspect(node.value, scope, false);
        inspect(node.body, scope, false);
        for (const target of node.targets) bind(scope, target);
        break;
      }
      case "For": {
        inspect(node.arr, scope, false);
        const inner = scope.inner();
        for (const name of node.name instanceof nodes.Array ? node.name.children : [node.name]) bind(inner, name);
        inner.names.add("loop");
        inspect(node.body, inner, false);
        inspect(node.else_, scope.inner(), false);
        node.body = counted(node.body, 1);
        break;
      }
      case "Macro":
      case "Caller": {
        let inner;
        if (node.typename === "Macro") {
          bind(scope, node.name);
          inner = scope.top.inner();
        } else {
          inner = scope.inner();
        }
        inner.names.add("caller");
        const { children } = node.args;
        children.forEach((arg, place) => {
          const isLast = place === children.length - 1;
          if (!(isLast && arg instanceof nodes.Dict)) return bind(inner, arg);
          for (const pair of arg.children) {
            inspect(pair.value, inner, false);
            bind(inner, pair.key);
          }
        });
        inspect(node.body, inner, false);
        node.body = counted(node.body, CALL_STEPS);
        break;
      }
      case "Block":
        if (!IDENTIFIER.test(node.name.value)) fail(node, `${node.name.value} is not a name`);
        inspect(node.body, scope.top.inner(), false);
        break;
      case "Capture":
        inspect(node.body, scope.inner(), false);
        break;
      case "Switch":
        inspect(node.expr, scope, rules === 1);
        for (const one of node.cases) {
          inspect(one.cond, scope, false);
          inspect(one.body, scope.inner(), false);
        }
        inspect(node.default, scope.inner(), false);
        break;
      case "Super":
        if (node.symbol) scope.names.add(node.symbol.value);
        break;
      case "Literal":
      case "TemplateData":
        break;
      default:
        if (node instanceof nodes.NodeList) {
          for (const child of node.children) inspect(child, scope, false);
        } else if (node instanceof nodes.Node) {
          node.iterFields((value) => { if (value instanceof nodes.Node) inspect(value, scope, false); });
        }
    }
  }

  function counted(body, cost) {
    const { lineno, colno } = body;
    return new nodes.NodeList(lineno, colno, [new Step(lineno, colno, cost), body]);
  }

  const methods = compiler.Compiler.prototype;
  const { compileRoot, compileSymbol, compileLookupVal, compileFilter, _getNodeName: nodeName } = methods;
  methods.compileRoot = function (node, frame) {
    inspect(node, new Scope(), false);
    if (settings.keeps) {
      const [output, ...others] = node.children;
      const [value, ...more] = output instanceof nodes.Output ? output.children : [];
      if (others.length || more.length || !value || value instanceof nodes.TemplateData) {
        throw new Fault("several", "");
      }
      node.children = [new Kept(value.lineno, value.colno, value)];
    }
    return compileRoot.call(this, node, frame);
  };
  methods._emitLoopBindings = function (_node, _arr, index0, length) {
    this._emitLine(`runtime.bindLoop(frame, ${index0}, ${length});`);
  };
  methods.compileStep = function (node) { this._emitLine(`runtime.take(${node.cost});`); };
  methods.compileKept = function (node, frame) {
    this._emit("context.value = ");
    this.compile(node.value, frame);
    this._emitLine(";");
  };
  methods.compileSymbol = function (node, frame) {
    if (!node.isKnown) return compileSymbol.call(this, node, frame);
    this._emit("runtime.known(");
    compileSymbol.call(this, node, frame);
    this._emit(`, ${JSON.stringify(node.value)})`);
  };
  methods.compileLookupVal = function (node, frame) {
    if (!node.isKnown) return compileLookupVal.call(this, node, frame);
    this._emit("runtime.knownMember((");
    this._compileExpression(node.target, frame);
    this._emit("),");
    this._compileExpression(node.val, frame);
    this._emit(", context.env.globals.env)");
  };
  methods.compileFilter = function (node, frame) {
    this._emit(`(lineno = ${node.lineno}, colno = ${node.colno}, `);
    compileFilter.call(this, node, frame);
    this._emit(")");
  };
  methods._getNodeName = function (node) {
    return nodeName.call(this, node).replace(/[\\\n\r\u2028\u2029]/g, "");
  };
  const parserError = parser.Parser.prototype.error;
  parser.Parser.prototype.error = function (message, lineno, colno) {
    if (lineno !== undefined) return parserError.call(this, message, lineno, colno);
    const token = this.peekToken();
    return parserError.call(this, token && token.value ? `${message}, got ${token.value}` : message);
  };

  // The line of a mistake that has none is where reading stopped.
  let tokens = null;
  const { lex } = lexer;
  lexer.lex = (...given) => {
    tokens = lex(...given);
    return tokens;
  };

  // Errors, as JSON.

  function causeOf(error) {
    let cause = error;
    while (cause instanceof lib.TemplateError && cause.cause) cause = cause.cause;
    return cause;
  }

  function faultOf(error, line) {
    const cause = error === null ? noMemory : causeOf(error);
    if (cause instanceof Fault) return { kind: cause.kind, message: cause.message, more: cause.more, line };
    if (cause instanceof RangeError && /call stack/.test(cause.message)) return { kind: "deep", message: "" };
    if (cause instanceof Error) {
      if (cause.message === "out of memory") return { kind: "memory", message: "" };
      if (/^(string too long|invalid string length)$/.test(cause.message)) return { kind: "limit", message: TOO_LONG };
      const isOwn = cause instanceof lib.TemplateError || cause.constructor === Error;
      const text = isOwn ? cause.message.replace(/^parse\w+: /, "") : `${cause.name}: ${cause.message}`;
      return { kind: "other", message: text, line };
    }
    return { kind: "other", message: String(cause), line };
  }

  // Filters in Python. Python cannot be called while a time limit holds: a call whose result is unknown gives
  // a placeholder and is noted; the text is rendered again when the results are known.

  const PLACEHOLDER = "\u0000pending";
  let known = null;
  let calls = null;

  function asked(name) {
    return function (...given) {
      const key = JSON.stringify([name, given.map((one) => (one === undefined ? null : one))], special);
      const answer = known.get(key);
      if (answer === undefined) {
        if (!key.includes("\\u0000pending")) calls.add(key);
        return PLACEHOLDER;
      }
      if (hasOwn(answer, "error")) throw new Fault("filter", answer.error, name);
      return answer.value;
    };
  }

  function environment(json, scripts) {
    const given = JSON.parse(json);
    const made = new Environment([], { autoescape: false });
    delete made.filters.random; // a prompt is the same in every run
    made.filters.load = (text) => JSON.parse(text);
    for (const name of given.filters) made.filters[name] = asked(name);
    for (const [name, filter] of Object.entries(scripts)) made.filters[name] = filter;
    const range = made.globals.range;
    made.globals.range = (start, stop, step) => {
      const [begin, end] = stop === undefined ? [0, start] : [start, stop];
      const count = Math.ceil((end - begin) / (step || 1));
      if (count > 0) take(count);
      return range(start, stop, step);
    };
    made.globals.env = freeze(setPrototypeOf(given.env, null));
    for (const table of [made.filters, made.tests, made.globals]) setPrototypeOf(table, null);
    return { environment: made, strict: given.strict, keeps: false };
  }

  const MOST_KEPT = 64;

  function compiled(own, text, keeps) {
    settings = { ...own, keeps };
    found = new Set();
    const source = compiler.compile(text, [], [], "template", {});
    return compileFunction(source)();
  }

  function blocksOf(parts) {
    const blocks = Object.create(null);
    for (const name of Object.keys(parts)) if (name.startsWith("b_")) blocks[name.slice(2)] = parts[name];
    return blocks;
  }

  class Context {
    constructor(ctx, blocks, env) {
      this.ctx = setPrototypeOf(ctx, null);
      this.blocks = blocks;
      this.env = env;
      this.value = undefined;
    }
    lookup(name) { return hasOwn(this.ctx, name) ? this.ctx[name] : this.env.globals[name]; }
    setVariable(name, value) { this.ctx[name] = value; }
    getVariables() { return this.ctx; }
    addExport() {}
    getBlock(name) {
      if (!this.blocks[name]) throw new Error(`unknown block "${name}"`);
      return this.blocks[name];
    }
    getSuper(_env, name) { throw new Error(`no super block available for "${name}"`); }
  }

  // Returns the functions of an environment: one that describes a text, and one that compiles it.
  function opened(json, scripts) {
    const own = environment(json, scripts);
    const asks = JSON.parse(json).filters.length > 0;
    const kept = new Map(); // texts that were checked, and will probably be rendered

    function described(text, keeps) {
      try {
        if (kept.size >= MOST_KEPT) kept.clear();
        kept.set(text + keeps, compiled(own, JSON.parse(text), keeps));
        return JSON.stringify({ names: [...found] });
      } catch (error) {
        const hasLine = error instanceof lib.TemplateError && error.lineno !== undefined;
        const line = hasLine ? error.lineno : tokens.lineno + 1;
        return JSON.stringify({ error: faultOf(error, line) });
      }
    }

    function rendering(text, keeps) {
      const parts = kept.get(text + keeps) || compiled(own, JSON.parse(text), keeps);
      kept.delete(text + keeps);
      const blocks = blocksOf(parts);
      // The result is a pair: "=" and a value, "?" and calls of filters, or "!" and an error. It is always made
      // by JSON.stringify, because the binding does not take a text that was put together by adding.
      return function (variables, hasSpecial, asJson, isFirst, answers) {
        if (isFirst) steps = STEPS;
        if (asks) {
          known = new Map(answers ? JSON.parse(answers, revived) : []);
          calls = new Set();
        }
        let output, result;
        try {
          const ctx = hasSpecial ? JSON.parse(variables, revived) : JSON.parse(variables);
          if (asJson) for (const name of JSON.parse(asJson)) printedAsJson(ctx[name]);
          const context = new Context(ctx, blocks, own.environment);
          const frame = new runtime.Frame();
          frame.topLevel = true;
          let failed;
          parts.root(own.environment, context, frame, runtime, (error, text_) => {
            if (error) failed = failed || error;
            else output = text_;
          });
          if (failed) throw failed;
          if (keeps === "condition") {
            const value = context.value;
            if (typeof value === "object" && value !== null && !(value instanceof runtime.SafeString)) {
              const kind = Array.isArray(value) ? "a list" : "an object";
              throw new Fault("other", `${kind} as a condition, which is always true; write \`x | length\``);
            }
            output = Boolean(value);
          } else if (keeps) {
            output = context.value;
          } else if (output.length > CHARACTERS) {
            throw new Fault("limit", TOO_LONG);
          }
          result = JSON.stringify(["=", output], special);
        } catch (error) {
          const line = error instanceof lib.TemplateError && error.lineno !== undefined ? error.lineno + 1 : 1;
          result = JSON.stringify(["!", faultOf(error, line)]);
        }
        if (asks && calls.size) return JSON.stringify(["?", [...calls]]);
        return result;
      };
    }

    return (name) => (name === "describe" ? described : rendering);
  }

  // The intrinsics are the same for all templates.

  const seen = new Set();
  function frozen(value) {
    if (value === null || (typeof value !== "object" && typeof value !== "function") || seen.has(value)) return;
    seen.add(value);
    frozen(getPrototypeOf(value));
    for (const one of Object.values(getOwnPropertyDescriptors(value))) {
      frozen(one.value);
      frozen(one.get);
      frozen(one.set);
    }
    const symbols = Object.getOwnPropertySymbols(value);
    for (const symbol of symbols) frozen(Object.getOwnPropertyDescriptor(value, symbol).value);
    if (value !== globalThis) freeze(value);
  }
  const silent = ["debug", "error", "info", "log", "warn"];
  globalThis.console = Object.fromEntries(silent.map((name) => [name, () => {}])); // for filters
  delete globalThis.nunjucks;
  delete globalThis.self;
  [
    function* () {}, async function () {}, async function* () {}, [].values(), "".matchAll(/x/g), ""[Symbol.iterator](),
    new Map().entries(), new Set().values(),
  ].forEach((one) => frozen(getPrototypeOf(one)));
  frozen(jsonArray);
  frozen(jsonObject);
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    if (name !== "globalThis") frozen(globalThis[name]);
  }
  return opened;
})()
