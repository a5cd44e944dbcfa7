"""Can you compete?  What training a model on some devices costs, and what a budget buys.

    bill("gpt-3-175b", machine("h100"), count=1024, mfu=0.4)
    afford(1000, machine("h100"))

Read `bill` first.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from labkit import checks
from labkit.costs import formulas
from labkit.costs import tables as cost_tables
from labkit.costs import training as costs
from labkit.costs.formulas import Shape
from labkit.keeping.files import read_json


@dataclass(frozen=True)
class Device:
    """One device, as `data/costs/hardware.csv` describes it."""

    name: str
    peak_flop_per_second: float
    watts: float
    dollars_per_hour: float
    price: str
    """Where the price is from, and of when."""
    memory_gb: float | None = None
    """None for a processor, whose memory is that of the machine."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion of the known name that is nearest to a wrong one, or nothing."""
    near = checks.nearest(name, known, cutoff=0.4)
    return f"did you mean {near}? " if near else ""


def machine(name: str) -> Device:
    """The device of that name."""
    rows = {row["name"]: row for row in cost_tables.read_table("hardware")}
    if name.lower() not in rows:
        raise ValueError(
            f"there is no device {name!r}: {did_you_mean(name.lower(), rows)}"
            f"give one of {', '.join(rows)}, or add a row to data/costs/hardware.csv"
        )
    row = rows[name.lower()]
    return Device(
        row["name"],
        float(row["peak_tflop_per_second"]) * 1e12,
        float(row["watts"]),
        float(row["dollars_per_hour"]),
        f"{row['price_source']}, {row['price_date']}",
        float(row["memory_gb"]) if row["memory_gb"] else None,
    )


class ModelSize(NamedTuple):
    """What a bill needs to know of a model."""

    name: str
    parameters: int
    active: int
    """How many are used for each token; a block of all layers counts once for each."""
    shape: Shape | None
    """None for a model that is neither a GPT nor a BERT: it has no closed formula here."""
    tokens: float | None
    """How many it was trained on, where that was printed."""
    doubt: str = ""
    """What another source says of these tokens."""


def model(name: str) -> ModelSize:
    """A published model by its name, or a reader's own from a JSON file of a `Shape`."""
    if name.endswith(".json"):
        shape = read_shape(Path(name))
        active = shape.parameters - shape.idle
        return ModelSize(Path(name).stem, shape.parameters, active, shape, None)
    table = cost_tables.read_table("sizes")
    names = [row["name"] for row in table]
    # Also without the ending: but "bert-base-cased" is no "bert-base-uncased".
    rows = {_plain(one): row for one, row in zip(names, table, strict=True)}
    rows |= {_letters(one): row for one, row in zip(names, table, strict=True)}
    if _letters(name) not in rows:
        raise ValueError(
            f"no published model is called {name!r}: {did_you_mean(name, names)}"
            f"There are {', '.join(names)}, or give the .json file of a model of your own"
        )
    row = rows[_letters(name)]
    count, active = int(row["parameters"]), int(row["active"])
    text = trained_on().get(_plain(row["name"]), TrainedOn(None, ""))
    return ModelSize(row["name"], count, active, _shape(row), *text)


def _shape(row: dict[str, str]) -> Shape | None:
    """The sizes in a row of data/costs/sizes.csv; None for what is not a Transformer."""
    if not row["layers"]:
        return None
    sizes: dict[str, Any] = {
        field.name: row[field.name] == "True" if field.name == "causal" else int(row[field.name])
        for field in fields(Shape)
        if row[field.name]
    }
    return Shape(**sizes)


