"""A demo is a pure function from a state to a view; the widget around it only holds the state.

In JupyterLab the widget is live.  Everywhere else (an exported page, a test, a screen reader) the
same view is there as static HTML and as plain text.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ipywidgets as widgets

from classroom.demos.drawing import View, as_images, page, problem

WIDGET = "application/vnd.jupyter.widget-view+json"


class Demo(widgets.VBox):
    """Controls, and below them what `draw` makes of their values.

    Programs find it by the class `labkit-NAME`, a control by `labkit-CONTROL`.
    """

    # ipywidgets 7 (Colab) would display itself and never ask for the stored picture.
    _ipython_display_ = None

    def __init__(
        self,
        name: str,
        draw: Callable[..., View],
        controls: Mapping[str, widgets.Widget],
        buttons: Mapping[str, Callable[[], None]] | None = None,
    ) -> None:
        self.name, self.draw, self.controls = name, draw, dict(controls)
        self.shown = View("", "")
        self.drawn: dict[str, Any] = {}
        self.picture = widgets.HTML()
        self.picture.add_class("labkit-picture")
        self.buttons = {label: _button(label, act) for label, act in (buttons or {}).items()}
        for key, control in self.controls.items():
            control.add_class(f"labkit-{key}")
            control.observe(self._changed, names="value")
        self._quiet = False
        bar = widgets.Box(
            [*self.controls.values(), *self.buttons.values()],
            layout=widgets.Layout(flex_flow="row wrap", width="100%"),
        )
        super().__init__([bar, self.picture])
        self.add_class(f"labkit-{name}")
        self.refresh()

    @property
    def values(self) -> dict[str, Any]:
        """The state: what `draw` is called with."""
        return {name: control.value for name, control in self.controls.items()}

    def change(self, **values: Any) -> None:
        """Set some of the controls, and draw once."""
        self._quiet = True
        try:
            for name, value in values.items():
                self.controls[name].value = value
        finally:
            self._quiet = False
        self.refresh()

    def refresh(self) -> None:
        """Draw what the state says; a state that is not allowed says so in its place."""
        self.drawn = self.values
        try:
            self.shown = self.draw(**self.drawn)
        except ValueError as error:
            self.shown = page(self.name, problem(str(error)))
        self.picture.value = self.shown.html

    def _changed(self, change: Any) -> None:
        # A control that has pushed another one is told last: by then all is drawn.
        if not self._quiet and self.values != self.drawn:
            self.refresh()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        live = {"version_major": 2, "version_minor": 0, "model_id": self.model_id}
        still = as_images(self.shown.html)
        return {WIDGET: live, "text/html": still, "text/plain": self.shown.text}


def _button(label: str, act: Callable[[], None]) -> widgets.Button:
    """A button that a program finds by the class `labkit-LABEL`."""
    button = widgets.Button(description=label, tooltip=label)
    button.add_class(f"labkit-{label.replace(' ', '-')}")
    button.on_click(lambda _: act())
    return button


# ---- controls that look alike ------------------------------------------------------------------

WIDE = {"description_width": "9em"}
# ipywidgets 7 has another name for it.
TOOLTIP = "tooltip" if "tooltip" in widgets.FloatSlider.class_trait_names() else (
    "description_tooltip"
)  # fmt: skip


def text_box(label: str, value: str, rows: int = 2) -> widgets.Textarea:
    """A box to write in."""
    return widgets.Textarea(
        value=value,
        description=label,
        rows=rows,
        style=WIDE,
        layout=widgets.Layout(width="98%"),
        **{TOOLTIP: label},
    )


def slider(label: str, value: float, low: float, high: float, step: float) -> widgets.FloatSlider:
    """A number to slide; what it stands at is written beside it."""
    return widgets.FloatSlider(
        value=value,
        min=low,
        max=high,
        step=step,
        description=label,
        style=WIDE,
        **{TOOLTIP: label},
        readout_format=".2f",
    )


def whole_slider(label: str, value: int, low: int, high: int) -> widgets.IntSlider:
    """A whole number to slide."""
    return widgets.IntSlider(
        value=value, min=low, max=high, description=label, style=WIDE, **{TOOLTIP: label}
    )


def choice(label: str, options: Sequence[str], value: str | None = None) -> widgets.Dropdown:
    """One of several names."""
    return widgets.Dropdown(
        options=list(options),
        value=options[0] if value is None else value,
        description=label,
        style=WIDE,
        **{TOOLTIP: label},
    )
