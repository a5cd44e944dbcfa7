// A notebook as slides: a new one begins at each heading of the first or second level.
(() => {
  "use strict";
  const KEYS = `→  Page ↓  space   the rest of this slide, then the next one
←  Page ↑           back
shift →  shift ←    next slide, previous slide, whatever is left of this one
Home  End           first, last slide
c                   show or fold the code of all cells
n                   show or hide the speaker's notes
w                   the notes in a window of their own
f                   full screen
Esc                 leave a slider or text box, so that the arrow keys turn pages again
?                   this list`;
  const place = document.querySelector("#rendered_cells > div");
  const slides = [];

  const make = (name, properties) => Object.assign(document.createElement(name), properties);

  // ---- where slides begin, and what is only for the speaker ----

  const starts = (cell) => /^H[12]$/.test(cell.querySelector(".jp-RenderedMarkdown")
    ?.firstElementChild?.tagName ?? "");

  function comments(root) {
    const found = [];
    const walker = document.createTreeWalker(root, NodeFilter.SHOW_COMMENT);
    while (walker.nextNode()) {
      const told = /^\s*notes:\s*([^]*)$/i.exec(walker.currentNode.data);
      if (told) found.push(told[1].trim());
    }
    return found;
  }

  // A heading in the middle of a cell begins a slide as well.
  function parted(cell) {
    const parts = [cell];
    const text = cell.querySelector(".jp-RenderedMarkdown");
    for (const heading of text ? [...text.querySelectorAll(":scope > h1, :scope > h2")] : []) {
      if (!heading.previousElementSibling) continue;
      const part = make("div", { className: "jp-Cell jp-MarkdownCell" });
      const inside = make("div", { className: text.className });
      part.append(inside);
      while (heading.nextSibling) inside.append(heading.nextSibling);
      inside.prepend(heading);
      parts.at(-1).after(part);
      // What follows a later heading has moved along, and is split off in its turn.
      return [...parts, ...parted(part)];
    }
    return parts;
  }

  function divide() {
    for (const whole of [...place.querySelectorAll(":scope > div")]) {
      for (const cell of parted(whole)) {
        if (!slides.length || starts(cell)) {
          slides.push(make("section", { className: "lecture-slide", hidden: true, tabIndex: -1,
            notes: [] }));
        }
        const slide = slides.at(-1);
        slide.notes.push(...comments(cell));
        const spoken = cell.querySelector(".celltag_notes");
        if (spoken) {
          slide.notes.push(spoken.innerText.trim());
          cell.remove();
        } else {
          slide.append(cell);
        }
      }
    }
    // What comes before the first heading is a slide only if it is not empty.
    if (slides.length > 1 && !slides[0].innerText.trim()
        && !slides[0].querySelector(".jp-Cell-outputWrapper")) {
      slides[1].prepend(...slides.shift().childNodes);
    }
    place.append(...slides);
  }

  function fold() {
    for (const input of place.querySelectorAll(".jp-CodeCell .jp-Cell-inputWrapper")) {
      const button = make("button", { className: "lecture-button lecture-code",
        textContent: "code", ariaExpanded: "false" });
      button.addEventListener("click", () => {
        const open = input.toggleAttribute("data-open");
        button.ariaExpanded = String(open);
      });
      input.prepend(button);
    }
  }

  // ---- the slide that is shown ----

  let at = 0;
  const counter = make("output", { ariaLive: "polite" });
  // On a small screen these scroll, by keyboard too.
  const panel = make("aside", { className: "lecture-notes", hidden: true, tabIndex: 0,
    ariaLabel: "speaker's notes" });
  const help = make("aside", { className: "lecture-help", hidden: true, tabIndex: 0,
    ariaLabel: "keys" });
  help.append(make("pre", { textContent: KEYS }));
  let beside = null;

  function tell() {
    const notes = slides[at].notes.join("\n\n") || "No notes for this slide.";
    panel.textContent = notes;
    if (beside && !beside.closed) {
      const title = slides[at].querySelector("h1, h2")?.innerText.replace("¶", "") ?? "";
      beside.document.title = "Notes";
      beside.document.body.style.cssText = "font:22px/1.5 sans-serif;margin:1em;"
        + "white-space:pre-line;background:#ffffff;color:#1b1f24";
      beside.document.body.textContent = `${at + 1} / ${slides.length}  ${title}\n\n${notes}`;
    }
  }

  // ---- a slide that is higher than the screen ----

  const page = document.querySelector("#rendered_cells");  // it is this that scrolls
  const more = make("button", { className: "lecture-button lecture-more", tabIndex: -1,
    textContent: "▼ more", title: "the rest of this slide" });
  const left = () => page.scrollHeight - page.clientHeight - page.scrollTop;

  const mark = () => { more.hidden = left() < 8; };

  // Three quarters of a screen: what was read last stays in sight.
  const scroll = (way) => page.scrollBy({ top: way * 0.75 * page.clientHeight, behavior: "instant" });

  function forward() {
    if (left() < 8) go(at + 1); else scroll(1);
  }

  function back() {
    if (page.scrollTop < 8) go(at - 1); else scroll(-1);
  }

  function go(to) {
    slides[at].hidden = true;
    at = Math.max(0, Math.min(slides.length - 1, to));
    slides[at].hidden = false;
    counter.value = `${at + 1} / ${slides.length}`;
    history.replaceState(null, "", `${location.pathname}#${at + 1}`);  // without the token
    page.scrollTo(0, 0);
    // Tab goes on from the slide, unless a button of the bar has the focus.
    const on = document.activeElement;
    if (on === document.body || place.contains(on)) slides[at].focus({ preventScroll: true });
    // What was hidden while it was drawn gets its size now.
    window.dispatchEvent(new Event("resize"));
    tell();
    mark();
  }

  // What the address names: the number of a slide, or a heading that a link leads to.
  function asked() {
    const number = /^#(\d+)$/.exec(location.hash);
    if (number) return Number(number[1]) - 1;
    return slides.indexOf(document.querySelector(":target")?.closest(".lecture-slide"));
  }

  function apart() {
    beside = window.open("", "lecture-notes", "width=700,height=600");
    tell();
    window.focus();
  }

  // In full screen a browser keeps Esc for itself, unless it lends the key (Chrome and Edge do).
  async function fill() {
    await document.documentElement.requestFullscreen();
    await navigator.keyboard?.lock(["Escape"]);
  }

  // One thing at a time: the list of keys, then what has the focus, then the full screen.
  function leave() {
    const on = document.activeElement;
    const busy = !help.hidden || on?.matches(WRITING);
    help.hidden = true;
    on?.blur();
    if (!busy && document.fullscreenElement) document.exitFullscreen();
  }

  const ACTS = {
    ArrowRight: forward,
    PageDown: forward,
    " ": forward,
    "shift  ": back,
    ArrowLeft: back,
    PageUp: back,
    "shift ArrowRight": () => go(at + 1),
    "shift ArrowLeft": () => go(at - 1),
    Home: () => go(0),
    End: () => go(slides.length - 1),
    c: () => {
      const all = document.body.toggleAttribute("data-code");
      for (const button of document.querySelectorAll(".lecture-code")) {
        button.ariaExpanded = String(all || button.parentElement.hasAttribute("data-open"));
      }
    },
    n: () => { panel.hidden = !panel.hidden; },
    w: apart,
    f: () => (document.fullscreenElement ? document.exitFullscreen() : fill()),
    "?": () => { help.hidden = !help.hidden; },
    Escape: leave,
  };
  const WRITING = "input, textarea, select, [contenteditable], [role=slider], [role=listbox]";
  const PRESSED = "button, a, summary, [role=button]";

  function pressed(event) {
    // With Caps Lock on, a letter comes as a capital one.
    const key = event.key.length === 1 && !event.shiftKey ? event.key.toLowerCase() : event.key;
    const act = (event.shiftKey && ACTS[`shift ${key}`]) || ACTS[key];
    if (event.ctrlKey || event.altKey || event.metaKey || !act) return;
    const on = document.activeElement;
    // A slider keeps its arrows, a text its letters, a button its space.
    if (event.key !== "Escape" && on?.matches(WRITING)) return;
    if (event.key === " " && on?.matches(PRESSED)) return;
    // A wide table or formula that has the focus scrolls sideways.
    if (/^Arrow(Left|Right)$/.test(event.key) && !event.shiftKey && on !== document.body
        && on?.tabIndex === 0 && on.scrollWidth > on.clientWidth) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  function bar() {
    const buttons = [["‹", "previous slide", "ArrowLeft"], ["›", "next slide", "ArrowRight"],
      ["code", "show or fold all code", "c"], ["notes", "speaker's notes", "n"],
      ["?", "list of keys", "?"]];
    const found = make("nav", { className: "lecture-bar", ariaLabel: "slides" });
    for (const [textContent, title, key] of buttons) {
      const button = make("button", { className: "lecture-button", textContent, title,
        ariaLabel: title });
      button.addEventListener("click", ACTS[key]);
      found.append(button);
    }
    found.children[0].after(counter);
    return found;
  }

  divide();
  fold();
  more.addEventListener("click", forward);
  document.body.append(panel, help, more, bar());
  page.addEventListener("scroll", mark);
  new ResizeObserver(mark).observe(place);
  document.addEventListener("keydown", pressed, true);
  window.addEventListener("beforeprint", () => slides.forEach((s) => { s.hidden = false; }));
  window.addEventListener("afterprint", () => {
    slides.forEach((s) => { s.hidden = true; });
    go(at);
  });
  slides.forEach((slide) => { slide.hidden = true; });
  window.addEventListener("hashchange", () => { if (asked() >= 0) go(asked()); });
  go(asked());
})();
