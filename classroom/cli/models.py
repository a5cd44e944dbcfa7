"""Retrain a model that ships with the course, or train one on text of your own."""

import argparse
import importlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from classroom.cli.parser import (
    Parser,
    above_zero,
    fail,
    folder,
    leave_out,
    nearest,
    positive,
    say,
    unknown,
)

OWN = ("gpt", "bert", "classifier")
"""The models that can be trained on the user's own text."""


def train(parser: Parser, words: Sequence[str]) -> int:
    """Train a model and write its folder: weights, tokenizer, card."""
    add = parser.add_argument
    add("name", help="the model, such as gpt-village; with --text: gpt, bert or classifier")
    add("--output", type=folder, metavar="FOLDER",
        help="the folder to write [data/models/NAME; with --text runs/NAME]")  # fmt: skip
    add("--checkpoints", type=folder, metavar="FOLDER", help="store checkpoints here, so that the "
        "same command continues a run that was stopped (not with --text)")  # fmt: skip
    add("--text", metavar="FILES", help="your own text, such as 'books/*.txt', or, for a "
        "classifier, a table: .csv, .tsv or .jsonl")  # fmt: skip
    minutes = partial(above_zero, most=10_000, wanted="minutes, such as 10 or 0.5")
    add("--minutes", type=minutes, help="of gpt and bert: minutes of training [10]")
    add("--column", help="of a classifier: the column of texts [text]")
    add("--label", help="of a classifier: the column of labels [label]")
    add("--labels", type=positive, help="of a classifier: the labels to learn from [100]")
    args = parser.parse_args(words)
    if args.name != "classifier":
        leave_out("labkit train", args, ("column", "label", "labels"), "is for a classifier")
    if args.text is not None:
        return _own(args)
    from classroom.models import shipped_recipes
    from labkit.keeping.paths import data_path

    if args.name in OWN:
        asked = "reviews.csv" if args.name == "classifier" else "'books/*.txt'"
        fail(f"labkit train: {args.name} reads text of your own: give --text, such as {asked}")
    if args.minutes is not None:
        fail("labkit train: --minutes is for text of your own: give --text, or leave it out")
    if args.name not in shipped_recipes.RECIPES:
        fail(f"labkit train: {unknown('recipe', args.name, shipped_recipes.RECIPES)}")
    place = args.output or data_path("models") / args.name
    try:
        card = shipped_recipes.train(args.name, place, say, args.checkpoints)
    except (ValueError, MemoryError, FloatingPointError) as error:
        fail(f"labkit train: {error}")
    if not card:  # another process of torchrun has written it
        return 0
    lowest = "" if card["floor"] is None else f"lowest possible {card['floor']}, "
    print(f"{place}: {card['held_out']} {card['unit']} on held-out text, "
          f"{lowest}{card['minutes']} minutes")  # fmt: skip
    return 0


def _own(args: argparse.Namespace) -> int:
    """Train on the user's own text."""
    if args.name not in OWN:
        fail(f"labkit train: {args.name} cannot read --text{nearest(args.name, OWN)} "
             f"(choose {', '.join(OWN)})")  # fmt: skip
    if args.name == "classifier" and args.minutes is not None:
        fail("labkit train: a classifier takes as long as it needs: leave --minutes out")
    if args.checkpoints is not None:
        fail("labkit train: a run on text of your own is not kept: leave --checkpoints out")
    if os.environ.get("WORLD_SIZE", "1") != "1":
        fail("labkit train: --text takes one process: start it without torchrun")
    place = args.output or Path("runs") / args.name
    # The page and the card name both: refuse characters that no file can hold before training.
    f"{args.text}{place}".encode()
    try:
        if args.name == "classifier":
            labels = importlib.import_module("classroom.tasks.own_labels")
            columns = args.column or "text", args.label or "label"
            print(labels.train_classifier(args.text, *columns, place, args.labels or 100, say))
        else:
            own = importlib.import_module("classroom.tasks.own_text")
            card = own.train_on(args.name, args.text, args.minutes or 10.0, place, say)
            print(f"{place}: {card['held_out']} {card['unit']} on held-out text, "
                  f"{card['minutes']} minutes; see {place / 'page.html'}")  # fmt: skip
    except (FileNotFoundError, ValueError, MemoryError, FloatingPointError) as error:
        fail(f"labkit train: {error}")
    return 0
