"""`labkit costs`: parameters, operations, days, dollars and carbon of a model."""

from collections.abc import Sequence

from classroom.cli.parser import Parser, fail


def costs(parser: Parser, words: Sequence[str]) -> int:
    """Print a bill, what a budget buys, or the recomputed tables."""
    add = parser.add_argument
    add("model", nargs="?", help="a published name such as gpt3-175b, or a .json file of sizes")
    add("--gpu", default="a100", help="the device, a row of data/costs/hardware.csv (a100)")
    add("--count", type=int, default=1, help="how many of them (1)")
    add("--mfu", type=float, default=0.4, help="share of the peak that is reached (0.4)")
    add("--price", type=float, help="dollars for an hour of one device (that of the table)")
    add("--tokens", type=float, help="tokens of training (those that were printed)")
    add("--budget", type=float, help="dollars: what is the largest sensible model for them?")
    add("--tables", action="store_true", help="recompute the tables of data/costs")
    add("--figure", metavar="FILE", help="draw the compute of all models: .png, .svg or .pdf")
    add("--json", action="store_true", help="for a machine to read")
    given = parser.parse_args(words)
    if not given.model and given.budget is None and not given.tables and not given.figure:
        fail("labkit costs: give a model, --budget, --tables or --figure FILE (or --help)")
    from classroom.cli.receipts import answer

    return answer(given)
