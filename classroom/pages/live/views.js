// Views of the demos that take typed text, as lists of pieces: the same as in classroom/demos.
"use strict";
if (typeof module !== "undefined") {
  globalThis.Engine = require("./engine.js");
  globalThis.Render = require("./render.js");
}
const Views = (() => {
  // \w and \s as Python reads them.
  const WORD = /[\p{L}\p{N}_]+(?:['’-][\p{L}\p{N}_]+)*|[^\p{L}\p{N}_\p{White_Space}\x1c-\x1f]/gu;
  // As the library of tokenizers reads them: marks, connectors and what is alphabetic are parts of
  // words, and of numbers only digits are, and those of Latin-1.
  const LETTER = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}²³¹¼-¾";
  const PIECE = new RegExp(`[${LETTER}]+(?:['’-][${LETTER}]+)*|[^${LETTER}\\p{White_Space}]`, "gu");
  const SHOWN = 12, { fixed } = Render, { sum } = Engine;
  const heading = (title) => ({ kind: "heading", title });
  const note = (text, name) => ({ kind: "note", text, name });
  const table = (head, rows, name, more = {}) => ({ kind: "table", head, rows, name, marked: -1, act: "", keys: [], ...more });
  const unknownNote = (unknown) => (unknown.length ? [note(`Not in the vocabulary: ${unknown.join(", ")}.`, "unknown")] : []);
  // Like Python's "z": what rounds to zero has no sign.
  const nats = (log, digits) => (log === -Infinity ? "-inf" : fixed(log, digits).replace(/^-(0\.0*)$/, "$1"));
  const general = (x) => String(Number(x.toPrecision(6)));

  // ---- words (classroom/demos/reading.py)

  class Tokenizer {
    constructor({ tokens, special }) {
      Object.assign(this, { tokens, special });
      this.number = new Map(tokens.map((name, n) => [name, n]).filter(([, n]) => !special.special.includes(n)));
    }
    encode(text) { return (text.match(PIECE) ?? []).map((word) => this.number.get(word) ?? this.special.unk); }
    /** The text in lower case where only that is known, and a hint for each word that is not known. */
    known(text) {
      const unknown = new Set(), fitted = text.replace(WORD, (word) => {
        if (this.number.has(word)) return word;
        if (this.number.has(word.toLowerCase())) return word.toLowerCase();
        unknown.add(word);
        return word;
      });
      const named = (word) => `“${[...word].slice(0, 40).join("")}”${this.near(word.toLowerCase())}`;
      const said = [...unknown].slice(0, 5).map(named);
      return [fitted, unknown.size > 5 ? [...said, `and ${unknown.size - 5} more`] : said];
    }
    near(word) {
      const letters = [...word].length, most = letters / 3;
      if (letters > 40) return "";
      const alike = [...this.number.keys()].filter((one) => Math.abs([...one].length - letters) <= most);
      const far = alike.map((one) => [one, lettersApart(word, one)]).filter(([, n]) => n <= most);
      const best = far.sort((a, b) => a[1] - b[1]).slice(0, 3).map(([one]) => one);
      return best.length ? ` (near: ${best.join(", ")})` : "";
    }
    /** The words of tokens as the language counts them. */
    spoken(tokens) {
      const { sep, special } = this.special, named = (t) => [t === sep ? "<end>" : this.tokens[t]];
      return tokens.flatMap((t) => (special.includes(t) ? named(t) : this.tokens[t].match(WORD)));
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
    const pieces = [...unknownNote(unknown), heading("The text"), { kind: "chips", chips, act: "" }];
    if (read.length < tokens.length) pieces.push(note(`The model reads the last ${read.length} of ${tokens.length} tokens.`, "cut"));
    const words = tokenizer.spoken(tokens.slice(1));
    if (ended(state, special)) pieces.push(note("The text has ended: undo a step, or change the prompt.", "ended"));
    else pieces.push(heading("The next word"), ...nextWord(state, tokens, words, { model, tokenizer, language, start }));
    pieces.push(heading("Log probability of the text, in nats"));
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
  /** Four digits, of which the first is not 0 where a power has made the number small. */
  const small = (x) => (x >= 0.001 ? fixed(x, 4) : x.toExponential(3).replace(/([+-])(\d)$/, "$10$2"));
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
    const rules = { "top-k": topK === 1 ? "the best word" : `the ${topK} best words`, nucleus: `the best words until they hold ${general(topP)}` };
    return stages.map(([name, after], n) => {
      const q = fixed(after[best], 4);
      if (n === 0) return `model: p(${tokenizer.tokens[best]}) = exp(z) / Σ exp(z′) = ${q}`;
      const before = stages[n - 1][1];
      if (name === "temperature") {
        if (temperature === 0) return "temperature 0: the best word alone, with probability 1";
        const power = 1 / temperature, shown = `p^(1/${general(temperature)}) / Σ p′^(1/${general(temperature)})`;
        const whole = sum(before.map((p) => p ** power));
        return `temperature: ${shown} = ${small(before[best] ** power)} / ${small(whole)} = ${q}`;
      }
      const kept = [...after.keys()].filter((token) => after[token] > 0), hold = fixed(sum(kept.map((t) => before[t])), 4);
      const words = kept.length === 1 ? "1 word holds" : `${kept.length} words hold`;
      return `${name}: ${rules[name]}: ${words} ${hold}, so p = ${fixed(before[best], 4)} / ${hold} = ${q}`;
    });
  }

  function likelihoods(said, old, words, before, language, start) {
    const sums = (logs, at) => [logs.slice(0, at), logs.slice(at), logs].map((part) => part.filter((log) => log !== null))
      .map((part) => (part.length ? nats(sum(part), 3) : "–"));
    const rows = [["model", ...sums(said, old)]], notes = [], left = said.filter((log) => log === null).length - 1;
    if (left > 0) notes.push(note(`The model's sums leave out the first ${left} tokens after the beginning, which it has no room for; ` +
      "the language's count all words.", "left-out"));
    if (language) {
      const upTo = language.logs(language.numbers(words), start);
      const each = upTo.map((log, n) => (log === -Infinity ? -Infinity : log - (n ? upTo[n - 1] : 0)));
      rows.push(["language", ...sums(each, before)]);
      const impossible = each.indexOf(-Infinity);
      if (impossible >= 0) notes.push(note(`The language cannot go on with “${words[impossible]}”.`, "impossible"));
    }
    return [table(["", "prompt", "new", "both"], rows, "likelihoods"), ...notes];
  }

  // ---- typed text for BERT (classroom/demos/reading.py, masking.py, guesses.py, statistics.py)

  const DRAWS = 1000, DRAWN = 40;
  const cutNote = (all, read) => (all > read
    ? [note(`The text has ${all.toLocaleString("en-US")} tokens; shown are the first ${read}.`, "cut")] : []);
  const problem = (name, text) => ({ name, pieces: [{ kind: "problem", text }] });

  /** The text as tokens between [CLS] and [SEP], as far as there is room; and how many it has.
   *  For a GPT it is only opened by [SEP]. */
  function framed(text, tokenizer, longest, opened = false) {
    const every = tokenizer.encode(text), { cls, sep } = tokenizer.special;
    const some = every.slice(0, longest - (opened ? 1 : 2));
    return { all: every.length, read: some.length, tokens: opened ? [sep, ...some] : [cls, ...some, sep] };
  }

  /** What is hidden of a text, after some positions were clicked. */
  function hidden(tokens, setting, { special, tokens: names }) {
    const { seen, asked } = Engine.corrupt(tokens, special, names.length, setting, 0, setting.draw);
    const ordinary = (n) => n < tokens.length && !special.special.includes(tokens[n]);
    const clicked = new Set(setting.clicked.filter(ordinary)), before = new Set(asked);
    for (const n of clicked) seen[n] = before.has(n) ? tokens[n] : special.mask;
    return { seen, asked: tokens.map((_, n) => n).filter((n) => before.has(n) !== clicked.has(n)) };
  }

  /** state: {text, rate, mask, random, draw, clicked}; place: {model, tokenizer, language, start}. */
  function masking(state, { model, tokenizer, language, start }) {
    const { special } = tokenizer, [text, unknown] = tokenizer.known(state.text), longest = model.config.context;
    const { all, read, tokens } = framed(text, tokenizer, longest);
    const words = tokens.filter((token) => !special.special.includes(token)).length;
    const why = unknown.length ? `not in the vocabulary: ${unknown.join(", ")}` : "write some words";
    if (!words) return problem("masking", `There is nothing to hide: ${why}.`);
    const { seen, asked } = hidden(tokens, state, tokenizer), names = tokens.map((token) => tokenizer.tokens[token]);
    const fate = (n) => (seen[n] === special.mask ? ["mask", "masked"] : seen[n] === tokens[n] ? ["kept", "kept"] : ["random", "random"]);
    const chips = seen.map((token, n) => {
      const [kind, caption] = asked.includes(n) ? fate(n) : [special.special.includes(tokens[n]) ? "special" : "plain", ""];
      return { token: tokenizer.tokens[token], kind, caption };
    });
    const told = asked.map((n) => `${n}: ${names[n]} (${chips[n].caption})`).join("; ");
    const said = `${asked.length} of ${tokens.length} tokens, of which ${words} are words. ${told || "None this time."}`;
    return { name: "masking", pieces: [...unknownNote(unknown), ...cutNote(all, read),
      heading("What the model sees"), { kind: "chips", chips, act: "hide" },
      heading("What it must predict"), note(said, "answers"),
      heading("What is likely there"), ...guesses(tokens, seen, asked, state, { model, tokenizer, language, start }),
      { kind: "beside", pieces: [everybody(names)] },
      heading("Over 1,000 draws"), statistics(tokens, state, tokenizer)] };
  }

  /** The mask of a model that reads both ways: every position attends to every one. */
  function everybody(names) {
    const shown = names.slice(0, DRAWN), title = "Who may attend to whom";
    return { kind: "grid", levels: shown.map(() => shown.map(() => 1)), across: shown, down: shown, title,
      said: `${title}: a filled square says that the row may attend to the column.` };
  }

  /** For each asked word its probability and the likeliest words, by the model and exactly. */
  function guesses(tokens, seen, asked, setting, { model, tokenizer, language, start }) {
    const scores = model.read(seen), names = tokenizer.tokens, given = asked.map((n) => Engine.softmax(scores[n]));
    const exact = language ? fair(tokens, seen, asked, setting, tokenizer, language, start) : null;
    const nats = [], rows = asked.map((n, i) => {
      const row = [`${n}: ${names[tokens[n]]}`, { share: given[i][tokens[n]] }, best(given[i], names)];
      if (!exact) return row;
      if (!exact[i]) return [...row, { share: null }, "the language cannot say this"];
      const number = language.number.get(names[tokens[n]]), right = number === undefined ? 0 : exact[i][number];
      if (right) nats.push(inNats(given[i], tokens[n], exact[i], right, language, tokenizer));
      return [...row, { share: right }, best(exact[i], language.vocabulary)];
    });
    const head = ["word", "p by the model", "the model's guesses", ...(exact ? ["p exact", "the most probable"] : [])];
    const pieces = [table(head, rows.slice(0, SHOWN), "guesses")];
    if (rows.length > SHOWN) pieces.push(note(`The first ${SHOWN} of ${rows.length} predicted words.`, "rest"));
    if (nats.length) {
      const means = [0, 1, 2].map((k) => fixed(sum(nats.map((one) => one[k])) / nats.length, 4));
      pieces.push(table(["nats per word, model", "exact", "KL(exact ‖ model)"], [means], "nats"));
    }
    return pieces;
  }

  /** The likeliest names with their probabilities; of equal ones the first come first. */
  function best(p, names) {
    const rounded = Array.from(p, (q) => Math.round(q * 1e9));
    const order = [...rounded.keys()].sort((a, b) => rounded[b] - rounded[a]).slice(0, 3);
    return order.map((n) => `${names[n]} ${fixed(p[n], 3)}`).join(", ");
  }

  function inNats(given, token, exact, right, language, tokenizer) {
    const byModel = (n) => given[n === 0 ? tokenizer.special.sep : tokenizer.number.get(language.vocabulary[n])];
    const divergence = sum(exact.map((p, n) => (p > 0 ? p * (Math.log(p) - Math.log(byModel(n))) : 0)));
    return [-Math.log(given[token]), -Math.log(right), divergence];
  }

  /** The distributions of the asked words for one who knows which words were asked, but not which
   *  of them were swapped or kept, nor whether another word was swapped too. */
  function fair(tokens, seen, asked, { rate, mask, random }, tokenizer, language, start) {
    const { special, tokens: names } = tokenizer, keep = Math.max(0, 1 - mask - random), others = language.replaces.filter(Boolean).length;
    const inside = tokens.slice(1, -1).map((_, n) => n + 1), shown = inside.map((n) => language.number.get(names[seen[n]]));
    const words = [], kept = [], noise = [];
    inside.forEach((n, t) => {
      const number = shown[t], free = number !== undefined && seen[n] !== special.mask;
      if (asked.includes(n) && !(free && language.replaces[number])) words.push(Engine.HIDDEN), kept.push(0), noise.push(1);
      else if (asked.includes(n)) words.push(number), kept.push(keep), noise.push(random / others);
      else if (free && random && rate) words.push(number), kept.push(1 - rate + rate * keep), noise.push((rate * random) / others);
      else words.push(number ?? Engine.UNKNOWN), kept.push(1), noise.push(0);
    });
    const found = language.conditional(words, kept, noise, asked.map((n) => n - 1), start);
    return found.every(Boolean) ? found : found.map(() => null);
  }

  let chances = { length: 0 };
  /** What decides which words are hidden and what becomes of them, for each of 1,000 draws.  A
   *  position's number does not depend on how many positions there are. */
  function drawsOf(length) {
    if (chances.length < length) {
      const most = Math.max(length, 40);
      const all = (purpose) => Array.from({ length: DRAWS }, (_, row) => Engine.uniform(1, 0, purpose, most, row));
      chances = { length: most, all: [all("hide"), all("fate"), new Map()] };
    }
    return chances.all;
  }

  /** Shares over 1,000 draws: as set, as found, and two standard errors of what is found. */
  function statistics(tokens, { rate, mask, random }, { special, tokens: names }) {
    const ordinary = [...names.keys()].filter((w) => !special.special.includes(w)), T = tokens.length;
    const places = tokens.flatMap((w, t) => (special.special.includes(w) ? [] : [t])), [hide, fate, words] = drawsOf(T);
    const word = (row) => words.get(row) ?? words.set(row, Engine.integers(ordinary.length, 1, 0, "word", Math.max(T, 40), row)).get(row);
    const counts = hide.map((numbers, row) => {
      const asked = places.filter((t) => numbers[t] < rate), masked = asked.filter((t) => fate[row][t] < mask).length;
      const swapped = asked.filter((t) => fate[row][t] >= mask && fate[row][t] < mask + random &&
        ordinary[word(row)[t]] !== tokens[t]).length;
      return [places.length, asked.length, masked, swapped, asked.length - masked - swapped];
    });
    // A random word is now and then the word itself.
    const again = random / ordinary.length, keep = Math.max(0, 1 - mask - random);
    const rows = [["predicted", rate, 1, 0], ["of these [MASK]", mask, 2, 1],
      ["of these another word", random - again, 3, 1], ["of these the word itself", keep + again, 4, 1]];
    return table(["share", "set", "found", "2 standard errors"], rows.map(([name, asked, part, whole]) => {
      const [found, error] = ratio(counts.map((one) => one[part]), counts.map((one) => one[whole]));
      return [name, fixed(asked, 4), fixed(found, 4), `± ${fixed(error, 4)}`];
    }), "statistics");
  }

  /** The share of a whole over all rows, and two standard errors of it: rows are independent. */
  function ratio(part, whole) {
    const total = sum(whole), share = total ? sum(part) / total : 0;
    return [share, total ? (2 * Math.sqrt(sum(part.map((n, row) => (n - share * whole[row]) ** 2)))) / total : 0];
  }

  // ---- attention (classroom/demos/attention.py)

  const LONGEST = 32;

  /** state: {text, layer, head, every, selected}; head 0 is the mean of all. */
  function attention(state, { model, tokenizer }) {
    const [text, unknown] = tokenizer.known(state.text), { layer, head } = state, { layers, heads, context } = model.config;
    if (!tokenizer.encode(text).length) return problem("attention", "There is nothing to look at: write some words.");
    const longest = Math.min(LONGEST, context), { all, read, tokens } = framed(text, tokenizer, longest, model.config.first);
    const names = tokens.map((token) => tokenizer.tokens[token]);
    model.read(tokens);
    // What a position may not attend to gets no share.
    const each = model.layers[layer - 1].shares.map((rows) => tokens.map((_, q) => tokens.map((_, k) => rows[q][k] ?? 0)));
    const mean = () => tokens.map((_, q) => tokens.map((_, k) => sum(each.map((rows) => rows[q][k])) / heads));
    const shown = head === 0 ? mean() : each[head - 1], labelled = names.map((name, n) => `${n} ${name}`);
    const who = head === 0 ? "the mean of all heads" : `head ${head} of ${heads}`, top = Math.max(...shown.flat());
    const rows = shown.map((row, n) => {
      const most = row.indexOf(Math.max(...row));
      return [labelled[n], labelled[most], fixed(row[most], 3)];
    });
    const map = (shares, title, more) => ({ kind: "shades", shares, across: names, down: names, title, selected: -1, act: "", ...more });
    const selected = state.selected < names.length ? state.selected : -1;
    const small = { kind: "beside", pieces: each.map((shares, n) => map(shares, `head ${n + 1}`, { small: true })) };
    return { name: "attention", pieces: [...unknownNote(unknown), ...cutNote(all, read), heading(`Layer ${layer} of ${layers}, ${who}`),
      note("Each row shares out 1 among the positions that it attends to; the fullest colour is " +
        `${fixed(top, 3)}. Point at a row: the bars under the words are its shares.`, "note"),
      map(shown, "Attention", { selected, act: "select" }),
      table(["position", "attends most to", "share"], rows, "most"),
      ...(state.every ? [heading(`All heads of layer ${layer}`), small] : [])] };
  }

  return { Tokenizer, sampling, ended, masking, attention };
})();
if (typeof module !== "undefined") module.exports = Views;
