// The page: each picture is a function of the values of the controls and of the clicks.
"use strict";
const find = (query, within = document) => within.querySelector(query);
const LONGEST = 2000;
/** The first letters of a text, without half of a surrogate pair at the end. */
const cut = (text) => text.slice(0, LONGEST).replace(/[\ud800-\udbff]$/, "");

/** The values of the controls of a demo. */
function values(demo) {
  const found = {};
  for (const field of demo.querySelectorAll("[name]")) {
    if (field.type === "checkbox") found[field.name] = field.checked;
    else found[field.name] = ["range", "hidden"].includes(field.type) ? Number(field.value) : cut(field.value);
    const shown = find(".shown", field.parentElement);
    if (!shown) continue;
    shown.textContent = field.dataset.said ? JSON.parse(field.dataset.said)[field.value] : field.value;
    field.setAttribute("aria-valuetext", shown.textContent);
  }
  return found;
}

// What can be clicked, by what a click does, with the text for a screen reader.
const CLICKS = {
  write: ["[data-key] td:first-child bdi", "write this word"],
  hide: ['[data-position]:not([data-kind="special"])', "hide or show this word"],
  select: ["span[data-row]", "see what this word attends to"],
};
const keyOf = (word) => {
  const { key, position, row } = word?.closest("[data-key], [data-position], [data-row]")?.dataset ?? {};
  return key ?? position ?? row;
};

/** Focus a word, which Tab then reaches instead of the first one. */
function focus(word) {
  for (const other of word.closest("[data-act]").querySelectorAll('[role="button"]')) other.tabIndex = -1;
  word.tabIndex = 0;
  word.focus({ preventScroll: true });
}

/** Draw a view; what can be clicked is a button for the keyboard too.  `data-only` names the
 *  pieces that a short demo shows. */
function put(demo, view, selected = -1) {
  const old = document.activeElement, focused = demo.contains(old) ? [old.closest("[data-act]")?.dataset.act, keyOf(old)] : [];
  const only = demo.dataset.only?.split(" ");
  const inside = find(".view", demo).contains(old);
  const pieces = only ? view.pieces.filter(({ kind, name }) => only.includes(name ?? kind)) : view.pieces;
  const scrolled = find(".view .labkit-view", demo)?.scrollLeft ?? 0;
  find(".view", demo).innerHTML = Render.html({ ...view, pieces });
  for (const [act, [query, does]] of Object.entries(CLICKS)) {
    for (const word of demo.querySelectorAll(`.view [data-act="${act}"] :is(${query})`)) {
      const key = keyOf(word), pressed = act === "hide" ? word.dataset.kind !== "plain" : Number(key) === selected;
      // Tab reaches the first word, and the arrow keys the others.
      word.tabIndex = find('[role="button"]', word.closest("[data-act]")) ? -1 : 0;
      word.setAttribute("role", "button");
      word.setAttribute("aria-description", does);
      if (act !== "write") word.setAttribute("aria-pressed", pressed);
      if (act === focused[0] && key === focused[1]) focus(word);
    }
  }
  const shown = find(".view .labkit-view", demo);
  if (shown && scrolled) shown.scrollLeft = scrolled;
  // Where the word is gone, the focus stays in the demo.
  if (inside && !demo.contains(document.activeElement)) {
    const other = find(`.view [data-act="${focused[0]}"] [role="button"]`, demo);
    (other ?? find(".labkit-view", demo))?.focus({ preventScroll: true });
  }
}

/** Make a demo interactive: `draw()` shows its state, `click(act, key)` is a click on a word,
 *  `buttons` are functions by name, `changed(field)` comes before a control is drawn. */
function answering(demo, { draw, click, buttons, changed }) {
  const pressed = (target) => {
    const does = target.closest("button")?.dataset.does, key = keyOf(target), act = target.closest(".view [data-act]")?.dataset.act;
    if (does) buttons[does]();
    else if (act && key !== undefined && target.closest("[data-kind]")?.dataset.kind !== "special") click(act, Number(key));
  };
  const next = (word, by) => {
    const all = [...word.closest("[data-act]").querySelectorAll('[role="button"]')];
    const other = all[all.indexOf(word) + by];
    if (other) focus(other);
  };
  demo.addEventListener("click", ({ target }) => pressed(target));
  demo.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey || event.target.getAttribute("role") !== "button") return;
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!by && event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    if (by) next(event.target, by);
    else pressed(event.target);
  });
  demo.addEventListener("submit", (event) => event.preventDefault());
  demo.addEventListener("input", ({ target }) => {
    changed(target);
    draw();
  });
  draw();
}

