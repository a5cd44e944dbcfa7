// Views of the demos that take typed text, as lists of pieces: the same as in classroom/demos.
"use strict";
if (typeof module !== "undefined") {
  globalThis.Engine = require("./engine.js");
  globalThis.Render = require("./render.js");
}
const Views = (() => {
  const WORD = /[\p{L}\p{N}_]+(?:['’-][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\s]/gu;
  const SHOWN = 12, { fixed } = Render, { sum } = Engine;
  const heading = (title) => ({ kind: "heading", title });
  const note = (text, name) => ({ kind: "note", text, name });
  const table = (head, rows, name, more = {}) => ({ kind: "table", head, rows, name, marked: -1, act: "", keys: [], ...more });
  const nats = (log, digits) => (log === -Infinity ? "-inf" : fixed(log, digits));
  const general = (x) => String(Number(x.toPrecision(6)));

  // ---- words (classroom/demos/reading.py)

  class Tokenizer {
    constructor({ tokens, special }) {
      Object.assign(this, { tokens, special });
      this.number = new Map(tokens.map((name, n) => [name, n]).filter(([, n]) => !special.special.includes(n)));
    }
    encode(text) { return (text.match(WORD) ?? []).map((word) => this.number.get(word) ?? this.special.unk); }
    /** The text in lower case where only that is known, and a hint for each word that is not known. */
    known(text) {
      const unknown = new Map(), fitted = text.replace(WORD, (word) => {
        if (this.number.has(word)) return word;
        if (this.number.has(word.toLowerCase())) return word.toLowerCase();
        unknown.set(word, this.near(word.toLowerCase()));
        return word;
      });
      return [fitted, [...unknown].slice(0, 5).map(([word, hint]) => `“${[...word].slice(0, 40).join("")}”${hint}`)];
    }
    near(word) {
      const most = [...word].length <= 40 ? [...word].length / 3 : 0;
      const far = [...this.number.keys()].map((one) => [one, lettersApart(word, one)]).filter(([, n]) => n <= most);
      const best = far.sort((a, b) => a[1] - b[1]).slice(0, 3).map(([one]) => one);
      return best.length ? ` (near: ${best.join(", ")})` : "";
    }
    /** The words of tokens as the language counts them. */
    spoken(tokens) {
      return tokens.flatMap((t) => (t === this.special.sep ? ["<end>"] : this.tokens[t].match(WORD)));
    }
  }

  function lettersApart(one, other) {
    const a = [...one], b = [...other];
    let row = [...Array(b.length + 1).keys()];
    a.forEach((x, i) => {
      const above = row;
      row = [i + 1];
      b.forEach((y, j) => row.push(Math.min(above[j + 1] + 1, row[j] + 1, above[j] + Number(x !== y))));
    });
    return row.at(-1);
  }

  // ---- sampling (classroom/demos/sampling.py, likelihood.py)

  /** state: {prompt, written, temperature, topK, topP, seed}; place: {model, tokenizer, language, start}. */
  function sampling(state, { model, tokenizer, language, start }) {
    const { special } = tokenizer, [prompt, unknown] = tokenizer.known(state.prompt);
    const begin = [special.sep], old = begin.length + tokenizer.encode(prompt).length;
    const tokens = [...begin, ...tokenizer.encode(prompt), ...state.written];
    const read = tokens.slice(-model.config.context), said = logProbabilities(model, tokens, read);
    const chips = tokens.map((token, n) => ({ token: tokenizer.tokens[token],
      kind: n < begin.length ? "special" : n < old ? "plain" : "new",
      caption: n >= old && said[n] !== null ? fixed(Math.exp(said[n]), 3) : "" }));
    const pieces = [...(unknown.length ? [note(`Not in the vocabulary: ${unknown.join(", ")}.`, "unknown")] : []),
      heading("The text"), { kind: "chips", chips, act: "" }];
    if (read.length < tokens.length) pieces.push(note(`The model reads the last ${read.length} of ${tokens.length} tokens.`, "cut"));
    const words = tokenizer.spoken(tokens.slice(1));
    if (ended(state, special)) pieces.push(note("The text has ended: undo a step, or change the prompt.", "ended"));
    else pieces.push(heading("The next word"), ...nextWord(state, tokens, words, { model, tokenizer, language, start }));
    pieces.push(heading("How likely is the text (log p, in nats)"));
    const before = tokenizer.spoken(tokens.slice(1, old)).length;
    return { name: "sampling", pieces: [...pieces, ...likelihoods(said, old, words, before, language, start)] };
  }
  const ended = ({ written }, special) => written.length > 0 && written.at(-1) === special.sep;

  function logProbabilities(model, tokens, read) {
    const scores = model.read(read);
    const found = read.slice(1).map((token, n) => Math.log(Engine.softmax(scores[n])[token]));
    return [...Array(tokens.length - found.length).fill(null), ...found];
  }

  function nextWord(state, tokens, words, { model, tokenizer, language, start }) {
    const step = Engine.nextWord(model, tokens, state, state.seed), first = step.stages[0][1], last = step.stages.at(-1)[1];
    const exact = language ? exactNext(language, words, start, tokenizer) : null;
    const best = [...first.keys()].sort((a, b) => first[b] - first[a]).slice(0, SHOWN);
    const keys = best.includes(step.drawn) ? best : [...best, step.drawn];
    const rows = keys.map((token) => [`${token === step.drawn ? "→ " : ""}${tokenizer.tokens[token]}`,
      ...(language ? [{ share: exact ? exact[token] : null }] : []), ...step.stages.map(([, p]) => ({ share: p[token] }))]);
    const head = ["→ drawn", ...(language ? ["exact"] : []), ...step.stages.map(([name]) => name)];
    const pieces = [table(head, rows, "distributions", { marked: keys.indexOf(step.drawn), act: "write", keys })];
    if (state.temperature) {
      const kept = [...last.keys()].filter((token) => last[token] >= 5e-4 || token === step.drawn);
      pieces.push({ kind: "lot", parts: kept.map((token) => [tokenizer.tokens[token], last[token]]), number: step.number,
        drawn: kept.indexOf(step.drawn), before: sum(last.subarray(0, step.drawn)) });
    }
    if (exact) {
      const divergence = sum(exact.map((p, n) => (p > 0 ? p * (Math.log(p) - Math.log(first[n])) : 0)));
      const numbers = [entropy(exact), entropy(first), divergence].map((x) => fixed(x, 4));
      pieces.push(table(["entropy, exact", "entropy, model", "KL(exact ‖ model)"], [numbers], "nats"));
    }
    return [...pieces, ...formulas(step.stages, state, tokenizer).map((line) => note(line, "formula"))];
  }
  const entropy = (p) => -sum(p.map((q) => (q > 0 ? q * Math.log(q) : 0)));

  function exactNext(language, words, start, tokenizer) {
    const found = language.next(language.numbers(words), start);
    if (!found) return null;
    const exact = new Float64Array(tokenizer.tokens.length);
    found.forEach((p, n) => {
      const token = n === 0 ? tokenizer.special.sep : tokenizer.number.get(language.vocabulary[n]);
      if (token !== undefined) exact[token] += p;
    });
    return exact;
  }

  function formulas(stages, { temperature, topK, topP }, tokenizer) {
    const first = stages[0][1], best = first.indexOf(first.reduce((a, b) => Math.max(a, b)));
    const rules = { "top-k": `the ${topK} best words`, nucleus: `the best words until they hold ${general(topP)}` };
    return stages.map(([name, after], n) => {
      const q = fixed(after[best], 4);
      if (n === 0) return `model: p(${tokenizer.tokens[best]}) = exp(z) / Σ exp(z′) = ${q}`;
      const before = stages[n - 1][1];
      if (name === "temperature") {
        if (temperature === 0) return "temperature 0: the best word alone, with probability 1";
        const power = 1 / temperature, shown = `p^(1/${general(temperature)}) / Σ p′^(1/${general(temperature)})`;
        const whole = sum(before.map((p) => p ** power));
        return `temperature: ${shown} = ${fixed(before[best] ** power, 4)} / ${fixed(whole, 4)} = ${q}`;
      }
      const kept = [...after.keys()].filter((token) => after[token] > 0), hold = fixed(sum(kept.map((t) => before[t])), 4);
      return `${name}: ${rules[name]}: ${kept.length} words hold ${hold}, so p = ${fixed(before[best], 4)} / ${hold} = ${q}`;
    });
  }

  function likelihoods(said, old, words, before, language, start) {
    const sums = (logs, at) => [logs.slice(0, at), logs.slice(at), logs].map((part) => part.filter((log) => log !== null))
      .map((part) => (part.length ? nats(sum(part), 3) : "–"));
    const rows = [["model", ...sums(said, old)]], notes = [];
    if (language) {
      const upTo = language.logs(language.numbers(words), start);
      const each = upTo.map((log, n) => (log === -Infinity ? -Infinity : log - (n ? upTo[n - 1] : 0)));
      rows.push(["language", ...sums(each, before)]);
      const impossible = each.indexOf(-Infinity);
      if (impossible >= 0) notes.push(note(`The language cannot go on with “${words[impossible]}”.`, "impossible"));
    }
    return [table(["", "prompt", "new", "both"], rows, "likelihoods"), ...notes];
  }

  return { Tokenizer, sampling, ended };
})();
if (typeof module !== "undefined") module.exports = Views;
