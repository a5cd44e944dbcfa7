"""`labkit costs`: the bill of a model, what money buys, and the recomputed tables."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from classroom.cli.parser import Parser, fail, leave_out, positive
from labkit.costs import bills
from labkit.costs import tables as cost_tables
from labkit.costs.bills import Affordable, Bill
from labkit.costs.formulas import formula_flop_per_token, rule_flop, short
from labkit.costs.training import BESIROGLU, HOFFMANN, HOFFMANN_UNROUNDED
from labkit.keeping.files import replacing

PICTURES = (".png", ".svg", ".pdf")
CONTEXTS = (512, 2048, 8192, 32768)


def costs(parser: Parser, words: Sequence[str]) -> int:
    """Print a bill, what a budget buys, or the recomputed tables."""
    add = parser.add_argument
    add("model", nargs="?", help="a published name such as gpt-3-175b, or a .json file of sizes")
    add("--gpu", default="a100", help="the device, a row of data/costs/hardware.csv [a100]")
    add("--count", type=positive, help="how many of them [1]")
    add("--mfu", type=float, default=0.4, help="share of the peak that is reached [0.4]")
    add("--price", type=above_zero, help="dollars for an hour of one device [that of the table]")
    add("--tokens", type=above_zero, help="tokens of training [those that were printed]")
    add("--budget", type=above_zero, help="dollars: what is the largest sensible model for them?")
    add("--tables", action="store_true", help="recompute the tables of data/costs")
    add("--figure", type=picture, metavar="FILE", help="draw the compute of all models: .png, "
        ".svg or .pdf")  # fmt: skip
    add("--json", action="store_true", help="print JSON")
    given = parser.parse_args(words)
    if not given.model and given.budget is None and not given.tables and not given.figure:
        fail("labkit costs: give a model, --budget, --tables or --figure FILE (or --help)")
    if given.json and (given.tables or given.figure):
        fail("labkit costs: --json is for a model or --budget: leave --tables and --figure out")
    if not given.model:
        leave_out("labkit costs", given, ("tokens", "count"), "is for a model, and none is named")
    return answer(given)


def above_zero(word: str) -> float:
    """Return a number above 0, for an argument of that type."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1e30:
        raise argparse.ArgumentTypeError(f"{word!r}: give a finite number above 0, such as 300e9")
    return number


def picture(word: str) -> str:
    """Return the name of a picture that can be drawn, for an argument of that type."""
    if Path(word).suffix.lower() not in PICTURES:
        raise argparse.ArgumentTypeError(f"{word}: give a name that ends in .png, .svg or .pdf")
    return word


def answer(given: argparse.Namespace) -> int:
    """Print what was asked for."""
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
    for best in offers:
        print(offer(best))
    if offers:
        print(f"\n{why_they_differ(offers[0].flop)}")
    if given.tables:
        print(tables())
    if given.figure:
        draw(given.figure)
    return 0


def why_they_differ(flop: float) -> str:
    """Say why two fits to the same runs advise different sizes for so many operations."""
    printed, unrounded, again = (
        law.optimum(flop).tokens / law.optimum(flop).parameters
        for law in (HOFFMANN, HOFFMANN_UNROUNDED, BESIROGLU)
    )
    close = ",\nnear the twenty that the paper is known for" if 15 <= again <= 25 else ""
    return (
        f"All fits are to the same runs. With the exponents that Hoffmann et al. printed, this\n"
        f"budget asks for {printed:.0f} tokens for each parameter; with the same exponents before\n"
        f"they were rounded, for {unrounded:.0f}. Besiroglu et al. fitted the same points again: "
        f"{again:.0f}{close}."
    )


def draw(name: str) -> None:
    """Write the figure of all models' compute to a file."""
    from classroom.figures import compute_by_model

    drawn = compute_by_model()
    try:
        with replacing(Path(name)) as draft:  # never a part of a picture
            drawn.savefig(draft, dpi=150, format=Path(name).suffix[1:].lower())
    except (OSError, ValueError) as error:
        fail(f"labkit costs: {name} cannot be written: {error}", code=1)
    print(f"drew {name}")


def receipt(bill: Bill) -> str:
    """A bill for a person to read."""
    active, share = bill.active_parameters, ""
    if active < bill.parameters:
        share = f", {short(active)} of them for each token"
    elif active > bill.parameters:
        share = f", used again in each layer: {short(active)} for each token"
    rows = [
        ("parameters", f"{short(bill.parameters)} ({bill.parameters:,}){share}"),
        ("training text", f"{bill.tokens:.3g} tokens"),
        ("operations (6 N D)", f"{bill.rule_flop:.3g} FLOP, {bill.petaflop_days:,.3g} PF-days"),
    ]
    if bill.formula_flop is not None:
        rows.append(("  with attention to all keys", f"{bill.formula_flop:.3g} FLOP"))
        rows.append(("  with those the mask leaves", f"{bill.masked_flop:.3g} FLOP"))
    rows += [
        ("weights, gradients, AdamW", f"{bill.state_bytes / 1e9:,.3g} GB"),
        ("machine", f"{bill.devices} x {bill.device} at {bill.mfu:.0%} of the peak"),
        ("time", f"{bill.days:,.3g} days"),
        ("rent", f"{bill.rent_dollars:,.0f} dollars ({bill.price})"),
        ("electricity", f"{bill.energy_kwh:,.0f} kWh"),
        ("carbon dioxide", f"{bill.co2_kg:,.0f} kg"),
    ]
    return "\n".join([bill.model, *(f"  {name:29}{value}" for name, value in rows)])


def offer(best: Affordable) -> str:
    """What a budget buys, for a person to read."""
    return (
        f"{best.law}: {short(round(best.parameters))} parameters, {best.tokens:.3g} tokens, loss "
        f"{best.loss:.2f} ({best.flop:.3g} FLOP in {best.device_hours:,.3g} hours of one device)"
    )


def tables() -> str:
    """The paper's tables and the lectures' figures, each beside what it gives when computed."""
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
        parts += [f"      {line}" for line in (row.source, row.note) if line]
    return "\n".join(parts[1:])


def agreement() -> list[str]:
    """How far 6 N D agrees with the count of every product, over size and context."""
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
    mark = "" if row.agrees else f"  <- {row.note}"
    return f"  {row.row:26}{row.column:22}{row.printed:>10}{row.computed:>10}{mark}"