const reset = (demo) => { for (const form of demo.querySelectorAll("form")) form.reset(); };
const say = (demo, text) => { clearTimeout(waiting.get(demo)); find(".said", demo).textContent = text; };
const waiting = new Map();
/** Announce a text when nothing has changed for a moment, and not at every letter. */
function sayLater(demo, text) {
  clearTimeout(waiting.get(demo));
  if (find(".said", demo).textContent !== text) waiting.set(demo, setTimeout(() => say(demo, text), 700));
}

/** Write with a GPT.  `data-pace` is how many milliseconds a word of a run takes, and `data-first`
 *  how many words are written when the page opens. */
function sampling(demo, { gpt, language }) {
  const model = new Engine.GPT(gpt), tokenizer = new Views.Tokenizer(gpt), pace = Number(demo.dataset.pace ?? 60);
  const place = { model, tokenizer, language: new Engine.Language(language), start: "document" };
  let written = [], past = [], running = 0;
  const state = () => ({ ...values(demo), written });
  const ended = () => Views.ended(state(), tokenizer.special);
  const draw = () => put(demo, Views.sampling(state(), place));
  const add = (token) => {
    written = [...written, token];
    draw();
  };
  const worded = (tokens) => tokens.map((token) => tokenizer.tokens[token]).join(" ");
  const saying = (from = 0) => say(demo, `written: ${worded(written.slice(from))}`);
  const drawn = () => {
    const now = state(), [prompt] = tokenizer.known(now.prompt);
    return Engine.nextWord(model, [tokenizer.special.sep, ...tokenizer.encode(prompt), ...now.written], now, now.seed).drawn;
  };
  const stop = () => { clearTimeout(running); running = 0; };
  const write = (token) => {
    stop();
    if (ended()) return;
    past.push(written);
    add(token);
    saying(written.length - 1);
  };
  // A screen reader is given the words of a run once, at its end, if the user started it.
  const run = (words, said = saying) => {
    if (!words || ended()) {
      stop();
      return said();
    }
    add(drawn());
    running = setTimeout(() => run(words - 1, said), pace);
  };
  const forget = () => { stop(); written = []; past = []; say(demo, ""); };
  const buttons = {
    step() { if (!ended()) write(drawn()); },
    run() {
      if (running) {
        stop();
        return saying();
      }
      if (ended()) return;
      past.push(written);
      run(30);
    },
    undo() {
      const before = written;
      stop();
      written = past.pop() ?? [];
      draw();
      say(demo, before.length ? `taken back: ${worded(before.slice(written.length))}` : "");
    },
    another() { forget(); find("[name=seed]", demo).value = values(demo).seed + 1; run(30); },
    reset() { forget(); reset(demo); draw(); },
  };
  const changed = ({ name }) => { if (name === "prompt") forget(); else stop(); };
  answering(demo, { draw, click: (act, token) => write(token), buttons, changed });
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
  // A word that is pressed must still be there when it is let go.
  demo.addEventListener("pointerdown", ({ target }) => { if (target.closest(".view [data-act]")) stop(); });
  if (demo.dataset.first && !still) run(Number(demo.dataset.first), () => {});
}

/** Hide words of a text, and see what a BERT guesses. */
function masking(demo, { bert, language, sentences }) {
  const model = new Engine.BERT(bert), tokenizer = new Views.Tokenizer(bert);
  const place = { model, tokenizer, language: new Engine.Language(language), start: "sentence" };
  const field = (name) => find(`[name=${name}]`, demo);
  let clicked = [], typed = false;
  const draw = () => {
    const view = Views.masking({ ...values(demo), clicked }, place);
    put(demo, view);
    (typed ? sayLater : say)(demo, view.pieces.find(({ name }) => name === "answers")?.text ?? "");
    typed = false;
  };
  const again = (name, value) => { clicked = []; field(name).value = value; draw(); };
  answering(demo, {
    draw,
    // A second click takes the first one back.
    click(act, n) { clicked = clicked.includes(n) ? clicked.filter((other) => other !== n) : [...clicked, n]; draw(); },
    buttons: {
      draw: () => again("draw", (values(demo).draw + 1) % 10001),
      another: () => again("text", sentences[(sentences.indexOf(values(demo).text) + 1) % sentences.length]),
      reset() { clicked = []; reset(demo); draw(); },
    },
    changed({ name }) {
      // Clicks belong to one draw.  What becomes [MASK] cannot become a random word.
      clicked = [];
      typed = true;
      const { mask, random } = values(demo);
      if (name === "mask") field("random").value = Math.min(random, 1 - mask);
      if (name === "random") field("mask").value = Math.min(mask, 1 - random);
    },
  });
}

