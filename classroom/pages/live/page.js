// The page: the state is what the controls say and what was clicked, and each view a function of it.
"use strict";
const find = (query, within = document) => within.querySelector(query);

/** What the controls of a demo say. */
function values(demo) {
  const found = {};
  for (const field of demo.querySelectorAll("[name]")) {
    found[field.name] = field.type === "range" ? Number(field.value) : field.value;
    const shown = find("output", field.parentElement);
    if (shown) shown.value = field.dataset.said ? JSON.parse(field.dataset.said)[field.value] : field.value;
  }
  return found;
}

/** Draw a view; rows that can be clicked are reached by the keyboard too. */
function put(demo, view) {
  const focused = document.activeElement?.dataset?.key;
  find(".view", demo).innerHTML = Render.html(view);
  for (const row of demo.querySelectorAll('[data-act="write"] [data-key]')) {
    row.tabIndex = 0;
    row.setAttribute("aria-label", `write ${row.cells[0].textContent.replace("→ ", "")}`);
    if (row.dataset.key === focused) row.focus();
  }
}

function sampling(demo) {
  const model = new Engine.GPT(DATA.gpt), tokenizer = new Views.Tokenizer(DATA.gpt);
  const language = new Engine.Language(DATA.language);
  let written = [], past = [];
  const state = () => ({ ...values(demo), written });
  const draw = () => put(demo, Views.sampling(state(), { model, tokenizer, language, start: "document" }));
  const write = (tokens) => {
    past.push(written);
    written = [...written, ...tokens];
    draw();
  };
  const drawn = () => {
    const now = state(), [prompt] = tokenizer.known(now.prompt);
    return Engine.nextWord(model, [tokenizer.special.sep, ...tokenizer.encode(prompt), ...now.written], now, now.seed).drawn;
  };
  const acts = {
    step() { if (!Views.ended(state(), tokenizer.special)) write([drawn()]); },
    run() {
      const before = written;
      while (written.length < before.length + 30 && !Views.ended(state(), tokenizer.special)) written = [...written, drawn()];
      past.push(before);
      draw();
    },
    undo() { written = past.pop() ?? []; draw(); },
    reset() { find("form", demo).reset(); written = []; past = []; draw(); },
  };
  const pressed = (target) => {
    const { act } = target.closest("button")?.dataset ?? {}, key = target.closest('[data-act="write"] [data-key]')?.dataset.key;
    if (act) acts[act]();
    else if (key && !Views.ended(state(), tokenizer.special)) write([Number(key)]);
  };
  demo.addEventListener("click", ({ target }) => pressed(target));
  demo.addEventListener("keydown", (event) => { if (event.key === "Enter" && event.target.dataset.key) pressed(event.target); });
  demo.addEventListener("submit", (event) => event.preventDefault());
  demo.addEventListener("input", ({ target }) => {
    if (target.name === "prompt") {
      written = [];
      past = [];
    }
    draw();
  });
  draw();
}

/** A demo whose views were written down, one for each state of its controls. */
function states(demo, { name, sizes, which, views }) {
  const fields = [...demo.querySelectorAll("[name]")];
  const draw = () => {
    values(demo);
    const at = fields.reduce((sum, field, n) => sum * sizes[n] + Number(field.value), 0);
    put(demo, { name, pieces: views[which[at]] });
  };
  demo.addEventListener("input", draw);
  draw();
}

sampling(find("#sampling"));
for (const one of DATA.states) states(document.getElementById(one.name), one);
