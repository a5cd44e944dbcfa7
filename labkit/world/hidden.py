"""The distributions of hidden and of noisy words, by the sums for every case of the facts."""

from typing import TYPE_CHECKING

import numpy as np

from labkit.world.facts import Case, Noisy
from labkit.world.noisy import NoisyRow, noisy_posteriors
from labkit.world.sums import Posterior, Row, posteriors

if TYPE_CHECKING:
    from labkit.world.exact import World

# The words of a text, the positions whose distributions are wanted, and what is noisy.
Request = tuple[np.ndarray, list[int], Noisy]


def hide(world: "World", text: np.ndarray, hidden: list[int]) -> np.ndarray:
    """The text with the symbol of a hidden word at the hidden positions."""
    masked = text.copy()
    masked[hidden] = world.machine.hidden
    return masked


def distributions(world: "World", texts: list[Request], begin: np.ndarray) -> list[np.ndarray]:
    """The distributions [wanted, vocabulary] of the wanted positions of every text.

    A wanted position is hidden, unless it is noisy: then it shows a word that may be wrong.
    """
    noisy_rows: list[NoisyRow] = []
    plain_rows: list[Row] = []
    cases_of = []
    for text, want, noisy in texts:
        cases = _cases(world, text, want, noisy)
        cases_of.append(cases)
        if noisy:
            noisy_rows += [_noisy_row(world, text, want, noisy, case) for case in cases]
        else:
            plain_rows.append(Row(hide(world, text, want)))
    noisy_wants = [
        want
        for (_, want, noisy), cases in zip(texts, cases_of, strict=True)
        for _ in cases
        if noisy
    ]
    plain_wants = [want for _, want, noisy in texts if not noisy]
    noisy_found = iter(noisy_posteriors(world.machine, noisy_rows, begin, noisy_wants))
    plain_found = iter(posteriors(world.machine, plain_rows, begin, plain_wants))
    out = []
    for (_, want, noisy), cases in zip(texts, cases_of, strict=True):
        passes = [next(noisy_found if noisy else plain_found) for _ in cases]
        out.append(
            np.stack([_distribution_at(world, t, noisy.get(t), cases, passes) for t in want])
        )
    return out


def _cases(world: "World", text: np.ndarray, want: list[int], noisy: Noisy) -> list[Case]:
    sure = np.ones(len(text), bool)
    sure[[*want, *noisy]] = False
    return world.facts.cases(text[sure], noisy)


def _noisy_row(
    world: "World", text: np.ndarray, want: list[int], noisy: Noisy, case: Case
) -> NoisyRow:
    """Certain words, hidden words and noisy words, as a case of the facts sees them."""
    symbols = hide(world, text, want)
    keep = np.where(symbols == world.machine.hidden, 0.0, 1.0)
    noise, fact = 1.0 - keep, np.ones(len(text), bool)
    for t, (word, believed, other) in noisy.items():
        symbols[t], keep[t], noise[t] = word, believed, other
        fact[t] = word not in world.facts.owner or world.facts.explains(case, word)
    return NoisyRow(symbols, keep, noise, fact)


def _distribution_at(
    world: "World",
    t: int,
    noisy: tuple[int, float, float] | None,
    cases: list[Case],
    passes: list[dict[int, Posterior]],
) -> np.ndarray:
    """Sum over the states at one position, and over the cases of the facts, what each would
    say.
    """
    machine = world.machine
    total = np.zeros(len(world.vocabulary))
    top = max(found[t].log_scale for found in passes)
    for number, (case, found) in enumerate(zip(cases, passes, strict=True)):
        states, weights, log_scale = found[t]
        # Paths that use no facts are the same in every case: they count in the first.
        share = np.where(machine.bound[states], np.exp(case.log_chance), float(number == 0))
        weights = weights * share * np.exp(log_scale - top if top > -np.inf else 0.0)
        mass = np.bincount(
            machine.emission[states], weights, minlength=len(machine.emissions.start) - 1
        )
        for emission, (fact, field) in machine.fact_emissions.items():
            if mass[emission]:
                words, chances = world.facts.distribution(fact, field, case.masks)
                np.add.at(total, words, mass[emission] * chances)
                mass[emission] = 0.0
        spread = np.repeat(mass, np.diff(machine.emissions.start)) * machine.emissions.weight
        total += np.bincount(machine.emissions.word, spread, minlength=len(total))
    if noisy:
        word, keep, noise = noisy
        total *= noise + keep * (np.arange(len(total)) == word)
    if not total.sum() > 0:
        raise ValueError(
            "no text of this language has the words that are seen: check them with is_sentence"
        )
    return total / total.sum()
