"""Train a model that ships with the course anew."""

from collections.abc import Sequence
from pathlib import Path

from classroom.cli.parser import Parser, fail, unknown


def train(parser: Parser, words: Sequence[str]) -> int:
    """Train a model by its recipe and write its folder: weights, tokenizer, card."""
    parser.add_argument("name", help="which one, such as gpt-village")
    parser.add_argument("--output", type=Path, help="the folder [data/models/NAME]")
    parser.add_argument(
        "--checkpoints",
        type=Path,
        metavar="FOLDER",
        help="keep the run here, so that the same command goes on with it",
    )
    args = parser.parse_args(words)
    from classroom import shipped
    from labkit.paths import data_path

    if args.name not in shipped.RECIPES:
        fail(f"labkit train: {unknown('recipe', args.name, shipped.RECIPES)}")
    folder = args.output or data_path("models") / args.name
    card = shipped.train(args.name, folder, lambda line: print(line, flush=True), args.checkpoints)
    print(f"{folder}: {card['held_out']} {card['unit']} on held-out text, "
          f"lowest possible {card['floor']}, {card['minutes']} minutes")  # fmt: skip
    return 0
