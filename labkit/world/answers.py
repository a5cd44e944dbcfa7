"""All answers to a prompt with their exact chances: what instructions and rewards are measured by.

The documents of data/answers are questions and answers. Each prompt has so few answers that all can
be listed, so a policy, its reward and its distance from the language are sums without sampling.

    world = load_world("answers")
    answers = list_answers(world, "where does sara live ?".split())
    rewards = answers.rewards("naples")                 right, polite, brief, fresh: [answer] each

The best policy for a reward is in `optimal.py`: `best_policy(answers.chances, reward, beta)`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from labkit.checks import check_whole
from labkit.world.exact import Language
from labkit.world.machine import Machine
from labkit.world.sums import Symbols, forward

# More answers than these are too many for a model to score in one pass.
MOST = 20_000
POLITE = ("you are welcome", "please ask me", "thank you", "i am glad")
RUDE = ("go away", "oh please", "listen :", "that is that")
# An answer of so many words is brief enough.
BRIEF = 7

Alive = frozenset[tuple[int, int]]


@dataclass(frozen=True)
class Answers:
    """Every answer to a prompt, the likeliest first; the chances add up to 1."""

    prompt: list[str]
    texts: list[list[str]]
    chances: np.ndarray

    def rewards(self, truth: str) -> dict[str, np.ndarray]:
        """Four rewards of each answer: right, polite, brief, and fresh (nothing is said twice)."""
        lines = [" ".join(words) for words in self.texts]
        polite = [any(p in line for p in POLITE) - any(r in line for r in RUDE) for line in lines]
        long = [[word for word in words if len(word) > 4] for words in self.texts]
        repeats = [len(words) - len(set(words)) for words in long]
        return {
            "right": np.array([truth in words for words in self.texts], float),
            "polite": np.array(polite, float),
            "brief": -np.array([max(0, len(words) - BRIEF) for words in self.texts]) / 10,
            "fresh": -np.array(repeats, float),
        }


def list_answers(language: Language, prompt: Sequence[str], most: int = MOST) -> Answers:
    """List every continuation of a prompt to the end of its document, without the end mark."""
    check_whole("most", most, 1)
    machine, start = language.machine, language.numbers(list(prompt))
    texts = _continuations(machine, start, _alive(language, prompt), most)
    whole = language.log_probabilities([np.concatenate([start, text]) for text in texts])
    logs = np.array([found[len(start) :].sum() for found in whole])
    order = [int(i) for i in np.argsort(-logs, kind="stable") if logs[i] > -np.inf]
    words = [[machine.vocabulary[n] for n in texts[i][:-1]] for i in order]
    return Answers(list(prompt), words, np.exp(logs[order]))


def _alive(language: Language, prompt: Sequence[str]) -> Alive:
    """The states that may have emitted the last word of the prompt, each with its classes."""
    if not len(prompt):
        raise ValueError("the prompt is empty: give at least one word")
    machine = language.machine
    begin = machine.enter(language.begin)
    *_, last = forward(machine, [Symbols(language.numbers(list(prompt)))], machine.onward, begin)
    if not len(last.states):
        raise ValueError(f'no document of this language begins with "{" ".join(prompt)}"')
    return frozenset(zip(last.states.tolist(), last.classes.tolist(), strict=True))


def _continuations(
    machine: Machine, prompt: np.ndarray, alive: Alive, most: int
) -> list[np.ndarray]:
    """Follow every arc to the end marks; merge texts with the same words."""
    arcs, emissions = machine.onward, machine.emissions

    @cache
    def says(emission: int) -> list[tuple[int, int]]:
        """The words of an emission, each with its classes."""
        span = slice(emissions.start[emission], emissions.start[emission + 1])
        words, classes = emissions.word[span].tolist(), emissions.classes[span].tolist()
        return list(zip(words, classes, strict=True))

    @cache
    def after(states: Alive) -> dict[int, Alive]:
        """The next words, and the states that are alive after each."""
        found: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for state, classes in states:
            for target in arcs.target[arcs.start[state] : arcs.start[state + 1]].tolist():
                for word, bits in says(int(machine.emission[target])):
                    if bits & classes:
                        found[word].add((target, bits & classes))
        return {word: frozenset(states) for word, states in found.items()}

    texts: list[np.ndarray] = []
    open_: list[tuple[tuple[int, ...], Alive]] = [((), alive)]
    while open_:
        words, states = open_.pop()
        for word, left in after(states).items():
            if word:
                open_.append(((*words, word), left))
            else:
                texts.append(np.array([*words, word]))
        if len(texts) + len(open_) > most:
            shown = " ".join(machine.vocabulary[n] for n in prompt)
            raise ValueError(
                f'"{shown}" has more than {most:,} answers: add words, or allow more with `most`'
            )
    return texts
