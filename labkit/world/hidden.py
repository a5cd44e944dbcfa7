"""The distributions of hidden and of noisy words."""

from typing import Any, NamedTuple

import numpy as np

from labkit.checks import is_whole
from labkit.world.machine import Machine
from labkit.world.memory import Memories
from labkit.world.sums import Posterior, Symbols, posteriors

# {position: (word shown, keep, noise)}: a state that says the word with probability p shows it with
# keep * p + noise.  A remembered word is never shown by mistake: then the noise is 0.
Noisy = dict[int, tuple[int, float, float]]


class Request(NamedTuple):
    """The words of a text, the positions whose distributions are wanted, and what is noisy."""

    words: np.ndarray
    wanted: list[int]
    noisy: Noisy


IMPOSSIBLE = "no text of this language has the words that are seen: check them with is_sentence"


def hidden_positions(hidden: Any) -> list[Any]:
    """The hidden positions of a text; a single number is refused."""
    if is_whole(hidden):
        raise ValueError(f"hidden is {hidden}: give a list of positions, such as [{hidden}]")
    return list(hidden)


def position_in(position: Any, length: int) -> int:
    """A position of a text, counted from its end where it is negative, as in lists."""
    if not is_whole(position) or not -length <= int(position) < length:
        raise ValueError(
            f"the position is {position}, but the text has {length} words: "
            f"choose {-length} to {length - 1}"
        )
    return int(position) % length


def hide(machine: Machine, words: np.ndarray, hidden: list[int]) -> np.ndarray:
    """The words with the symbol of a hidden word at the hidden positions."""
    positions = [position_in(position, len(words)) for position in hidden]
    if len(set(positions)) < len(positions):
        raise ValueError(f"a position occurs twice in {hidden}: give each once")
    masked = words.copy()
    masked[positions] = machine.hidden
    return masked


def distributions(
    machine: Machine, memory: Memories, requests: list[Request], begin: np.ndarray
) -> list[np.ndarray]:
    """The distributions [wanted, vocabulary] of the wanted positions of every text.

    A wanted position is hidden, unless it is noisy: then it shows a word that may be wrong.
    """
    requests = [
        one._replace(wanted=[position_in(t, len(one.words)) for t in one.wanted])
        for one in requests
    ]
    shown = [_shown(machine, request) for request in requests]
    rows = [_row(memory, *pair) for pair in zip(requests, shown, strict=True)]
    found = posteriors(machine, rows, begin, [request.wanted for request in requests])
    every = zip(requests, shown, found, strict=True)
    return [_distributions(machine, memory, *each) for each in every]


def _shown(machine: Machine, request: Request) -> np.ndarray:
    """What is shown at every position; the symbol of a hidden word where nothing is."""
    symbols = hide(machine, request.words, [t for t in request.wanted if t not in request.noisy])
    for t, (word, _, _) in request.noisy.items():
        symbols[t] = word
    return symbols


def _row(memory: Memories, request: Request, shown: np.ndarray) -> Symbols:
    """Certain, hidden and noisy words for the sums."""
    if not request.noisy:
        return Symbols(shown)
    noise = np.stack([np.ones(len(shown)), np.zeros(len(shown))])
    for t, (word, keep, other) in request.noisy.items():
        noise[:, t] = keep, 0.0 if memory.remembered[word] else other
    return Symbols(shown, noise)


def _distributions(
    machine: Machine,
    memory: Memories,
    request: Request,
    shown: np.ndarray,
    found: dict[int, Posterior],
) -> np.ndarray:
    """What the states at the wanted positions would say, given what is shown."""
    remembered = memory.log_chance(shown)
    next_draws = [group.distributions(shown) for group in memory.groups]
    out = []
    for t in request.wanted:
        weights = weigh(machine, remembered, found[t]).weights
        chances = _words(machine, memory, found[t].states, weights, next_draws)
        if t in request.noisy:
            word, keep, noise = request.noisy[t]
            noise = 0.0 if memory.remembered[word] else noise
            chances *= noise + keep * (np.arange(len(chances)) == word)
        if not chances.sum() > 0:
            raise ValueError(IMPOSSIBLE)
        out.append(chances / chances.sum())
    return np.array(out).reshape(len(out), len(machine.vocabulary))


def weigh(machine: Machine, remembered: np.ndarray, found: Posterior) -> Posterior:
    """Weigh the states by the chance of each class and of what is remembered in it."""
    groups = machine.group[found.states]
    best = remembered.max(axis=1)[np.unique(groups)].max(initial=-np.inf)
    top = float(best) if np.isfinite(best) else 0.0
    # A group that no state is in may have any chance.
    chance = np.exp(np.minimum(remembered - top, 0.0))
    weights = found.weights * chance[groups] * machine.prior
    return found._replace(weights=weights, log_scale=found.log_scale + top)


def _words(
    machine: Machine,
    memory: Memories,
    states: np.ndarray,
    weights: np.ndarray,
    next_draws: list[np.ndarray],
) -> np.ndarray:
    """Sum over the states and the classes what each would say."""
    emissions, total = machine.emissions, np.zeros(len(machine.vocabulary))
    groups = machine.group[states]
    for g in np.unique(groups):
        mine = groups == g
        value = memory.groups[g].value_of[emissions.word]
        drawn = machine.remembered & (value >= 0)
        for c in np.nonzero(weights[mine].any(axis=0))[0]:
            here = machine.emission[states[mine]]
            mass = np.bincount(here, weights[mine, c], emissions.distributions)
            spread = np.repeat(mass, np.diff(emissions.start)) * emissions.weight
            spread *= emissions.classes >> c & 1
            spread[drawn] *= next_draws[g][c, value[drawn]]
            total += np.bincount(emissions.word, spread, minlength=len(total))
    return total
