"""How well models, counted pieces and a compressor predict the held-out addresses."""

from collections.abc import Mapping, Sequence

from classroom.tasks import realtext
from labkit.text.tokenizers import Tokenizer

MEASURED_ADDRESSES = (5, 55, 105, 155, 205, 235)


def measured_addresses() -> list[realtext.Address]:
    """The held-out addresses that a card reports on."""
    return [one for one in realtext.addresses() if one.number in MEASURED_ADDRESSES]


def five_gram(tokenizer: Tokenizer) -> realtext.KneserNey:
    """A Kneser-Ney model of five pieces, which has read the other addresses."""
    known = [tokenizer.encode(text) for text in realtext.texts(held_out=False)]
    return realtext.KneserNey(known, len(tokenizer))


def five_gram_losses(tokenizer: Tokenizer, tests: Sequence[realtext.Address]) -> list[float]:
    """Nats per byte of `five_gram` on each of these addresses."""
    five = five_gram(tokenizer)
    logs = [five.log_probabilities(tokenizer.encode(one.text)).sum() for one in tests]
    return [float(-log / len(one.text.encode())) for one, log in zip(tests, logs, strict=True)]


def xz(tests: Sequence[realtext.Address]) -> list[float]:
    """Nats per byte of the compressor `xz`, which has read the other addresses."""
    return realtext.xz(realtext.texts(held_out=False), [one.text for one in tests])


def others_of_addresses(tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """What else can predict the held-out addresses: five pieces at a time, and a compressor."""
    tests = measured_addresses()
    ways = {"Kneser-Ney 5-gram": five_gram_losses(tokenizer, tests), "xz": xz(tests)}
    return {
        name: {str(one.number): round(loss, 3) for one, loss in zip(tests, losses, strict=True)}
        for name, losses in ways.items()
    }


BLANKS = 60
"""Hidden tokens of each held-out address that is measured."""


def blanks(tokenizer: Tokenizer) -> dict[str, list[realtext.Blank]]:
    """The hidden pieces of each of these addresses, by its number."""
    return {
        str(one.number): realtext.blanks(tokenizer, one.text, BLANKS)
        for one in measured_addresses()
    }


def others_of_blanks(tokenizer: Tokenizer) -> dict[str, dict[str, float]]:
    """A 5-gram that sees four pieces on the left, and one that sees four on both sides."""
    five = five_gram(tokenizer)
    found: dict[str, dict[str, float]] = {"5-gram, left side": {}, "5-gram, both sides": {}}
    for number, asked in blanks(tokenizer).items():
        left = five.log_probabilities(asked[0].tokens)
        both = [five.both_sides(*one)[one.tokens[one.position]] for one in asked]
        means = (sum(left[one.position] for one in asked) / BLANKS, sum(both) / BLANKS)
        for name, mean in zip(found, means, strict=True):
            found[name][number] = round(float(-mean), 3)
    return found


def per_byte_of_blanks(
    tokenizer: Tokenizer, ways: Mapping[str, Mapping[str, float]]
) -> dict[str, float]:
    """The mean losses per hidden piece of the measured addresses, in nats per byte, beside `xz`."""
    tests = measured_addresses()
    pieces = {
        str(one.number): len(tokenizer.encode(one.text)) / len(one.text.encode()) for one in tests
    }
    found = {
        name: sum(loss * pieces[number] for number, loss in losses.items()) / len(losses)
        for name, losses in ways.items()
    }
    packed = xz(tests)
    found["xz"] = sum(packed) / len(packed)
    return {name: round(float(loss), 3) for name, loss in found.items()}
