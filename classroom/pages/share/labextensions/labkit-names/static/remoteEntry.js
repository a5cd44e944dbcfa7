// A plugin for JupyterLab and Voilà, as it stands: what a screen reader needs and they leave out.
// The handle of a slider gets the name beside it; a picture gets the text that is stored with it;
// a list keeps its keys, which are commands of the notebook otherwise (x cuts the cell).
(() => {
  "use strict";

  function name(handle) {
    const label = handle.closest(".widget-inline-hbox")?.querySelector(".widget-label");
    if (label?.textContent) handle.setAttribute("aria-label", label.textContent);
  }

  function describe(cell) {
    const area = cell.outputArea;
    area?.widgets.forEach((shown, n) => {
      const said = area.model.get(n)?.data["text/plain"];
      for (const picture of shown.node.querySelectorAll(".jp-RenderedImage img:not([alt])")) {
        picture.alt = String(said ?? "");
      }
    });
  }

  // A word that is chosen is drawn anew: the button in its place gets the focus that is lost then.
  let chosen = null;

  function keepFocus() {
    if (!chosen || chosen.button.isConnected || document.activeElement !== document.body) return;
    const buttons = [...chosen.row.querySelectorAll("button")];
    (buttons[chosen.at] ?? buttons.at(-1))?.focus({ preventScroll: true });
  }

  function choose({ target: button }) {
    const row = button.closest(".labkit-words");
    chosen = row && { row, button, at: [...row.querySelectorAll("button")].indexOf(button) };
  }

  function activate(app) {
    document.addEventListener("focusin", choose);
    // Whoever leaves a button that stays wants it no more; one that goes is still there for a moment.
    document.addEventListener("focusout", ({ target }) => setTimeout(() => {
      if (target === chosen?.button && target.isConnected) chosen = null;
    }));
    const look = () => {
      keepFocus();
      document.querySelectorAll(".noUi-handle:not([aria-label])").forEach(name);
      for (const list of document.querySelectorAll(".jupyter-widgets select")) {
        list.dataset.lmSuppressShortcuts = "true";
      }
      if (!document.querySelector(".jp-RenderedImage img:not([alt])")) return;
      for (const panel of app.shell.widgets("main")) {
        (panel.content?.widgets ?? []).forEach(describe);
      }
    };
    // Once for all changes of a frame.
    let waiting = false;
    new MutationObserver(() => {
      if (waiting) return;
      waiting = true;
      setTimeout(() => { waiting = false; look(); }, 100);
    }).observe(document.body, { childList: true, subtree: true });
  }

  const plugin = { id: "labkit-names:plugin", autoStart: true, activate };
  const module = { __esModule: true, default: [plugin] };
  window._JUPYTERLAB = window._JUPYTERLAB ?? {};
  window._JUPYTERLAB["labkit-names"] = { init() {}, get: async () => () => module };
})();