/** Look at the attention of either model. */
function attention(demo, { gpt, bert }) {
  const models = { BERT: new Engine.BERT(bert), GPT: new Engine.GPT(gpt) };
  const tokenizers = { BERT: new Views.Tokenizer(bert), GPT: new Views.Tokenizer(gpt) };
  let selected = -1;
  const draw = () => {
    const now = values(demo), model = models[now.model], tokenizer = tokenizers[now.model];
    const view = Views.attention({ ...now, selected }, { model, tokenizer });
    put(demo, view, selected);
    const most = view.pieces.find(({ name }) => name === "most")?.rows[selected];
    say(demo, most ? `${most[0]} attends most to ${most[1]}, ${most[2]}` : "");
  };
  answering(demo, {
    draw,
    click(act, row) { selected = selected === row ? -1 : row; draw(); },
    buttons: { reset() { selected = -1; reset(demo); draw(); } },
    changed({ name }) { if (name === "text") selected = -1; },
  });
}

/** A demo whose views were written down, one for each state of its controls.  A word of a map can
 *  be selected; no other click has a view. */
function states(demo, { name, controls, views, pieces }) {
  const fields = [...demo.querySelectorAll("[name]")], slider = find("input[type=range]", demo);
  let selected = -1, running = 0;
  const clicked = (piece) => (piece.act === "select" ? { ...piece, selected: selected < piece.down.length ? selected : -1 } : piece.act ? { ...piece, act: "" } : piece);
  const draw = () => {
    values(demo);
    const at = fields.reduce((sum, field, n) => sum * controls[n].values.length + Number(field.value), 0);
    put(demo, { name, pieces: views[at].map((n) => clicked(pieces[n])) }, selected);
  };
  const stop = () => { clearInterval(running); running = 0; };
  const to = (value) => { slider.value = value; draw(); };
  const play = () => {
    if (running) return stop();
    to(Number(slider.value) < Number(slider.max) ? slider.value : 0);
    running = setInterval(() => {
      to(Number(slider.value) + 1);
      if (slider.value === slider.max) stop();
    }, 120);
  };
  answering(demo, {
    draw, changed({ name: field }) { stop(); if (field === "text") selected = -1; },
    click(act, row) { selected = selected === row ? -1 : row; draw(); },
    buttons: { play, reset() { stop(); selected = -1; reset(demo); draw(); } },
  });
}

/** A section around a stored picture, with the controls that were written for it. */
function around(picture, form) {
  const demo = document.createElement("section"), view = document.createElement("div");
  demo.className = "labkit-states";
  demo.innerHTML = form;
  view.className = "view";
  picture.replaceWith(demo);
  const place = find(".view", demo);
  if (place) place.replaceWith(view);
  else demo.append(view);
  view.append(picture);
  return demo;
}

/** Let Tab stop at code and outputs only where they are wider than their place, and scroll. */
function stops() {
  for (const one of document.querySelectorAll(".highlight, .jp-OutputArea-output")) {
    if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;
    else one.removeAttribute("tabindex");
  }
}

async function unpacked(text) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function play() {
  const data = await unpacked(PACKED), plays = { sampling, masking, attention };
  // What a foreign notebook holds may be no demo and no view: its picture stays, the others play.
  for (const demo of document.querySelectorAll("[data-play]")) {
    try { plays[demo.dataset.play](demo, data); } catch (error) { console.warn(demo.dataset.play, error.message); }
  }
  for (const one of data.states ?? []) {
    try {
      const found = one.form ? document.querySelectorAll(`.labkit-view[data-demo="${one.name}"]`)[one.nth] : null;
      const demo = found ? around(found, one.form) : document.getElementById(one.name);
      const texts = () => (one.texts?.length ? one.texts : [find("[name=text]", demo)?.value ?? ""]);
      if (one.play) plays[one.name](demo, { ...data, sentences: texts() });
      else states(demo, one);
    } catch (error) { console.warn(one.name, error.message); }
  }
  stops();
  addEventListener("resize", stops);
  document.body.dataset.ready = "yes";
}
play().catch((error) => {
  for (const view of document.querySelectorAll("[data-play] .view:empty")) view.textContent = `This demo needs a newer browser: ${error.message}.`;
});
