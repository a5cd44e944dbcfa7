// Pieces rendered as HTML and as plain text: the same as classroom/demos/rendering.py, character
// for character.  A view is {name, pieces}; a piece is {kind, ...} as pieces.py gives it.
"use strict";
const Render = (() => {
  const LONGEST_LABEL = 24, BAR = "#2f6fb3", BAR_RGB = "47,111,179", WRONG = "#b3541e";
  const COLOURS = {
    plain: ["#eef1f4", "#1b1f24"], special: ["#d5dae0", "#1b1f24"], mask: ["#1f3d7a", "#ffffff"],
    random: ["#8a3b00", "#ffffff"], kept: ["#0b5d3b", "#ffffff"], asked: ["#5b2a86", "#ffffff"],
    new: ["#fff1c9", "#1b1f24"],
  };
  const PANEL = "background:var(--jp-layout-color1,#ffffff);color:var(--jp-content-font-color1,#1b1f24);" +
    "padding:8px;line-height:1.4;font-family:sans-serif;overflow-x:auto";
  const BREAK = "overflow-wrap:anywhere", CHIP = "border:1px solid;border-radius:4px;padding:1px 5px";
  const WIDTH = 560, MARGIN = 60, SIGNS = "·■✗";
  const FILLS = ["", `;background:${BAR};color:${BAR}`, `;background:${WRONG};color:#ffffff`];

  // ---- words and numbers

  const SAFE = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;" };
  const clean = (text) => text.replace(/[\p{Cc}\p{Cs}]/gu, (c) => ("\n\t".includes(c) ? c : "\ufffd"));
  const safe = (text) => clean(text).replace(/[&<>"']/g, (c) => SAFE[c]);
  const count = (text) => [...text].length;
  const short = (text) => (count(text) <= LONGEST_LABEL ? text : `${[...text].slice(0, LONGEST_LABEL - 1).join("")}…`);
  const padded = (text, width) => text + " ".repeat(Math.max(0, width - count(text)));

  /** A number with so many digits, as Python writes it: a tie goes to the even digit. */
  function fixed(x, digits) {
    const shown = x.toFixed(digits), twice = Math.abs(x) * 2 * 10 ** digits;
    // Only multiples of 2^-(digits + 1) can lie exactly between two numbers of so many digits.
    const tie = Number.isInteger(x * 2 ** (digits + 1)) && twice % 2 === 1;
    if (!tie || Number(shown.at(-1)) % 2 === 0) return shown;
    return (x < 0 ? "-" : "") + ((twice - 1) / 2 / 10 ** digits).toFixed(digits);
  }
  const shareSaid = (value) => (value === null ? "–" : value === 0 ? "0" : fixed(value, 4));
  const said = (cell) => (typeof cell === "string" ? cell : shareSaid(cell.share));

  // ---- plain text

  function aligned(rows) {
    const widths = rows[0].map((_, n) => Math.max(...rows.map((row) => count(row[n]))));
    return rows.map((row) => row.map((cell, n) => padded(cell, widths[n])).join("  ").trimEnd()).join("\n");
  }

  function labelled(labels, rows) {
    const names = labels.map((label) => short(clean(label)));
    const wide = Math.max(0, ...names.map(count));
    return names.map((name, n) => `${padded(name, wide)}  ${rows[n]}`);
  }

  const TEXT = {
    heading: ({ title }) => clean(title),
    note: ({ text }) => clean(text),
    problem: ({ text }) => clean(text),
    chips: ({ chips }) => chips.map(({ token }) => clean(token)).join(" "),
    table: ({ head, rows }) => aligned([head, ...rows].map((row) => row.map((cell) => clean(said(cell))))),
    grid: (p) => [clean(p.said), ...labelled(p.down, p.levels.map((row) => row.map((l) => SIGNS[l]).join("")))].join("\n"),
    shades: (p) => [...(p.small ? [clean(p.title)] : []),
      ...labelled(p.down, p.shares.map((row) => row.map((share) => fixed(share, 2)).join(" ")))].join("\n"),
    curve: (p) => clean(p.said),
    intervals: (p) => clean(p.said),
    lot: (p) => lotSaid(p),
    beside: ({ pieces }) => pieces.map(textOf).join("\n\n"),
  };
  const textOf = (piece) => TEXT[piece.kind](piece);
  const text = (view) => view.pieces.map(textOf).join("\n\n");

  // ---- words and tables

  const actOf = (act) => (act ? ` data-act="${safe(act)}"` : "");

  function chip({ token, kind, caption }, position) {
    const [ground, ink] = COLOURS[kind];
    let style = `background:${ground};color:${ink};${CHIP}`, below = "";
    if (caption) {
      below = `<br><small dir="ltr">${safe(caption)}</small>`;
      style += ";text-align:center";
    }
    if (count(token) > LONGEST_LABEL) style += `;max-width:100%;${BREAK}`;
    return `<span data-position="${position}" data-kind="${kind}" style="${style}"><bdi>${safe(token)}</bdi>${below}</span>`;
  }

  function cellOf(cell, marked) {
    const style = `style="${marked ? "font-weight:600;" : ""}text-align:left;padding:0 8px"`;
    if (typeof cell === "string") {
      const broken = count(cell) > 2 * LONGEST_LABEL ? ` style="${BREAK}"` : "";
      return `<td ${style}><bdi${broken}>${safe(cell)}</bdi></td>`;
    }
    const width = cell.share === null ? 0 : 100 * Math.min(Math.max(cell.share, 0), 1);
    return `<td ${style}><span aria-hidden="true" style="display:inline-block;width:100px;vertical-align:middle">` +
      `<span style="display:block;height:10px;width:${fixed(width, 1)}%;background:${BAR}"></span></span> ${said(cell)}</td>`;
  }

  function table(p) {
    const columns = p.head.map((title) => `<th scope="col" style="text-align:left;padding:0 8px">${safe(title)}</th>`);
    const rows = p.rows.map((row, n) => `<tr data-row="${n}"${p.keys.length ? ` data-key="${Number(p.keys[n])}"` : ""}>` +
      `${row.map((cell) => cellOf(cell, n === p.marked)).join("")}</tr>`);
    return `<table data-table="${safe(p.name)}"${actOf(p.act)} style="border-collapse:collapse">` +
      `<thead><tr>${columns.join("")}</tr></thead><tbody>${rows.join("")}</tbody></table>`;
  }

  // ---- squares

  function squares(p, rows, saying) {
    const turned = "writing-mode:vertical-rl;transform:rotate(180deg);font-weight:400;padding:2px 0";
    const head = p.across.map((name) => `<th style="${turned}">${safe(short(name))}</th>`).join("");
    const body = p.down.map((name, n) => `<tr data-row="${n}"><th style="text-align:right;font-weight:400;padding:0 4px">` +
      `${safe(short(name))}</th>${rows[n]}</tr>`).join("");
    return `<table role="img" aria-label="${safe(saying)}" style="border-collapse:collapse;` +
      "font-size:11px;line-height:1.3;border:1px solid #8a9199;text-align:center\">" +
      `<thead><tr><th></th>${head}</tr></thead><tbody>${body}</tbody></table>`;
  }

  function grid(p) {
    const cells = FILLS.map((fill, n) => `<td style="padding:0 2px${fill}">${SIGNS[n]}</td>`);
    const table = squares(p, p.levels.map((row) => row.map((level) => cells[level]).join("")), p.said);
    return `<div data-grid="${safe(p.title)}"><div>${safe(p.said)}</div>${table}</div>`;
  }

  const topOf = (p) => (p.shares.length ? Math.max(...p.shares.flat()) : 1) || 1;
  const heights = (row) => row.flatMap((share, n) => (share >= 0.005 ? [`--h${n}:${fixed(share, 2)}`] : [])).join(";");
  const allHeights = (row) => row.map((share, n) => `--h${n}:${fixed(share, 2)}!important`).join(";");

  function mark(text) {
    let number = 2166136261;
    for (const sign of text) number = Math.imul(number ^ sign.codePointAt(0), 16777619) >>> 0;
    return `map-${number}`;
  }

  function shades(p) {
    if (p.small) return smallMap(p);
    const top = topOf(p), id = mark(p.shares.map(heights).join(","));
    const rows = p.shares.map((row, q) => row.map((share, k) =>
      `<td style="padding:0 6px;background:rgba(${BAR_RGB},${fixed(share / top, 3)})" ` +
      `title="${safe(short(p.down[q]))} → ${safe(short(p.across[k]))}: ${fixed(share, 3)}"></td>`).join(""));
    const past = p.across.length - p.down.length, own = p.down.every((word, n) => word === p.across[past + n]);
    const over = p.selected < 0 ? heights : allHeights;
    const pointed = p.shares.map((row, n) => `#${id}:has(${own ? "" : "tr"}[data-row="${n}"]:hover){${over(row)}}`).join("");
    const words = p.across.map((word, n) => `<span${n < past ? "" : ` data-row="${n - past}"`} style="border-bottom:calc(var(--h${n},0)*24px) solid ${BAR};padding:0 3px">` +
      `<bdi>${safe(short(word))}</bdi></span>`).join(" ");
    const chosen = p.selected >= 0 ? heights(p.shares[p.selected]) : "";
    return `<div id="${id}" data-shades="${safe(p.title)}" data-top="${fixed(top, 4)}"${actOf(p.act)} style="${chosen}">` +
      `<style>${pointed}</style><div>${safe(p.title)}</div>${squares(p, rows, p.title)}` +
      `<div style="display:flex;flex-wrap:wrap;align-items:flex-start;min-height:4em">${words}</div></div>`;
  }

  function smallMap(p) {
    const top = topOf(p), side = 6, wide = side * p.across.length, high = side * p.down.length;
    const drawn = p.shares.flatMap((row, y) => row.map((share, x) => (share < 0.005 ? "" :
      `<rect x="${x * side}" y="${y * side}" width="${side}" height="${side}" fill="${BAR}" fill-opacity="${fixed(share / top, 2)}"/>`)));
    const frame = `<path d="M0 0h${wide}v${high}H0z" fill="none" stroke="currentColor"/>`;
    return `<div>${safe(p.title)}</div>${svg(p.title, wide, high, drawn.join("") + frame)}`;
  }

  // ---- drawings

  const svg = (saying, width, height, inside) => `<svg role="img" aria-label="${safe(saying)}" width="${width}" height="${height}" ` +
    `viewBox="0 0 ${width} ${height}" font-family="sans-serif" font-size="12" fill="currentColor">${inside}</svg>`;
  const label = (x, y, words, anchor = "end") =>
    `<text x="${fixed(x, 1)}" y="${fixed(y, 1)}" text-anchor="${anchor}">${safe(words)}</text>`;

  function curve(p) {
    const height = 190, right = WIDTH - 12, bottom = 166;
    const values = [...p.points.map(([, y]) => y), ...(p.floor ? [p.floor[0]] : [])];
    const filled = [p.points[0][0], p.points.at(-1)[0], Math.min(...values), Math.max(...values)];
    const [first, last, low, high] = p.frame ?? filled;
    const x = (step) => MARGIN + ((step - first) / (last - first || 1)) * (right - MARGIN);
    const y = (value) => bottom - ((value - low) / Math.max(high - low, 1e-12)) * (bottom - 16);
    const line = p.points.map(([step, value]) => `${fixed(x(step), 1)} ${fixed(y(value), 1)}`).join("L");
    let inside = `<path data-points="${p.points.length}" d="M${line}" stroke="${BAR}" stroke-width="2" fill="none"/>`;
    if (p.floor) {
      inside += `<path data-floor="${fixed(p.floor[0], 4)}" d="M${MARGIN} ${fixed(y(p.floor[0]), 1)}H${right}" ` +
        'stroke="currentColor" stroke-dasharray="5 4" fill="none"/>';
      // Where the line begins at the floor, a label at its beginning would cover it.
      const [begin, end] = [p.points[0], p.points.at(-1)].map(([, value]) => Math.abs(value - p.floor[0]));
      inside += begin < end ? label(right, y(p.floor[0]) - 5, p.floor[1]) : label(MARGIN, y(p.floor[0]) + 13, p.floor[1], "start");
    }
    const [step, value] = p.mark ?? p.points.at(-1);
    inside += `<circle cx="${fixed(x(step), 1)}" cy="${fixed(y(value), 1)}" r="5"><title>${safe(p.said)}</title></circle>`;
    inside += label(MARGIN - 6, bottom + 4, p.low) + label(MARGIN - 6, 20, p.high) + label(right, height - 4, p.last);
    return `<div data-curve="${safe(p.name)}">${svg(p.said, WIDTH, height, inside)}<div>${safe(p.said)}</div></div>`;
  }

  function intervals(p) {
    const wide = 640, names = 210, line = 32;
    const every = p.lines.flatMap((one) => [one.low, one.mean, one.high, one.best]).filter((v) => v !== null);
    const low = Math.min(...every), room = Math.max(...every) - low || 1;
    const x = (number) => names + 10 + ((number - low) / room) * (wide - names - 70);
    const drawn = p.lines.map((one, n) => {
      const y = n * line + 22;
      const best = one.best === null ? "" : `<path data-best="${fixed(one.best, 4)}" d="M${fixed(x(one.best), 1)} ${y - 11}v20" ` +
        'stroke="currentColor" stroke-dasharray="3 2" fill="none"/>';
      return `${label(210, y + 4, short(clean(one.name)))}` +
        `<path d="M${fixed(x(one.low), 1)} ${y}H${fixed(x(one.high), 1)}" stroke="${BAR}" stroke-width="3"/>` +
        `<circle cx="${fixed(x(one.mean), 1)}" cy="${y}" r="4" fill="${BAR}"/>${label(x(one.mean), y - 7, one.label, "middle")}${best}`;
    });
    return svg(p.said, wide, p.lines.length * line + 10, drawn.join(""));
  }

  const sum = (parts) => parts.reduce((all, [, share]) => all + share, 0);

  // After an element as high as the bar, a word that is too wide wraps below it, out of sight.
  const wholeWord = (word) => `<span style="height:100%"></span><bdi>${safe(short(word))}</bdi>`;

  function lot(p) {
    const whole = sum(p.parts), before = sum(p.parts.slice(0, p.drawn));
    const at = Math.min(Math.max((before + p.number - p.before) / whole, 0), 1);
    const parts = p.parts.map(([word, share], n) => `<span title="${safe(word)}: ${fixed(share, 4)}" ` +
      `style="width:${fixed(100 * share / whole, 2)}%;display:flex;flex-wrap:wrap;height:1.4em;` +
      `overflow:hidden;white-space:nowrap;box-sizing:border-box;` +
      `border-right:1px solid #8a9199${n === p.drawn ? ";background:#1f3d7a;color:#ffffff" : ""}">` +
      `${share > 0.04 * whole ? wholeWord(word) : ""}</span> `).join("");
    return `<div data-lot="${fixed(p.number, 4)}" style="max-width:640px"><div aria-hidden="true">` +
      `<div style="width:${fixed(100 * at, 1)}%;text-align:right">▼</div>` +
      `<div style="display:flex;border:1px solid #8a9199">${parts}</div></div>${safe(lotSaid(p))}</div>`;
  }

  function lotSaid(p) {
    const [word, share] = p.parts[p.drawn];
    return `The number drawn is ${fixed(p.number, 4)}: it falls on “${short(clean(word))}”, which has ` +
      `${fixed(p.before, 4)} to ${fixed(p.before + share, 4)}.`;
  }

  const HTML = {
    heading: ({ title }) => `<div role="heading" aria-level="3" style="font-weight:600;margin-top:8px;${BREAK}">${safe(title)}</div>`,
    note: ({ text, name }) => `<div data-note="${safe(name)}" style="${BREAK};white-space:pre-line">${safe(text)}</div>`,
    problem: ({ text }) => `<div role="status" style="border-left:4px solid;padding-left:8px;${BREAK}">${safe(text)}</div>`,
    chips: (p) => `<div data-chips="${p.chips.length}"${actOf(p.act)} style="display:flex;flex-wrap:wrap;gap:3px">` +
      `${p.chips.map(chip).join(" ")}</div>`,
    beside: ({ pieces }) => '<div style="display:flex;flex-wrap:wrap;gap:24px">' +
      `${pieces.map((part) => `<div>${htmlOf(part)}</div>`).join("")}</div>`,
    table, grid, shades, curve, intervals, lot,
  };
  const htmlOf = (piece) => HTML[piece.kind](piece);
  const html = (view) => '<div class="labkit-view tex2jax_ignore mathjax_ignore" role="region" tabindex="0" ' +
    `aria-label="${safe(view.name)}" data-demo="${safe(view.name)}" style="${PANEL}">${view.pieces.map(htmlOf).join("")}</div>`;

  return { html, text, fixed };
})();
if (typeof module !== "undefined") module.exports = Render;
