"""What the parameters of the notebooks may be, checked before anything is trained.

Their types are in the notebooks, where `labkit run` reads them before it starts a kernel. Whatever
else a value has to be is checked here, in the first cell after the parameters, so that it is
checked in JupyterLab too.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from classroom.running.notebook import PROFILES
from labkit.checks import (
    check_above_zero,
    check_choice,
    check_type,
    check_whole,
    is_number,
    nearest,
    require,
    shown,
)

LARGEST_SEED = 2**31  # torch takes 64 bits, but cells add numbers to their seed


def check_parameters(profile: str, seed: int, **others: Any) -> None:
    """Refuse a parameter that a later cell could not use, or whose result would mean nothing."""
    check_choice("profile", profile, *PROFILES)
    check_whole("seed", seed, most=LARGEST_SEED)
    for name, given in others.items():
        RULES[name](name, given)


def check_ambiguous(word: str, **sentences: str) -> None:
    """Refuse sentences in which the village's language does not use the ambiguous word."""
    from labkit.world import load_world

    village = load_world("village")
    known = sorted({village.vocabulary[number] for _, number in village.machine.senses})
    check_choice("word", word, *known)
    for name, sentence in sentences.items():
        words = sentence.split()
        said = f"{name} is {shown(sentence)}"
        require(word in words, f"{said}: give a sentence with the word {word}, or another word")
        try:
            village.posterior(words, "sense", start="sentence")
        except ValueError:
            raise ValueError(
                f"{said}, which the village's language cannot say: give one of its sentences, "
                f"such as {_example(village, word)!r}"
            ) from None


def _example(village: Any, word: str) -> str:
    """A sentence of the village with that ambiguous word."""
    drawn = village.labelled("sense", 200, seed=0, split="train")
    return next(" ".join(one.words) for one in drawn if word in one.words)


def check_bill(model: str, gpu: str, mfu: float, budget: float) -> None:
    """Refuse a model, a device or an amount for which notebook 12 cannot write a bill."""
    from classroom.demos.costs import check_billed
    from labkit.costs import bills

    check_billed(model)
    check_above_zero(budget=budget)
    bills.afford(budget, bills.machine(gpu), mfu=mfu)


def _number(name: str, given: Any, least: float, most: float) -> None:
    if not is_number(given) or not least <= given <= most:
        raise ValueError(f"{name} is {shown(given)}: give a number from {least:g} to {most:g}")


def _corpus(name: str, given: Any) -> None:
    from classroom.models.recipes import check_corpus

    check_type(name, given, str, "a text")
    check_corpus(given)


def _person(name: str, given: Any) -> None:
    from classroom.tasks.instructions import world

    check_choice(name, given, *(row[0] for row in world().grammar.tables["village"].rows))


def _prompt(name: str, given: Any) -> None:
    """Refuse a text with a word that the village does not have, since models read it as [UNK]."""
    from labkit.world import load_world

    check_type(name, given, str, "a text")
    known, words = load_world("village").vocabulary[1:], given.split()
    require(bool(words), f"{name} is {shown(given)}: give the beginning of a text")
    for word in words:
        if word not in known:
            near = nearest(word, known)
            more = f" (near it: {near})" if near else ""
            raise ValueError(f"{name}: the village has no word {word!r}: choose another{more}")


def _released(_: str, given: Any) -> None:
    from labkit.weights import load_tokenizer

    if given:
        load_tokenizer(given)  # a part of what is needed, and quick to read


def _whole(least: int, most: int) -> Callable[[str, Any], None]:
    return partial(check_whole, least=least, most=most)


def _from(least: float, most: float) -> Callable[[str, Any], None]:
    return partial(_number, least=least, most=most)


RULES: dict[str, Callable[[str, Any], None]] = {
    "reach": _whole(1, 100),
    "reviews_labelled": _whole(2, 1_000),
    "corpus": _corpus,
    "prompt": _prompt,
    "length": _whole(1, 1_000),
    "temperature": _from(0.01, 100),
    "top_p": _from(0.01, 1),
    "samples": _whole(1, 100),
    "released": _released,
    "name": _person,
    "beta": _from(0.03, 3),
    "mask_rate": _from(0.05, 0.95),
    "memory": _whole(1, 1_000),
}
"""For each name, a function of the name and what is given."""
