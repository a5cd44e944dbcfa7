"""A demo is a pure function from a state to a view; the widget around it only holds the state.

In JupyterLab the widget is live.  Everywhere else (an exported page, a test, a screen reader) the
same view is there as static HTML and as plain text.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import ipywidgets as widgets
from IPython.display import display

from classroom.demos.pieces import Problem
from classroom.demos.recording import Options, metadata, written_states
from classroom.demos.rendering import View, as_images, clean, short
from labkit.checks import shown

MOST_WORDS = 48
"""How many words can be clicked: a row of buttons for more would fill the screen."""
ANSWERING = 2
"""How many rows of words answer clicks: the one that is shown, and the one before."""
ACTS = {
    "hide": "click a word to hide it, or to show it again",
    "write": "click a word to write it",
    "select": "click a word to see what it attends to",
}
# A widget waits while its kernel computes something else: then the page says so.  JupyterLab
# tells the state of the kernel in the toolbar of the notebook; the delay lets short waits pass.
# What is wide in a picture scrolls by itself: it does not widen the text beside it.
BUSY = """<style>
.labkit-picture > .widget-html-content { min-width: 0; }
.labkit-busy { visibility: hidden; font-weight: 600; }
.jp-NotebookPanel:has(.jp-Notebook-ExecutionIndicator[data-status="busy"]) .labkit-busy {
  visibility: visible; transition: visibility 0s 0.7s; }
</style><div class="labkit-busy" role="status">
The kernel is busy; this demo will respond when it is free.</div>"""
# What is stored beside the widget is seen where the widget is not: after a restart, in a page.
STORED = """<style>:is(.jp-Cell, .cell, .jp-OutputArea):has(.labkit-live) .labkit-stored
{ display: none; }</style>"""

WIDGET = "application/vnd.jupyter.widget-view+json"


class Demo(widgets.VBox):
    """Controls, and below them what `draw` makes of their values.

    `act` is called with the key of a word that was clicked, `forget` when all is set back. `kept`
    lists values of controls for which a page without a kernel has views.
    Programs find a demo by the class `labkit-NAME`, a control by `labkit-CONTROL`.
    """

    def __init__(
        self,
        name: str,
        draw: Callable[..., View],
        controls: Mapping[str, widgets.Widget],
        buttons: Mapping[str, Callable[[], None]] | None = None,
        act: Callable[[int], None] | None = None,
        forget: Callable[[], None] | None = None,
        kept: Options | None = None,
    ) -> None:
        self.name, self.draw, self.controls = name, draw, dict(controls)
        self.kept = dict(kept or {})
        self.shown = View(name, ())
        self.drawn: dict[str, Any] = {}
        self.picture = widgets.HTML()
        self.picture.add_class("labkit-picture")
        self.act, self.forgetting = act, forget
        self.rows = [self._row([])]
        self.words = widgets.Box(self.rows)
        self.words.add_class("labkit-words")
        every = {**(buttons or {}), **({"reset": self.reset} if controls else {})}
        self.buttons = {label: _button(label, act) for label, act in every.items()}
        for key, control in self.controls.items():
            control.add_class(f"labkit-{key}")
            control.observe(self._changed, names="value")
        self._quiet = False
        self.bar = widgets.Box(
            [*self.controls.values(), *self.buttons.values()],
            layout=widgets.Layout(flex_flow="row wrap", width="100%"),
        )
        words = [] if act is None else [self.words]
        super().__init__([widgets.HTML(BUSY), self.bar, *words, self.picture])
        self.add_class(f"labkit-{name}")
        self.add_class("labkit-live")
        self.first = self.values
        self.refresh()

    @property
    def values(self) -> dict[str, Any]:
        """The state: what `draw` is called with."""
        return {name: control.value for name, control in self.controls.items()}

    def change(self, **values: Any) -> None:
        """Set some of the controls, and draw once."""
        with self.quietly():
            for name, value in values.items():
                self.controls[name].value = value
        self.refresh()

    @contextmanager
    def quietly(self) -> Iterator[None]:
        """Within this context, changing a control draws nothing, and no word counts as clicked."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def reset(self) -> None:
        """Set all controls back to their first values."""
        if self.forgetting is not None:
            self.forgetting()
        self.change(**self.first)

    def refresh(self) -> None:
        """Draw the view of the state; for a state that is not allowed, show the reason instead."""
        self.drawn = self.values
        try:
            view = self.draw(**self.drawn)
            if not isinstance(view, View):
                raise TypeError(f"draw returned {shown(view)}: return a View, as View.of makes it")
            self._show(view)
        except ValueError as error:
            self._show(View.of(self.name, Problem(str(error))))
        except Exception as error:  # where a control was moved, Jupyter would only log it
            self._show(View.of(self.name, Problem(f"{type(error).__name__}: {error}")))
            raise

    def _show(self, view: View) -> None:
        """Show a view in the place of the one before."""
        self.shown = view
        self.picture.value = view.html
        if self.act is not None:
            self._offer()

    def _offer(self) -> None:
        """Offer the words of the picture as buttons, none of them pressed."""
        piece = self.shown.clickable
        choices = [] if piece is None else piece.choices[:MOST_WORDS]
        options = [(short(clean(word)) or "␣", key) for word, key in choices]
        said = "" if piece is None else ACTS[piece.act]
        if piece is not None and len(piece.choices) > MOST_WORDS:
            said += f" (the first {MOST_WORDS} of {len(piece.choices)} words)"
        if list(self.clickable.options) != options:
            self._renew(options)
        self.clickable.description = said

    def _renew(self, options: list[tuple[str, int]]) -> None:
        """Show other words; those before still answer, as a click on one may be on its way."""
        self.rows.append(self._row(options))
        self.words.children = self.rows[-1:] if options else []
        for old in self.rows[:-ANSWERING]:
            for part in (old, old.layout, old.style):
                part.close()
        del self.rows[:-ANSWERING]

    def _row(self, options: list[tuple[str, int]]) -> Any:
        """A row of buttons, none of them pressed."""
        row = widgets.ToggleButtons(options=options, index=None, layout={"width": "98%"})
        row.style.button_width = "auto"
        row.observe(self._clicked, names="index")
        return row

    @property
    def clickable(self) -> Any:
        """The row of words that is shown."""
        return self.rows[-1]

    def _clicked(self, change: Any) -> None:
        row, at = change["owner"], change["new"]
        if self.act is not None and at is not None:
            # The word that the button showed, though other words may have come since.
            self.act(row.options[at][1])
            row.index = None

    def _changed(self, change: Any) -> None:
        # A control that has moved another one is notified last, when the view is already drawn.
        if not self._quiet and self.values != self.drawn:
            self.refresh()

    @property
    def stored(self) -> dict[str, str]:
        """What a page shows without a kernel."""
        picture = f'<div class="labkit-stored">{as_images(self.shown.html)}</div>'
        return {"text/html": STORED + picture, "text/plain": self.shown.text}

    def recorded(self) -> dict[str, Any]:
        """What a page without a kernel needs to play the demo: the views of its states."""
        return written_states(self)

    def _ipython_display_(self) -> None:
        """Show the widget, and store its picture beside it.

        One output with both would show nothing but an error where the widget is gone: after a
        restart of the kernel the best format of an output is still the widget.
        """
        live = {WIDGET: {"version_major": 2, "version_minor": 0, "model_id": self.model_id}}
        display(live, raw=True)
        display(self.stored, raw=True, metadata=metadata(self.recorded))


