"""What a view is made of: pieces of plain data, without HTML.

`rendering` draws them in Python and `pages/live/render.js` in a page; both give the same text.
"""

from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple


class Chip(NamedTuple):
    """A token of a text, what became of it, and a caption."""

    token: str
    kind: str = "plain"
    caption: str = ""


class Share(NamedTuple):
    """A number between 0 and 1, drawn as a bar beside its digits; None where there is none."""

    value: float | None

    def __str__(self) -> str:
        # A probability that a filter has set to zero is shown differently from a small one.
        return "–" if self.value is None else "0" if self.value == 0 else f"{self.value:.4f}"


class Interval(NamedTuple):
    """One line of `Intervals`: a mean with its interval, and the best that is possible."""

    name: str
    low: float
    mean: float
    high: float
    best: float | None
    label: str


@dataclass(frozen=True)
class Piece:
    """A part of a view; `as_data` gives it as JSON."""

    kind: ClassVar[str]

    def as_data(self) -> dict[str, Any]:
        """The piece in lists, numbers and texts."""
        named = {field.name: _plain(getattr(self, field.name)) for field in fields(self)}
        return {"kind": self.kind, **named}


def _plain(value: Any) -> Any:
    if isinstance(value, Share):
        return {"share": value.value}
    if isinstance(value, Piece):
        return value.as_data()
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: _plain(part) for name, part in value._asdict().items()}
    return [_plain(part) for part in value] if isinstance(value, tuple | list) else value


@dataclass(frozen=True)
class Heading(Piece):
    """The title of what follows."""

    kind = "heading"
    title: str


@dataclass(frozen=True)
class Note(Piece):
    """A sentence; programs find it by its name."""

    kind = "note"
    text: str
    name: str = "note"


@dataclass(frozen=True)
class Problem(Piece):
    """What is wrong and what to do, instead of a picture."""

    kind = "problem"
    text: str


@dataclass(frozen=True)
class Chips(Piece):
    """A text, token by token; `act` names what a click on one of them does."""

    kind = "chips"
    chips: tuple[Chip, ...]
    act: str = ""

    @property
    def choices(self) -> list[tuple[str, int]]:
        """The tokens with their positions, but for the special ones."""
        return [(chip.token, n) for n, chip in enumerate(self.chips) if chip.kind != "special"]


@dataclass(frozen=True)
class Table(Piece):
    """Rows of words and shares; one row may be marked, and a click on a row gives its key."""

    kind = "table"
    head: tuple[str, ...]
    rows: tuple[tuple[str | Share, ...], ...]
    name: str
    marked: int = -1
    act: str = ""
    keys: tuple[int, ...] = ()

    @property
    def choices(self) -> list[tuple[str, int]]:
        """The first cell of each row with the key of the row."""
        return [(str(row[0]), key) for row, key in zip(self.rows, self.keys, strict=True)]


@dataclass(frozen=True)
class Grid(Piece):
    """A mask [Q, K]: a row for each query, filled where it may attend to the key.

    `levels` holds 0 for an empty square, 1 for a filled one and 2 for one that is wrong.
    """

    kind = "grid"
    levels: tuple[tuple[int, ...], ...]
    across: tuple[str, ...]
    down: tuple[str, ...]
    title: str
    said: str


@dataclass(frozen=True)
class Shades(Piece):
    """Shares [Q, K] as squares: the fuller, the more.  The first columns may be a memory.

    If `small`, the map is drawn without labels.  The words below it show the row under the
    pointer, or else the row that is selected.
    """

    kind = "shades"
    shares: tuple[tuple[float, ...], ...]
    across: tuple[str, ...]
    down: tuple[str, ...]
    title: str
    selected: int = -1
    act: str = ""
    small: bool = False

    @property
    def choices(self) -> list[tuple[str, int]]:
        """The words of the rows with their numbers."""
        return [(word, n) for n, word in enumerate(self.down)]


@dataclass(frozen=True)
class Curve(Piece):
    """A line over steps, with a dashed line for a floor and a mark for one step.

    `frame` holds the first and last step and the lowest and highest value that have room, for a
    line that grows; without it the line fills the drawing.
    """

    kind = "curve"
    points: tuple[tuple[float, float], ...]
    said: str
    name: str
    low: str
    high: str
    last: str
    floor: tuple[float, str] | None = None
    mark: tuple[float, float] | None = None
    frame: tuple[float, float, float, float] | None = None


@dataclass(frozen=True)
class Intervals(Piece):
    """Several numbers on one axis: a dot, its interval, and a dashed mark for the best."""

    kind = "intervals"
    lines: tuple[Interval, ...]
    said: str


@dataclass(frozen=True)
class Lot(Piece):
    """A distribution as a bar, each word as wide as it is likely, and the number drawn."""

    kind = "lot"
    parts: tuple[tuple[str, float], ...]
    number: float
    drawn: int
    before: float
    """The sum of the words before the drawn one."""


@dataclass(frozen=True)
class Beside(Piece):
    """Pieces next to each other, as far as there is room."""

    kind = "beside"
    pieces: tuple[Piece, ...]
