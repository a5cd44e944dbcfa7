// What the demos compute: models (forward only), the exact distributions of the language, chance,
// the filters of sampling, and what BERT hides.  Each part mirrors the file of labkit it names.
"use strict";
const Engine = (() => {
  // ---- numbers

  const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
  const largest = (numbers) => numbers.reduce((a, b) => Math.max(a, b), -Infinity);

  function softmax(scores) {
    const top = largest(scores), e = Float64Array.from(scores, (s) => Math.exp(s - top)), whole = sum(e);
    return e.map((v) => v / whole);
  }

  /** The error function by its series, all of whose terms are positive. */
  function erf(x) {
    const z = Math.abs(x);
    if (z > 6) return Math.sign(x);
    let term = z, all = z;
    for (let n = 1; term > 1e-17 * all; n++) all += term *= (2 * z * z) / (2 * n + 1);
    return Math.sign(x) * (2 / Math.sqrt(Math.PI)) * Math.exp(-z * z) * all;
  }
  const ACTIVATIONS = {
    gelu: (x) => 0.5 * x * (1 + erf(x / Math.SQRT2)),
    gelu_tanh: (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3))),
  };

  const POWERS = Float64Array.from({ length: 31 }, (_, power) => 2 ** (power - 15));

  /** Weights of 16 or 32 bits from base64, as numbers of 32 bits. */
  function unpacked(text, bits) {
    const letters = atob(text), raw = new Uint8Array(letters.length);
    for (let i = 0; i < raw.length; i++) raw[i] = letters.charCodeAt(i);
    if (bits === 32) return new Float32Array(raw.buffer);
    const numbers = new Float32Array(raw.length / 2);
    for (let i = 0; i < numbers.length; i++) {
      const half = raw[2 * i] | (raw[2 * i + 1] << 8), power = (half >> 10) & 31, rest = half & 1023;
      const size = power === 0 ? rest * 2 ** -24 : power === 31 ? (rest ? NaN : Infinity)
        : (1 + rest / 1024) * POWERS[power];
      numbers[i] = half >> 15 ? -size : size;
    }
    return numbers;
  }

  // ---- layers (labkit/blocks.py, labkit/attention.py): states are T rows of D numbers in a row

  /** x W' + b, for two outputs and two products at a time: widths are even. */
  function linear(x, weight, bias) {
    const [out, inner] = weight.shape, rows = x.length / inner, w = weight.data, y = new Float64Array(rows * out);
    for (let o = 0; o < out; o += 2) {
      const next = Math.min(o + 1, out - 1), start = bias ? bias.data[o] : 0, start2 = bias ? bias.data[next] : 0;
      for (let t = 0; t < rows; t++) {
        let a = start, b = 0, c = start2, d = 0, p = t * inner, q = o * inner, r = next * inner;
        for (const end = p + inner; p < end; p += 2, q += 2, r += 2) {
          const one = x[p], two = x[p + 1];
          a += one * w[q];
          b += two * w[q + 1];
          c += one * w[r];
          d += two * w[r + 1];
        }
        y[t * out + o] = a + b;
        y[t * out + next] = c + d;
      }
    }
    return y;
  }

  function norm(x, weight, bias, eps) {
    const D = weight.data.length, y = new Float64Array(x.length);
    for (let row = 0; row < x.length; row += D) {
      let mean = 0, square = 0;
      for (let i = 0; i < D; i++) mean += x[row + i] / D;
      for (let i = 0; i < D; i++) square += (x[row + i] - mean) ** 2 / D;
      const scale = 1 / Math.sqrt(square + eps);
      for (let i = 0; i < D; i++) y[row + i] = (x[row + i] - mean) * scale * weight.data[i] + bias.data[i];
    }
    return y;
  }

  const add = (x, y) => x.map((v, i) => v + y[i]);

  /** Queries at positions `past` on; `known` holds the keys and values of all positions, and gets
   *  those of the new ones.  A position attends to `seen(position)` keys from the first on. */
  function attend(qkv, D, heads, past, known, seen) {
    const E = D / heads, rows = qkv.length / (3 * D), y = new Float64Array(rows * D);
    for (let t = 0; t < rows; t++) {
      known.keys.set(qkv.subarray((3 * t + 1) * D, (3 * t + 2) * D), (past + t) * D);
      known.values.set(qkv.subarray((3 * t + 2) * D, (3 * t + 3) * D), (past + t) * D);
    }
    for (let h = 0; h < heads; h++) {
      for (let t = 0; t < rows; t++) {
        const scores = new Float64Array(seen(past + t));
        for (let k = 0; k < scores.length; k++) {
          for (let e = h * E; e < (h + 1) * E; e++) scores[k] += qkv[3 * t * D + e] * known.keys[k * D + e];
          scores[k] /= Math.sqrt(E);
        }
        const shares = softmax(scores);
        known.shares[h][past + t] = shares;
        for (let k = 0; k < shares.length; k++) {
          for (let e = h * E; e < (h + 1) * E; e++) y[t * D + e] += shares[k] * known.values[k * D + e];
        }
      }
    }
    return y;
  }

  /** A block; GPT normalises before each part, BERT after it. */
  function block(model, w, x, past, known, seen) {
    const { width, heads, eps, activation, first } = model.config;
    const attention = (y) => linear(attend(linear(y, w.qkv, w.qkv_bias), width, heads, past, known, seen), w.out, w.out_bias);
    const forward = (y) => linear(linear(y, w.up, w.up_bias).map(ACTIVATIONS[activation]), w.down, w.down_bias);
    const before = (y) => norm(y, w.norm1, w.norm1_bias, eps), after = (y) => norm(y, w.norm2, w.norm2_bias, eps);
    if (first) {
      x = add(x, attention(before(x)));
      return add(x, forward(after(x)));
    }
    x = before(add(x, attention(x)));
    return after(add(x, forward(x)));
  }

  // ---- models (labkit/models/gpt.py, bert.py)

  /** A model from what Python wrote: {config, names, bits, blob}; names are "block.weight". */
  class Model {
    constructor({ config, names, bits, blob }) {
      const all = unpacked(blob, bits);
      let from = 0;
      Object.assign(this, { config, weights: {}, tokens: [], scores: [] });
      for (const [name, shape] of names) {
        const [group, part] = name.split("."), size = shape.reduce((a, b) => a * b, 1);
        (this.weights[group] ??= {})[part] = { shape, data: all.subarray(from, (from += size)) };
      }
    }
    memory(positions) {
      const { width, layers, heads } = this.config, size = positions * width;
      return Array.from({ length: layers }, () => ({ keys: new Float64Array(size), values: new Float64Array(size),
        shares: Array.from({ length: heads }, () => []) }));
    }
    embedded(tokens, past) {
      const { width } = this.config, { token, position, segment } = this.weights.embedding;
      return Float64Array.from({ length: tokens.length * width }, (_, i) => {
        const t = Math.floor(i / width), d = i % width;
        return token.data[tokens[t] * width + d] + position.data[(past + t) * width + d] + (segment ? segment.data[d] : 0);
      });
    }
    rows(scores) {
      const V = this.config.vocabulary;
      return Array.from({ length: scores.length / V }, (_, t) => scores.subarray(t * V, (t + 1) * V));
    }
  }

  /** `read(tokens)` gives the scores of the next word after each token.  Keys and values are kept:
   *  the beginning that a text shares with the one before is not read again. */
  class GPT extends Model {
    read(tokens) {
      let past = 0;
      while (past < tokens.length && tokens[past] === this.tokens[past]) past++;
      this.layers ??= this.memory(this.config.context);
      this.scores.length = past;
      this.tokens = [...tokens];
      if (past === tokens.length) return this.scores;
      let x = this.embedded(tokens.slice(past), past);
      this.layers.forEach((known, n) => {
        known.shares.forEach((rows) => { rows.length = past; });
        x = block(this, this.weights[n], x, past, known, (t) => t + 1);
      });
      const { norm: scale, norm_bias: shift } = this.weights.head;
      this.scores.push(...this.rows(linear(norm(x, scale, shift, this.config.eps), this.weights.embedding.token)));
      return this.scores;
    }
  }

  /** `read(tokens)` gives the scores of every word at each position. */
  class BERT extends Model {
    read(tokens) {
      const { eps, activation } = this.config, { embedding, head } = this.weights;
      let x = norm(this.embedded(tokens, 0), embedding.norm, embedding.norm_bias, eps);
      this.layers = this.memory(tokens.length);
      this.layers.forEach((known, n) => { x = block(this, this.weights[n], x, 0, known, () => tokens.length); });
      x = linear(x, head.dense, head.dense_bias).map(ACTIVATIONS[activation]);
      return this.rows(linear(norm(x, head.norm, head.norm_bias, eps), embedding.token, head.bias));
    }
  }

  // ---- the language (labkit/world/sums.py, hidden.py, noisy.py, memory.py), in dense arrays

  const HIDDEN = -1, UNKNOWN = -2;

  /** What documents of some topics remember: facts and urns, by the numbers of their words. */
  class Memory {
    constructor(written) { Object.assign(this, written); }

    counts(words) {
      const counts = new Float64Array(this.familyOf.length), drawn = new Float64Array(this.alpha.length);
      for (const v of words.map((w) => (w >= 0 ? this.valueOf[w] : -1)).filter((v) => v >= 0)) {
        counts[v] += 1;
        drawn[this.familyOf[v]] += 1;
      }
      return { counts, drawn };
    }

    /** Log of the chance of these draws in a class and a style, in any order (a Pólya urn). */
    logWeight({ counts, drawn }, base) {
      let log = 0;
      const different = new Map();
      counts.forEach((count, v) => {
        const family = this.familyOf[v], alpha = this.alpha[family];
        if (!count) return;
        different.set(family, (different.get(family) ?? 0) + 1);
        if (alpha === 0) log += Math.log(base[v]);
        else for (let n = 0; n < count; n++) log += Math.log(alpha * base[v] + n);
      });
      drawn.forEach((count, family) => {
        const alpha = this.alpha[family];
        // With α = 0 the first draw is that of the whole document: a fact.
        if (alpha === 0 && different.get(family) > 1) log = -Infinity;
        for (let n = 0; alpha > 0 && n < count; n++) log -= Math.log(alpha + n);
      });
      return log;
    }

    /** The chance of what is remembered of the words in each class. */
    chances(words) {
      const seen = this.counts(words);
      return this.base.map((styles) => sum(styles.map((base) => Math.exp(this.logWeight(seen, base)))) / styles.length);
    }

    /** The chances of the next draw of every family in each class, given the seen words. */
    nextDraws(words) {
      const seen = this.counts(words), { counts, drawn } = seen;
      return this.base.map((styles) => {
        const weights = styles.map((base) => Math.exp(this.logWeight(seen, base))), whole = sum(weights) || 1;
        return this.familyOf.map((family, v) => {
          const base = sum(styles.map((one, k) => (weights[k] / whole) * one[v])), alpha = this.alpha[family];
          return drawn[family] ? (counts[v] + alpha * base) / (drawn[family] + alpha) : base;
        });
      });
    }
  }

  class Language {
    constructor(written) {
      Object.assign(this, written);
      this.size = this.vocabulary.length;
      this.memories = this.memories.map((one) => new Memory(one));
      this.number = new Map(this.vocabulary.map((word, n) => [word, n]));
      // The words that a masked one may be replaced by: all that no document remembers.
      this.replaces = this.vocabulary.map((_, n) => n > 0 && this.memories.every(({ valueOf }) => valueOf[n] < 0));
      // emits[c][w * states + s]: the probability that state s emits word w in class c.
      this.emits = this.prior.map((_, c) => {
        const table = new Float64Array(this.size * this.states);
        this.emission.forEach((n, s) => this.emissions[n].forEach(([w, p, classes]) => {
          if ((classes >> c) & 1) table[w * this.states + s] += p;
        }));
        return table;
      });
    }

    numbers(words) { return words.map((word) => this.number.get(word) ?? UNKNOWN); }

    /** The chance of what each group of topics remembers of the words, in each class. */
    remembered(words) { return this.memories.map((one) => one.chances(words)); }

    step(from, back) {
      const [source, target, weight] = this.arcs, out = new Float64Array(this.states);
      const [a, z] = back ? [target, source] : [source, target];
      for (let n = 0; n < weight.length; n++) out[z[n]] += from[a[n]] * weight[n];
      return out;
    }

    entered(start) {
      const now = new Float64Array(this.states);
      this.begin[start].forEach(([s, p]) => { now[s] = p; });
      return now;
    }

    /** For each class, the sums up to each position, scaled to 1, and the logs of the scales. */
    forward(words, start) {
      return this.emits.map((emits) => {
        let now = this.entered(start), log = 0;
        return words.map((w, t) => {
          if (t) now = this.step(now);
          if (w !== HIDDEN) now = now.map((v, s) => (w === UNKNOWN ? 0 : v * emits[w * this.states + s]));
          const total = sum(now);
          if (total > 0) now = now.map((v) => v / total);
          log += Math.log(total);
          return { now, log };
        });
      });
    }

    /** log p(words up to each position). */
    logs(words, start) {
      const passes = this.forward(words, start);
      return words.map((_, t) => {
        const chances = this.remembered(words.slice(0, t + 1)), top = largest(passes.map((steps) => steps[t].log));
        if (!(top > -Infinity)) return -Infinity;
        const each = passes.map((steps, c) => this.prior[c] * Math.exp(steps[t].log - top) *
          sum(steps[t].now.map((p, s) => p * chances[this.group[s]][c])));
        return top + Math.log(sum(each));
      });
    }

    /** What the states would emit: weights[c][s] with the chances of the next draws. */
    spread(weights, words) {
      const draws = this.memories.map((one) => one.nextDraws(words));
      const chances = this.remembered(words), out = new Float64Array(this.size);
      weights.forEach((column, c) => column.forEach((weight, s) => {
        const group = this.group[s], mass = weight * this.prior[c] * chances[group][c];
        if (!mass) return;
        for (const [w, p, classes, drawn] of this.emissions[this.emission[s]]) {
          const value = this.memories[group].valueOf[w];
          if ((classes >> c) & 1) out[w] += mass * p * (drawn && value >= 0 ? draws[group][c][value] : 1);
        }
      }));
      return out;
    }

    /** The distribution of the next word; null where the language cannot begin like this. */
    next(words, start) {
      const last = this.forward([...words, HIDDEN], start).map((steps) => steps.at(-1));
      const top = largest(last.map(({ log }) => log));
      if (!(top > -Infinity)) return null;
      return normalised(this.spread(last.map(({ now, log }) => now.map((p) => p * Math.exp(log - top))), words));
    }

    /** The distributions at the wanted positions when a word that is shown may be wrong: a state
     *  that emits it with probability p counts keep p + noise.  A word seen for certain has
     *  keep 1 and noise 0, a hidden one (-1) keep 0 and noise 1.  Remembered words are never wrong.
     *  null where no text of the language has the words that are seen. */
    conditional(words, keep, noise, wanted, start) {
      noise = noise.map((p, t) => (this.memories.some(({ valueOf }) => valueOf[words[t]] >= 0) ? 0 : p));
      const passes = this.emits.map((emits) => this.bothWays(words, keep, noise, start, emits));
      return wanted.map((t) => {
        const top = largest(passes.map(({ scale }) => scale[t]));
        if (!(top > -Infinity)) return null;
        const weights = passes.map(({ before, after, scale }) =>
          before[t].map((p, s) => p * after[t][s] * Math.exp(scale[t] - top)));
        const out = this.spread(weights, words);
        return normalised(out.map((p, w) => p * (noise[t] + (w === words[t] ? keep[t] : 0))));
      });
    }

    /** The sums before and after each position, without what is shown there, and their scales. */
    bothWays(words, keep, noise, start, emits) {
      const before = [], after = [], scale = [];
      const shown = (t, column) => column.map((v, s) =>
        v && v * (noise[t] + (words[t] >= 0 ? keep[t] * emits[words[t] * this.states + s] : 0)));
      let now = this.entered(start), log = 0;
      words.forEach((_, t) => {
        before.push(now);
        scale.push(log);
        const here = shown(t, now), total = sum(here);
        log += Math.log(total);
        now = this.step(total > 0 ? here.map((v) => v / total) : here);
      });
      let back = new Float64Array(this.states).fill(1);
      log = 0;
      for (let t = words.length - 1; t >= 0; t--) {
        after[t] = back;
        scale[t] += log;
        back = this.step(shown(t, back), true);
        const top = largest(back);
        log += Math.log(top);
        if (top > 0) back = back.map((v) => v / top);
      }
      return { before, after, scale };
    }
  }

  function normalised(weights) {
    const whole = sum(weights);
    return whole > 0 ? weights.map((w) => w / whole) : null;
  }

  // ---- chance (labkit/chance.py): a number is a function of seed, step, purpose, row, position

  const ONES = (1n << 64n) - 1n, GOLDEN = 0x9e3779b97f4a7c15n;
  const IV = ["6a09e667f3bcc908", "bb67ae8584caa73b", "3c6ef372fe94f82b", "a54ff53a5f1d36f1",
    "510e527fade682d1", "9b05688c2b3e6c1f", "1f83d9abfb41bd6b", "5be0cd19137e2179"].map((digits) => BigInt(`0x${digits}`));
  const SIGMA = ["0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8",
    "905724afe1bc683d", "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a",
    "6fe9b308c2d714a5", "a2847615fb9e3cd0", "0123456789abcdef", "ea489fd61c02b753"];
  const turn = (x, by) => ((x >> by) | (x << (64n - by))) & ONES;

  /** BLAKE2b with a digest of 8 bytes, of a text of at most 128 letters (RFC 7693). */
  function digest(text) {
    const m = Array.from({ length: 16 }, (_, word) => {
      let all = 0n;
      for (let i = 7; i >= 0; i--) all = (all << 8n) | BigInt(text.charCodeAt(8 * word + i) || 0);
      return all;
    });
    const h = [...IV], v = [...h, ...IV];
    v[0] = h[0] ^= 0x01010008n;
    v[12] ^= BigInt(text.length);
    v[14] ^= ONES;
    for (const row of SIGMA) {
      for (let g = 0; g < 8; g++) {
        // Four columns, then four diagonals.
        const [a, b, c, d] = [0, 1, 2, 3].map((n) => 4 * n + ((g + (g < 4 ? 0 : n)) % 4));
        for (const [n, first, second] of [[2 * g, 32n, 24n], [2 * g + 1, 16n, 63n]]) {
          v[a] = (v[a] + v[b] + m[parseInt(row[n], 16)]) & ONES;
          v[d] = turn(v[d] ^ v[a], first);
          v[c] = (v[c] + v[d]) & ONES;
          v[b] = turn(v[b] ^ v[c], second);
        }
      }
    }
    return h[0] ^ v[0] ^ v[8];
  }

  function mix(x) {
    x = ((x ^ (x >> 30n)) * 0xbf58476d1ce4e5b9n) & ONES;
    x = ((x ^ (x >> 27n)) * 0x94d049bb133111ebn) & ONES;
    return x ^ (x >> 31n);
  }

  const keys = new Map();
  /** The digest of a seed, a step and a purpose, which all rows share. */
  function keyOf(seed, step, purpose) {
    const text = `(${seed}, ${step}, '${purpose}')`;
    if (!keys.has(text)) keys.set(text, digest(text));
    return keys.get(text);
  }

  /** 32 bits for each position of a row, as signed numbers. */
  function bits(seed, step, purpose, positions, row = 0) {
    const start = mix((keyOf(seed, step, purpose) + BigInt(row) * GOLDEN) & ONES);
    const found = [];
    // Each mix gives 64 bits, for two positions.
    for (let t = 0; t < positions; t += 2) {
      const both = mix((start + BigInt((t >> 1) + 1) * GOLDEN) & ONES);
      found.push(Number(BigInt.asIntN(32, both)), Number(BigInt.asIntN(32, both >> 32n)));
    }
    return found.slice(0, positions);
  }
  const uniform = (...asked) => bits(...asked).map((b) => (b >> 8) * 2 ** -24 + 0.5);
  const integers = (high, ...asked) => bits(...asked).map((b) => Math.floor(((b + 2 ** 31) * high) / 2 ** 32));

  // ---- sampling (labkit/sampling.py)

  /** The distribution as the model gave it and after each filter that changes something. */
  function stages(scores, { temperature, topK, topP }) {
    let now = Float64Array.from(scores);
    const made = [["model", now]], best = now.indexOf(largest(now));
    const falling = () => Float64Array.from(now).sort().reverse();
    const keep = (least) => now.map((s) => (s < least ? -Infinity : s));
    if (temperature !== 1) {
      now = temperature === 0 ? now.map((_, w) => (w === best ? 0 : -Infinity)) : now.map((s) => s / temperature);
      made.push(["temperature", now]);
    }
    if (topK) made.push(["top-k", (now = keep(falling()[topK - 1]))]);
    if (topP !== 1) {
      const sorted = falling(), shares = softmax(sorted);
      // A word stays while those above it hold less than p; the best always does.
      let above = 0, kept = 0;
      while (kept < sorted.length && (kept === 0 || above < topP)) above += shares[kept++];
      made.push(["nucleus", (now = keep(sorted[kept - 1]))]);
    }
    return made.map(([name, s]) => [name, softmax(s)]);
  }

  /** The first word whose cumulative probability passes a number in [0, 1). */
  function draw(distribution, number) {
    let all = 0;
    for (let w = 0; w < distribution.length; w++) if ((all += distribution[w]) > number) return w;
    return distribution.findLastIndex((p) => p > 0);
  }

  /** The next word of a text, however long: of one beyond the positions of the model the end is
   *  read, and the seed moves on in place of the position. */
  function nextWord(model, tokens, settings, seed) {
    const read = tokens.slice(-model.config.context), dropped = tokens.length - read.length;
    const found = stages(model.read(read).at(-1), settings), last = found.at(-1)[1];
    const number = uniform(seed + 1000003 * dropped, 0, "word", read.length + 1).at(-1);
    return { read, stages: found, number, drawn: settings.temperature === 0 ? last.indexOf(1) : draw(last, number) };
  }

  // ---- what BERT hides (labkit/masking.py)

  /** Which of the tokens are predicted, and what is shown in their positions. */
  function corrupt(tokens, special, size, { rate, mask, random }, seed, step, row = 0) {
    const T = tokens.length, hide = uniform(seed, step, "hide", T, row), fate = uniform(seed, step, "fate", T, row);
    const ordinary = Array.from({ length: size }, (_, w) => w).filter((w) => !special.special.includes(w));
    const word = random > 0 ? integers(ordinary.length, seed, step, "word", T, row) : [];
    const asked = tokens.flatMap((w, t) => (hide[t] < rate && !special.special.includes(w) ? [t] : []));
    const seen = [...tokens];
    for (const t of asked) {
      if (fate[t] < mask) seen[t] = special.mask;
      else if (fate[t] < mask + random) seen[t] = ordinary[word[t]];
    }
    return { seen, asked };
  }

  return { GPT, BERT, Language, HIDDEN, UNKNOWN, softmax, nextWord, uniform, integers, corrupt, sum };
})();
if (typeof module !== "undefined") module.exports = Engine;