def _letters(name: str) -> str:
    """Letters and digits of a name: gpt3-175b and GPT-3 175B are the same."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _plain(name: str) -> str:
    """The same without the ending "cased" or "uncased" of a release."""
    return re.sub(r"(un)?cased$", "", _letters(name))


class TrainedOn(NamedTuple):
    """How many tokens a model was trained on, and what another source says of that."""

    tokens: float | None
    doubt: str


def trained_on() -> dict[str, TrainedOn]:
    """Training tokens of the models of Table D.1 of Brown et al. 2020."""
    rows = cost_tables.read_table("table_d1")
    return {
        _plain(row["model"]): TrainedOn(float(row["tokens_billion"]) * 1e9, row["tokens_note"])
        for row in rows
    }


def ready() -> list[str]:
    """The published models whose number of tokens is in the tables: `bill` need not be told it."""
    known = trained_on()
    return [row["name"] for row in cost_tables.read_table("sizes") if _plain(row["name"]) in known]


LARGEST = 10**9
"""The largest size of a model that a file may give."""


def read_shape(path: Path) -> Shape:
    """A shape from a JSON file such as {"layers": 12, "width": 768, "vocabulary": 50257, ...}."""
    try:
        given = read_json(path)
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    allowed = list(Shape.__dataclass_fields__)
    for name in given:
        if name not in allowed:
            near = did_you_mean(name, allowed)
            raise ValueError(f"{path}: there is no size {checks.shown(name)}: {near}There are "
                             f"{', '.join(allowed)}")  # fmt: skip
    missing = [size for size in ("layers", "width", "vocabulary", "context") if size not in given]
    if missing:
        said = f"{', '.join(missing)} missing"
        raise ValueError(f"{path}: {said}; the sizes are {', '.join(allowed)}")
    for name, value in given.items():
        kind, wanted = (bool, "true or false") if name == "causal" else (int, "a whole number")
        if type(value) is not kind:
            raise ValueError(f"{path}: {name} is {checks.shown(value)}: give {wanted}")
        if value > LARGEST:
            raise ValueError(f"{path}: {name} is {checks.shown(value)}: give at most {LARGEST:,}")
    return Shape(**given)


class Bill(NamedTuple):
    """What one training run takes. Units are in the names."""

    model: str
    parameters: int
    active_parameters: int
    tokens: float
    rule_flop: float
    """6 N D, the one that the rest is computed from."""
    formula_flop: float | None
    """With attention to all of the context, where there is a closed formula."""
    masked_flop: float | None
    """The same without what the mask forbids: half of the scores in a causal model."""
    petaflop_days: float
    state_bytes: float
    """Weights, gradients and optimizer: 16 bytes for each parameter."""
    fewest_devices: int | None
    """How many devices it takes to hold these bytes, without the activations."""
    device: str
    devices: int
    mfu: float
    days: float
    rent_dollars: float
    energy_kwh: float
    co2_kg: float
    price: str
    text: str
    """Where the number of tokens is from."""
    doubt: str
    """What another source says of that number."""


def bill(
    name: str,
    device: Device,
    *,
    count: int = 1,
    mfu: float = 0.4,
    tokens: float | None = None,
    dollars_per_hour: float | None = None,
) -> Bill:
    """What it takes to train a model, published or your own, on `count` devices."""
    what = model(name)
    text, doubt = (
        ("as given", "") if tokens is not None else ("Table D.1 of Brown et al. 2020", what.doubt)
    )
    tokens = what.tokens if tokens is None else tokens
    if tokens is None:
        raise ValueError(
            f"how many tokens {what.name} was trained on is not in the tables: give --tokens, "
            "such as 300e9"
        )
    flop = formulas.rule_flop(what.active, tokens)
    days = costs.training_days(
        flop, peak_flop_per_second=device.peak_flop_per_second, mfu=mfu, count=count
    )
    price = device.dollars_per_hour if dollars_per_hour is None else dollars_per_hour
    kwh = costs.energy_kwh(days, count=count, watts=device.watts)
    return Bill(
        model=what.name,
        parameters=what.parameters,
        active_parameters=what.active,
        tokens=tokens,
        rule_flop=flop,
        formula_flop=_formula_flop(what.shape, tokens, masked=False),
        masked_flop=_formula_flop(what.shape, tokens, masked=True),
        petaflop_days=costs.petaflop_days(flop),
        state_bytes=16 * what.parameters,
        fewest_devices=holders(16 * what.parameters, device),
        device=device.name,
        devices=count,
        mfu=mfu,
        days=days,
        rent_dollars=costs.rent_dollars(days, count=count, dollars_per_hour=price),
        energy_kwh=kwh,
        co2_kg=costs.co2_kg(kwh),
        price=device.price if dollars_per_hour is None else "the price as given",
        text=text,
        doubt=doubt,
    )


def holders(size: float, device: Device) -> int | None:
    """How many devices have memory for so many bytes; None where their memory is not known."""
    return None if device.memory_gb is None else math.ceil(size / (device.memory_gb * 1e9))


def _formula_flop(shape: Shape | None, tokens: float, *, masked: bool) -> float | None:
    """The operations by the closed formula, where there is one."""
    if shape is None:
        return None
    return formulas.formula_flop_per_token(shape, masked=masked) * tokens


class Affordable(NamedTuple):
    """The best model for some money, by one published fit."""

    law: str
    flop: float
    parameters: float
    tokens: float
    loss: float
    device_hours: float


SMALLEST = 1e6
"""Below this many parameters the published fits say nothing: their smallest run had 44 million."""


def afford(
    dollars: float, device: Device, *, mfu: float = 0.4, dollars_per_hour: float | None = None
) -> list[Affordable]:
    """The largest sensible model for a budget, by both fits to the runs of Chinchilla."""
    price = device.dollars_per_hour if dollars_per_hour is None else dollars_per_hour
    checks.check_above_zero(dollars=dollars, dollars_per_hour=price)
    costs.share(mfu=mfu)
    hours = dollars / price
    flop = hours * 3600 * device.peak_flop_per_second * mfu
    found = [(law, law.optimum(flop)) for law in (costs.HOFFMANN, costs.BESIROGLU)]
    if min(best.parameters for _, best in found) < SMALLEST:
        raise ValueError(
            f"{dollars:g} dollars buy {hours:.2g} hours of {device.name}: too little for any model "
            f"that the published fits speak of ({SMALLEST:.0e} parameters and more)"
        )
    return [Affordable(law.name, flop, *best, device_hours=hours) for law, best in found]