def _button(label: str, act: Callable[[], None]) -> widgets.Button:
    """A button that a program finds by the class `labkit-LABEL`."""
    button = widgets.Button(description=label, tooltip=label)
    button.add_class(f"labkit-{label.replace(' ', '-')}")
    button.on_click(lambda _: act())
    return button


# ---- controls that look alike ------------------------------------------------------------------

WIDE = {"description_width": "9em"}
# ipywidgets 7 has another name for it.
TOOLTIP = (
    "tooltip" if "tooltip" in widgets.FloatSlider.class_trait_names() else "description_tooltip"
)


def text_box(label: str, value: str, rows: int = 2) -> widgets.Textarea:
    """A box for text."""
    return _control(
        widgets.Textarea, label, value=value, rows=rows, layout=widgets.Layout(width="98%")
    )


def slider(label: str, value: float, low: float, high: float, step: float) -> widgets.FloatSlider:
    """A slider for a number; its value is written beside it."""
    numbers = {"value": value, "min": low, "max": high, "step": step}
    return _control(widgets.FloatSlider, label, **numbers, readout_format=".2f")


def whole_slider(label: str, value: int, low: int, high: int) -> widgets.IntSlider:
    """A slider for a whole number."""
    return _control(widgets.IntSlider, label, value=value, min=low, max=high)


def choice(label: str, options: Sequence[str], value: str | None = None) -> widgets.Dropdown:
    """A choice of one name out of several."""
    first = options[0] if value is None else value
    return _control(widgets.Dropdown, label, options=list(options), value=first)


def _control(kind: type[widgets.Widget], label: str, **settings: Any) -> Any:
    """A control with its label, which is its tooltip as well."""
    return kind(description=label, style=WIDE, **{TOOLTIP: label}, **settings)
