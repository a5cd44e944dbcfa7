"""The best policy of a language for a reward that is a sum over words, without a list of answers.

Messages go back from the end of the text; so the sums over lists in `labkit.world.optimal` are
checked by another way to compute them, and for languages in which no list ends.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from labkit.world.exact import Language
from labkit.world.machine import Arcs
from labkit.world.sums import Symbols, forward


class Tilted(NamedTuple):
    """The best policy of the language itself, for a reward that is a sum over words."""

    log_partition: float
    reward: float
    divergence: float


def tilted(
    language: Language,
    prompt: Sequence[str],
    rewards: Mapping[str, float],
    beta: float,
    *,
    longest: int = 10_000,
) -> Tilted:
    """Z, the reward and the divergence of the best policy after a prompt, however long it writes.

    Each word has its reward, 0 where none is given. A message says what is still to come from a
    state: z, the mean of exp(reward / beta), and its derivative with respect to 1 / beta.
    """
    machine = language.machine
    if machine.families:
        raise ValueError("documents of this language remember words: list the answers instead")
    if not beta > 0:
        raise ValueError(f"beta is {beta}: it must be more than 0")
    of_word = np.array([rewards.get(word, 0.0) for word in machine.vocabulary])
    entries, arcs, states = machine.entries, machine.onward, machine.states
    said = slice(0, entries.start[len(of_word)])
    word = np.repeat(np.arange(len(of_word)), np.diff(entries.start[: len(of_word) + 1]))
    emits, classes = machine.says(word, entries.state[said])
    emits = emits * np.exp(of_word[word] / beta)
    source = np.repeat(np.arange(states), np.diff(arcs.start))
    [*_, last] = forward(
        machine, [Symbols(language.numbers(list(prompt)))], arcs, machine.enter(language.begin)
    )
    # What other texts could say has no part in it, and may grow for ever.
    emits = emits * _reached(arcs, source, last.states)[entries.state[said]]
    mean = weighted = total = 0.0
    for c, prior in enumerate(machine.prior):
        here = (classes >> c & 1) * emits
        factor = np.bincount(entries.state[said], here, states)
        slope = np.bincount(entries.state[said], here * of_word[word], states)
        ended = np.bincount(entries.state[said], word == 0, states) > 0
        z, d = _messages(arcs, source, factor, slope, ended, longest)
        alive = last.alpha * prior * (last.classes >> c & 1)
        mean += alive @ z[last.states]
        weighted += alive @ d[last.states]
        total += alive.sum()
    log_z, reward = float(np.log(mean / total)), float(weighted / mean)
    return Tilted(log_z, reward, reward / beta - log_z)


def _reached(arcs: Arcs, source: np.ndarray, begin: np.ndarray) -> np.ndarray:
    """True for each state that a text can come to from these."""
    reached = np.zeros(len(arcs.start) - 1, bool)
    reached[begin] = True
    count = 0
    while count < reached.sum():
        count = reached.sum()
        reached[arcs.target[reached[source]]] = True
    return reached


def _messages(
    arcs: Arcs,
    source: np.ndarray,
    factor: np.ndarray,
    slope: np.ndarray,
    ended: np.ndarray,
    longest: int,
) -> tuple[np.ndarray, np.ndarray]:
    """z(r) = sum over s of p(r -> s) factor(s) z(s), and its derivative, back from the end."""
    z: np.ndarray = np.zeros(len(factor))
    d = z
    for _ in range(longest):
        if max(z.max(), abs(d).max()) > 1e100:
            break
        sent = np.where(ended, factor, factor * z)
        moved = np.where(ended, slope, slope * z + factor * d)
        new_z = np.bincount(source, arcs.weight * sent[arcs.target], len(factor))
        new_d = np.bincount(source, arcs.weight * moved[arcs.target], len(factor))
        change = max(abs(new_z - z).max(), abs(new_d - d).max())
        z, d = new_z, new_d
        if change <= 1e-15 * max(z.max(), abs(d).max(), 1.0):
            return z, d
    raise ValueError(
        f"the sums do not settle within {longest:,} words: texts that grow for ever earn more "
        "than they cost, so there is no best policy; give a larger beta"
    )
