"""Train a model that ships with the course anew, or one on text of your own."""

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from classroom.cli.parser import Parser, fail, nearest, say, unknown


def minutes(word: str) -> float:
    """A time of more than nothing, for an argument of that type."""
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number <= 10_000:
        raise argparse.ArgumentTypeError(f"{word!r}: give minutes, such as 10 or 0.5")
    return number


def train(parser: Parser, words: Sequence[str]) -> int:
    """Train a model and write its folder: weights, tokenizer, card."""
    parser.add_argument(
        "name", help="which one, such as gpt-village; with --text: gpt, bert or classifier"
    )
    parser.add_argument("--output", type=Path, help="the folder [data/models/NAME or runs/NAME]")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        metavar="FOLDER",
        help="keep the run here, so that the same command goes on with it",
    )
    parser.add_argument("--text", help='text of your own, such as "books/*.txt"; or a table')
    parser.add_argument("--minutes", type=minutes, default=10.0, help="how long [10]")
    parser.add_argument("--column", default="text", help="of a table: the column of the texts")
    parser.add_argument("--label", default="label", help="of a table: the column of the labels")
    args = parser.parse_args(words)
    if args.text is not None:
        return _own(args)
    from classroom import shipped
    from labkit.keeping.paths import data_path

    if args.name not in shipped.RECIPES:
        fail(f"labkit train: {unknown('recipe', args.name, shipped.RECIPES)}")
    folder = args.output or data_path("models") / args.name
    try:
        card = shipped.train(args.name, folder, say, args.checkpoints)
    except ValueError as error:
        fail(f"labkit train: {error}")
    lowest = "" if card["floor"] is None else f"lowest possible {card['floor']}, "
    print(f"{folder}: {card['held_out']} {card['unit']} on held-out text, "
          f"{lowest}{card['minutes']} minutes")  # fmt: skip
    return 0


def _own(args: argparse.Namespace) -> int:
    """Train on text of one's own."""
    known = ["gpt", "bert", "classifier"]
    if args.name not in known:
        fail(f"labkit train: {args.name} cannot read --text{nearest(args.name, known)} "
             f"(choose {', '.join(known)})")  # fmt: skip
    if args.checkpoints is not None:
        fail("labkit train: a run on text of your own is not kept: leave --checkpoints out")
    folder = args.output or Path("runs") / args.name
    try:
        if args.name == "classifier":
            labels = importlib.import_module("classroom.own_labels")
            print(labels.train_classifier(args.text, args.column, args.label, folder, say=say))
        else:
            own = importlib.import_module("classroom.own_text")
            card = own.train_on(args.name, args.text, args.minutes, folder, say)
            print(f"{folder}: {card['held_out']} {card['unit']} on held-out text, "
                  f"{card['minutes']} minutes; see {folder / 'page.html'}")  # fmt: skip
    except ValueError as error:
        fail(f"labkit train: {error}")
    return 0
