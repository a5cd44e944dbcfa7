"""The classes of documents: what is drawn once and changes words, but never the order of sentences.

The tense is one, and so is the group of words that goes with a fact (she, her).  A class is one
combination of all of them; a set of classes is the bits of a number.
"""

import itertools
from collections import defaultdict

import numpy as np

from labkit.world.grammar import Filler, Grammar, Verb, WorldError, walk

MOST = 32


class Classes:
    """The combinations of tense and fields of facts, and their chances."""

    def __init__(self, grammar: Grammar) -> None:
        axes: dict[str, dict[tuple[str, ...], float]] = {}
        stages = [stage for topic in grammar.topics.values() for stage in topic.stages]
        patterns = [*grammar.phrases.values(), *(stage.patterns for stage in stages)]
        items = (item for some in patterns for pattern in some for item in walk(pattern.items))
        if any(isinstance(item, Verb) for item in items):
            axes["tense"] = {("past",): 0.5, ("present",): 0.5}
        for fact in grammar.facts.values():
            if len(fact.fields) > 1:
                weights: dict[tuple[str, ...], float] = defaultdict(float)
                for value in fact.values:
                    weights[_fields(value)] += value.weight
                axes[fact.name] = weights
        self.names, self.facts = list(axes), grammar.facts
        self.values = list(itertools.product(*axes.values()))
        if len(self.values) > MOST:
            last = grammar.facts[self.names[-1]].location
            message = f"the fields of the facts combine in {len(self.values)} ways: at most {MOST}"
            raise WorldError(last, f"{message}, so give fewer facts fields of their own")
        chances = [np.prod([axes[n][v] for n, v in zip(axes, c, strict=True)]) for c in self.values]
        self.prior = np.array(chances) / sum(chances)
        self.every = (1 << len(self.values)) - 1

    def saying(self, name: str, at: int, word: str) -> int:
        """The classes whose value of this name has this word at position `at`."""
        axis = self.names.index(name)
        return sum(1 << c for c, values in enumerate(self.values) if values[axis][at] == word)

    def words(self, fact: str, field: str) -> list[tuple[str, int]]:
        """The words of a fact's field, each with the classes that say it."""
        at = self.facts[fact].fields.index("." + field) - 1
        axis = self.names.index(fact)
        words = dict.fromkeys(values[axis][at] for values in self.values)
        return [(word, self.saying(fact, at, word)) for word in words]

    def fits(self, fact: str, value: Filler) -> np.ndarray:
        """In which classes a fact may have this value: [class]."""
        if fact not in self.names:
            return np.ones(len(self.values), bool)
        axis = self.names.index(fact)
        return np.array([values[axis] == _fields(value) for values in self.values])


def _fields(value: Filler) -> tuple[str, ...]:
    return tuple(token.word for token in value.tokens[1:])
