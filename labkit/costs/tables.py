"""The tables of `data/costs`, recomputed.

`cells.csv` and `hardware.csv` hold what was published, each with its source. `derived.csv` is a
small spreadsheet over them: each row has a formula in plain arithmetic, what was reported, and
the band in which estimate / reported must lie. The three tables of the GPT-3 paper are recomputed
from their own columns.
"""

import ast
import csv
import math
import operator
import re
from collections.abc import Callable, Iterator
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import NamedTuple

from labkit.costs.formulas import Shape
from labkit.costs.training import PETAFLOP_PER_SECOND, SECONDS_PER_DAY, petaflop_days
from labkit.keeping.paths import data_path

CHECKED = {
    "primary": "read in the paper, data sheet or price list itself",
    "secondary": "read in the lectures or in another text that reports it",
    "memory": "not looked up: check it before you cite it",
    "computed": "computed by this course",
}
"""What the column `checked` of `data/costs` says of a figure."""

Row = dict[str, str]
Cells = dict[str, float]


def read_table(name: str) -> list[Row]:
    """The rows of one file of data/costs."""
    with open(data_path("costs", f"{name}.csv"), newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def cells() -> Cells:
    """Every published number as `name.quantity`, hardware included."""
    found = {f"{row['name']}.{row['quantity']}": float(row["value"]) for row in read_table("cells")}
    for row in read_table("hardware"):
        for quantity in ("peak_tflop_per_second", "memory_gb", "watts", "dollars_per_hour"):
            if row[quantity]:
                found[f"{row['name']}.{quantity}"] = float(row[quantity])
    return found


# ---- a spreadsheet in thirty lines -------------------------------------------------------------

OPERATORS: dict[type[ast.AST], Callable[..., float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
}
NAME = re.compile(r"[a-z][a-z0-9-]*\.[a-z_0-9]*[a-z][a-z_0-9]*")


def compute(formula: str, known: Cells) -> float:
    """The value of a formula of numbers, `name.quantity` cells and + - * / ** ( )."""

    def put(match: re.Match[str]) -> str:
        if match[0] not in known:
            raise ValueError(f"{formula!r}: there is no cell {match[0]!r} in data/costs/cells.csv")
        return f"({known[match[0]]!r})"  # a power of a cell below 0 is that of the whole cell

    def value(node: ast.AST) -> float:
        match node:
            case ast.Constant(value=int() | float() as number):
                return float(number)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(left), value(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in OPERATORS:
                return OPERATORS[type(op)](value(operand))
        raise ValueError(f"{formula!r}: only numbers, cells and + - * / ** ( ) are allowed")

    try:
        tree = ast.parse(NAME.sub(put, formula), mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{formula!r} is not a formula: {error.msg}") from error
    return value(tree.body)


class Derived(NamedTuple):
    """One row of derived.csv, computed."""

    name: str
    quantity: str
    estimate: float
    reported: float
    unit: str
    low: float
    high: float
    source: str
    checked: str
    """Where the reported figure was checked: one of `CHECKED`."""
    note: str

    @property
    def ratio(self) -> float:
        """Estimate / reported."""
        return self.estimate / self.reported

    @property
    def holds(self) -> bool:
        """Whether the ratio lies in the band that the row states."""
        return self.low <= self.ratio <= self.high


def derived() -> Iterator[Derived]:
    """All rows of derived.csv, computed from the cells."""
    known = cells()
    for row in read_table("derived"):
        yield Derived(
            row["name"],
            row["quantity"],
            compute(row["formula"], known),
            float(row["reported"]),
            row["unit"],
            float(row["low"]),
            float(row["high"]),
            row["source"],
            row["checked"],
            row["note"],
        )


# ---- the tables of the GPT-3 paper -------------------------------------------------------------


class Recomputed(NamedTuple):
    """One printed figure beside the one that its row gives."""

    row: str
    column: str
    printed: str
    computed: str
    agrees: bool
    note: str


def _row(name: str, column: str, printed: str, computed: str, note: str) -> Recomputed:
    agrees = float(printed) == float(computed)
    return Recomputed(name, column, printed, computed, agrees, "" if agrees else note)


def _three_digits(number: Decimal) -> str:
    """As the paper prints it: 5.325E+20 becomes 5.33E+20, which a binary float would miss."""
    with localcontext(Context(prec=3, rounding=ROUND_HALF_UP)):
        return f"{float(+number):.2E}"


def table_d1() -> Iterator[Recomputed]:
    """Table D.1 of Brown et al. 2020: operations of each model from its own columns."""
    for row in read_table("table_d1"):
        flop = Decimal(row["parameters_million"]) * Decimal(row["tokens_billion"])
        flop *= Decimal(row["flop_per_parameter_and_token"]) * 10**15
        yield _row(row["model"], "flop", row["flop"], _three_digits(flop), row["note"])
        days = _three_digits(flop / Decimal(PETAFLOP_PER_SECOND * SECONDS_PER_DAY))
        yield _row(row["model"], "PF-days", row["pf_days"], days, row["note"])
        parts = ("backward_multiplier", "forward_flop_per_active_parameter", "active_share")
        product = math.prod(float(row[part]) for part in parts)
        printed = row["flop_per_parameter_and_token"]
        yield _row(row["model"], "flop per parameter", printed, f"{product:g}", row["note"])


def shape(row: Row) -> Shape:
    """A row of Table 2.1 with GPT-2's vocabulary and the context of all GPT-3s."""
    return Shape(int(row["layers"]), int(row["width"]), vocabulary=50257, context=2048)


def table_21() -> Iterator[Recomputed]:
    """Table 2.1 of Brown et al. 2020: parameters and widths from the shapes."""
    for row in read_table("table_21"):
        number, unit = row["printed_parameters"][:-1], row["printed_parameters"][-1]
        count = shape(row).parameters / {"M": 1e6, "B": 1e9}[unit]
        digits = len(number.partition(".")[2])
        yield _row(row["model"], "parameters", number, f"{count:.{digits}f}", row["note"])
        width = str(int(row["heads"]) * int(row["head_width"]))
        yield _row(row["model"], "heads x head width", row["width"], width, row["note"])


def table_22() -> Iterator[Recomputed]:
    """Table 2.2 of Brown et al. 2020: epochs of 300 billion tokens, from weights and quantities."""
    for row in read_table("table_22"):
        epochs = 300 * float(row["weight_percent"]) / 100 / float(row["tokens_billion"])
        digits = len(row["printed_epochs"].partition(".")[2])
        printed = row["printed_epochs"]
        yield _row(row["dataset"], "epochs", printed, f"{epochs:.{digits}f}", row["note"])


# ---- compute by model --------------------------------------------------------------------------


class Compute(NamedTuple):
    """What one model took to train."""

    model: str
    family: str
    petaflop_days: float


def compute_by_model() -> list[Compute]:
    """Training compute in the order of the lectures: GPT, BERT, RoBERTa, T5, GPT-3, GPT-4."""
    known = {f"{row.name}.{row.quantity}": row.estimate for row in derived()}
    paper = {family: list[Compute]() for family in ("BERT", "RoBERTa", "T5", "GPT-3")}
    for row in read_table("table_d1"):
        flop = float(row["parameters_million"]) * float(row["tokens_billion"]) * 1e15
        days = petaflop_days(flop * float(row["flop_per_parameter_and_token"]))
        family = next(name for name in paper if row["model"].startswith(name))
        paper[family].append(Compute(row["model"], family, days))
    first = Compute("GPT", "GPT and GPT-4", known["gpt.pf_days"])
    last = Compute("GPT-4 (rumour)", "GPT and GPT-4", known["gpt-4.pf_days"])
    return [first, *(row for rows in paper.values() for row in rows), last]
