"""Zero-, one- and few-shot prompts, "france : paris ; japan : tokyo ; italy :", and their answers.

A prompt hides one relation.  Every pair in it makes some relations likelier, so the chances of the
answers are a mixture over the relations, each weighed by how well it explains the pairs and the
question.
"""

import itertools
from collections import defaultdict

import numpy as np

from labkit.checks import check_seed, check_whole
from labkit.world.exact import Language
from labkit.world.examples import Example, LabelledSet
from labkit.world.grammar import Relation

MOST_SHOTS = 8


def few_shot(language: Language, shots: int, size: int, *, seed: int = 0) -> LabelledSet:
    """Draw prompts: so many solved pairs and an open question, whose answer is the label.

    No question comes twice in a prompt.
    """
    relations = list(language.grammar.relations.values())
    if not relations:
        raise ValueError("this language has no relations: load one that has some")
    tables = [_table(relation) for relation in relations]
    # As many questions as the relation has that has fewest; one of them stays open.
    fewest = min(len({asked for asked, _ in table}) for table in tables)
    # Prompts that repeat a question are drawn again; with more shots, hardly any would be left.
    check_whole("shots", shots, most=min(fewest - 1, MOST_SHOTS))
    check_whole("size", size, 1)
    check_seed(seed)
    random = np.random.default_rng([seed, 4])
    weights = np.array([relation.weight for relation in relations])
    weights /= weights.sum()
    examples: list[Example] = []
    while len(examples) < size:
        chosen = int(random.choice(len(relations), p=weights))
        pairs = list(tables[chosen])
        chances = [tables[chosen][pair] for pair in pairs]
        picks = random.choice(len(pairs), size=shots + 1, p=chances)
        drawn = [pairs[i] for i in picks]
        # This depends on the questions alone, so it does not change the chances of the answers.
        if len({question for question, _ in drawn}) == len(drawn):
            examples.append(_example(drawn, tables, weights))
    labels = sorted({answer for table in tables for _, answer in table})
    return LabelledSet("prompt", labels, examples)


Pair = tuple[str, str]


def _table(relation: Relation) -> dict[Pair, float]:
    """The pairs of a relation and their chances."""
    table: dict[Pair, float] = defaultdict(float)
    total = sum(answer.weight for _, answer in relation.pairs)
    for question, answer in relation.pairs:
        words = tuple(
            " ".join(token.word for token in tokens) for tokens in (question, answer.tokens)
        )
        table[words[0], words[1]] += answer.weight / total
    return table


def _example(drawn: list[Pair], tables: list[dict[Pair, float]], weights: np.ndarray) -> Example:
    *solved, (question, answer) = drawn
    chances: dict[str, float] = defaultdict(float)
    for table, weight in zip(tables, weights, strict=True):
        explained = float(weight * np.prod([table.get(pair, 0.0) for pair in solved]))
        for (asked, other), chance in table.items():
            if asked == question and explained:
                chances[other] += explained * chance
    total = sum(chances.values())
    pieces = itertools.chain(*(f"{q} : {a} ;".split() for q, a in solved), question.split(), [":"])
    return Example(list(pieces), None, None, answer, {a: p / total for a, p in chances.items()})
