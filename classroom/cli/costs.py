"""`labkit costs`: the bill of a model, what money buys, and the recomputed tables."""

import argparse
import json
import textwrap
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from classroom.cli.parser import Parser, above_zero, fail, leave_out, positive
from labkit.costs import bills
from labkit.costs import tables as cost_tables
from labkit.costs.bills import Affordable, Bill
from labkit.costs.formulas import formula_flop_per_token, rule_flop, short
from labkit.costs.training import BESIROGLU, HOFFMANN, HOFFMANN_UNROUNDED
from labkit.keeping.files import replacing

PICTURES = (".png", ".svg", ".pdf")
CONTEXTS = (512, 2048, 8192, 32768)
WIDTH = 100
"""The columns of a line, at most."""


def costs(parser: Parser, words: Sequence[str]) -> int:
    """Print a bill, what a budget buys, or the recomputed tables."""
    add = parser.add_argument
    add("model", nargs="?", help="a published model, such as gpt-3-175b, or a .json file of sizes")
    add("--gpu", default="a100", help="the device, a row of data/costs/hardware.csv [a100]")
    add("--count", type=positive, help="the number of devices [1]")
    add("--mfu", type=float, default=0.4, help="the share of the peak that is reached [0.4]")
    add("--price", type=above_zero, metavar="DOLLARS",
        help="dollars per hour of one device [as in the table of devices]")  # fmt: skip
    add("--tokens", type=above_zero, help="the number of training tokens; for an "
        "encoder-decoder, those of both texts [as published]")  # fmt: skip
    add("--budget", type=above_zero, metavar="DOLLARS",
        help="print the best model for this many dollars")  # fmt: skip
    add("--tables", action="store_true", help="recompute the tables of data/costs")
    add("--figure", type=picture, metavar="FILE", help="draw the compute of all models: .png, "
        ".svg or .pdf")  # fmt: skip
    add("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(words)
    if not given.model and given.budget is None and not given.tables and not given.figure:
        fail("labkit costs: give a model, --budget, --tables or --figure FILE (or --help)")
    if given.json and (given.tables or given.figure):
        fail("labkit costs: --json is for a model or --budget: leave --tables and --figure out")
    if not given.model:
        leave_out("labkit costs", given, ("tokens", "count"), "is for a model, and none is named")
    if not given.model and given.budget is None:
        leave_out("labkit costs", given, ("price",), "is for a model or --budget")
    return answer(given)


def picture(word: str) -> str:
    """Return the name of a picture that can be drawn, for an argument of that type."""
    if Path(word).suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(f"{word}: give a name that ends in .png, .svg or .pdf")
    return word


def answer(given: argparse.Namespace) -> int:
    """Print the bill of a model, or what a budget buys."""
    try:
        device = bills.machine(given.gpu)
        owed, offers = list[Bill](), list[Affordable]()
        if given.model:
            owed = [bills.bill(
                given.model, device, count=given.count or 1, mfu=given.mfu, tokens=given.tokens,
                dollars_per_hour=given.price,
            )]  # fmt: skip
        if given.budget is not None:
            offers = bills.afford(given.budget, device, mfu=given.mfu, dollars_per_hour=given.price)
    except ValueError as error:
        fail(f"labkit costs: {error}")
    if given.json:
        rows = [bill._asdict() for bill in owed] + [best._asdict() for best in offers]
        print(json.dumps(rows, indent=2))
        return 0
    for bill in owed:
        print(receipt(bill))
    if offers:
        print(bought(given, offers[0]))
        print("\n".join(offer(best) for best in offers))
        print(f"\n{why_they_differ(offers[0].flop)}")
    if given.tables:
        print(tables())
    if given.figure:
        draw(given.figure)
    return 0


def why_they_differ(flop: float) -> str:
    """Explain why two fits to the same runs advise different sizes for this many operations."""
    printed, unrounded, again = (
        law.optimum(flop).tokens / law.optimum(flop).parameters
        for law in (HOFFMANN, HOFFMANN_UNROUNDED, BESIROGLU)
    )
    known = ", near" if 15 < again < 30 else "; at the budgets of the paper it is near"
    return textwrap.fill(
        "All fits are to the same runs. With the exponents that Hoffmann et al. printed, this "
        f"budget asks for {printed:,.0f} tokens for each parameter; with the same exponents "
        f"before they were rounded, for {unrounded:,.0f}. Besiroglu et al. fitted the same "
        f"points again: {again:,.0f}{known} the twenty that the paper is known for.",
        WIDTH,
    )


def draw(name: str) -> None:
    """Write the figure of all models' compute to a file."""
    from classroom.charts.figures import compute_by_model

    drawn = compute_by_model()
    try:
        with replacing(Path(name)) as draft:  # never a part of a picture
            drawn.savefig(draft, dpi=150, format=Path(name).suffix[1:].lower())
    except (OSError, ValueError) as error:
        fail(f"labkit costs: {name} cannot be written: {error}", code=1)
    print(f"drew {name}")


def amount(number: float) -> str:
    """Return an amount with commas, or three digits of one that is small or huge."""
    return f"{number:,.0f}" if 100 <= number < 1e12 else f"{number:.3g}"


def percent(share: float) -> str:
    """Return a share in percent with up to three digits, so that a small one is not 0%."""
    return f"{100 * share:.3g}%"


def receipt(bill: Bill) -> str:
    """Return a bill as text."""
    active, share = bill.active_parameters, ""
    if active < bill.parameters:
        share = f", {short(active)} of them for each token"
    elif active > bill.parameters:
        share = f", used again in each layer: {short(active)} for each token"
    rows = [
        ("parameters", f"{short(bill.parameters)} ({bill.parameters:,}){share}"),
        ("training text", f"{bill.tokens:.3g} tokens ({bill.text})"),
        ("operations (6 N D)", f"{bill.rule_flop:.3g} FLOP, {amount(bill.petaflop_days)} PF-days"),
    ]
    if bill.formula_flop is not None:
        rows.append(("  with attention to all keys", f"{bill.formula_flop:.3g} FLOP"))
        rows.append(("  with keys the mask allows", f"{bill.masked_flop:.3g} FLOP"))
    rows[2:2] = [("", line) for line in textwrap.wrap(bill.doubt, WIDTH - 31)]
    rows += [
        ("weights, gradients, AdamW", f"{amount(bill.state_bytes / 1e9)} GB{too_few(bill)}"),
        ("machine", f"{bill.devices:,} x {bill.device} at {percent(bill.mfu)} of the peak"),
        ("time", f"{amount(bill.days)} days"),
        ("rent", f"{amount(bill.rent_dollars)} dollars"),
        ("  price of an hour", bill.price),
        ("electricity", f"{amount(bill.energy_kwh)} kWh"),
        ("carbon dioxide", f"{amount(bill.co2_kg)} kg"),
    ]
    return "\n".join([bill.model, *(f"  {name:29}{value}" for name, value in rows)])


def too_few(bill: Bill) -> str:
    """Say how many devices can hold the weights and their training state, if these cannot."""
    if bill.fewest_devices is None or bill.fewest_devices <= bill.devices:
        return ""
    return f": the memory of {bill.fewest_devices:,} such devices, more than the machine has"


def bought(given: argparse.Namespace, best: Affordable) -> str:
    """Return as text how many hours and operations a budget buys."""
    return (
        f"{amount(given.budget)} dollars buy {amount(best.device_hours)} hours of one {given.gpu}: "
        f"{best.flop:.3g} FLOP at {percent(given.mfu)} of the peak"
    )


def offer(best: Affordable) -> str:
    """Return as text which model a budget buys."""
    return (
        f"{best.law}: {short(round(best.parameters))} parameters, {best.tokens:.3g} tokens, "
        f"loss {best.loss:.2f} nats per token"
    )


def tables() -> str:
    """The paper's tables and the lectures' figures, each beside its recomputed value."""
    parts = []
    for title, table in (
        ("Table D.1 of the GPT-3 paper: operations", cost_tables.table_d1),
        ("Table 2.1: sizes", cost_tables.table_21),
        ("Table 2.2: epochs", cost_tables.table_22),
    ):
        parts += ["", title, f"  {'row':26}{'column':22}{'printed':>10}{'computed':>10}"]
        parts += [_printed(row) for row in table()]
    parts += ["", *agreement(), ""]
    parts += ["Figures of the lectures and papers, computed from other figures"]
    parts += [f"  {'':44}{'computed':>12}{'reported':>12}{'ratio':>8}"]
    for row in cost_tables.derived():
        name = f"{row.name}: {row.quantity.replace('_', ' ')} [{row.unit}]"
        parts.append(f"  {name:44}{row.estimate:>12.4g}{row.reported:>12.4g}{row.ratio:>8.3f}")
        parts += [_indented(text) for text in (row.source, row.note) if text]
    return "\n".join(parts[1:])


def agreement() -> list[str]:
    """How close 6 N D is to the count of all products, by size and context."""
    head = "".join(f"{context:>9}" for context in CONTEXTS)
    lines = ["6 N D as a share of all operations, attention included", f"  {'row':26}{head}"]
    for row in cost_tables.read_table("table_21"):
        shares = []
        for context in CONTEXTS:
            shape = replace(cost_tables.shape(row), context=context)
            full = formula_flop_per_token(shape)
            shares.append(f"{rule_flop(shape.parameters, 1) / full:>9.1%}")
        lines.append(f"  {row['model']:26}{''.join(shares)}")
    return lines


def _printed(row: cost_tables.Recomputed) -> str:
    line = f"  {row.row:26}{row.column:22}{row.printed:>10}{row.computed:>10}"
    return line if row.agrees else f"{line}  <-\n{_indented(row.note)}"


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
