"""The sizes that were published: one row each, with the parameter count in print and its source.

The rows stand in data/costs/published.toml. `build(name)` gives the backbone of a row, by default
on the meta device, where even 175 billion parameters take no memory.  Its count is that of the
public release's base model, to the last parameter: embeddings and, in BERT's family, the pooler are
in, heads are not, and a weight that is used twice counts once.  Where the printed figure is
another, the row says why.

    python -m labkit.weights.published            prints the table
    python -m labkit.weights.published --store    writes the counts to data/costs/sizes.csv
    published.build("gpt2-xl")            1,557,611,200 parameters, on the meta device
"""

import contextlib
import csv
import functools
import sys
import textwrap
import tomllib
from dataclasses import dataclass, fields
from typing import Any

import torch

from labkit.blocks import Backbone
from labkit.costs import counting
from labkit.costs.formulas import Shape, short
from labkit.keeping.paths import data_path
from labkit.models.bert import BERTConfig
from labkit.models.gpt import GPTConfig
from labkit.weights.description import config_of, from_config
from labkit.weights.tensors import WithoutInitialisation


@dataclass(frozen=True)
class Published:
    """One published size."""

    name: str
    """As the release is called on the hub, or as the paper calls the model."""
    config: Any
    source: str
    """Where the count is printed, and where the sizes are."""
    printed: int | None = None
    """The parameter count in print; None where none is."""
    note: str = ""
    """Why the built model has another count, and what else a reader should know."""
    checked: str = "primary"
    """Where the printed count was checked, in the words of `labkit.costs.tables.CHECKED`."""


def read_rows() -> tuple[Published, ...]:
    """The rows of data/costs/published.toml."""
    text = data_path("costs", "published.toml").read_text(encoding="utf-8")
    found = []
    for name, given in tomllib.loads(text).items():
        config = config_of(given.pop("model"), given.pop("config"))
        found.append(Published(name, config, **given))
    return tuple(found)


ROWS = read_rows()


def row(name: str) -> Published:
    """The row of a name; the papers' way of writing it will do: "GPT-3 2.7B"."""
    key = name.lower().replace(" ", "-")
    for each in ROWS:
        if each.name == key:
            return each
    raise ValueError(
        f"no published size is called {name!r}: there are {', '.join(each.name for each in ROWS)}"
    )


def build(name: str, device: torch.device | str = "meta") -> Backbone:
    """The backbone of a published size, its weights newly drawn; on "meta", it has no numbers."""
    config = row(name).config
    # There is nothing to draw where there are no numbers.
    drawn = (
        WithoutInitialisation() if torch.device(device).type == "meta" else contextlib.nullcontext()
    )
    with torch.device(device), drawn:
        return from_config(config)


@functools.cache
def parameters(name: str) -> int:
    """The exact parameter count of the backbone."""
    return sum(parameter.numel() for parameter in build(name).parameters())


def shape_of(config: Any) -> Shape | None:
    """The sizes that the formulas need; None unless it is a GPT or a BERT.

    The formulas would be wrong for the others: Transformer-XL and XLNet also multiply queries by
    distances, and an adaptive softmax scores few of the words.
    """
    if not isinstance(config, GPTConfig | BERTConfig):
        return None
    experts = getattr(config, "experts", None) or 1
    return Shape(
        layers=config.layers,
        width=config.width,
        vocabulary=config.vocabulary,
        context=config.context,
        inner=config.inner,
        heads=config.heads,
        experts=experts,
        experts_used=getattr(config, "experts_used", 1) if experts > 1 else 1,
        causal=isinstance(config, GPTConfig),
        band=getattr(config, "band", None),
        embedding=getattr(config, "embedding", None),
    )


def sizes() -> list[dict[str, str]]:
    """The rows of data/costs/sizes.csv: what a bill needs, so that it need not build a model."""
    found = []
    for each in ROWS:
        counted, shape = counting.parameters(build(each.name)), shape_of(each.config)
        facts = {"name": each.name, "parameters": counted.total, "active": counted.active}
        facts |= {field.name: getattr(shape, field.name, None) for field in fields(Shape)}
        found.append({name: "" if value is None else str(value) for name, value in facts.items()})
    return found


def table() -> str:
    """All rows as a text to print."""
    lines = [f"{'name':24} {'printed':>9} {'exact':>19}  {'layers':>6} {'width':>6}"]
    for each in ROWS:
        shape = f"{each.config.layers:>6} {each.config.width:>6}"
        figures = f"{short(each.printed):>9} {parameters(each.name):>19,}  {shape}"
        lines.append(f"{each.name:24} {figures}")
        for text in (f"source ({each.checked}): {each.source}", each.note and f"note: {each.note}"):
            lines += [f"    {line}" for line in textwrap.wrap(text, 96)]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] == ["--store"]:
        with open(data_path("costs") / "sizes.csv", "w", newline="", encoding="utf-8") as file:
            rows = sizes()
            writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
    else:
        print(table())
