"""Labelled sets drawn from the language, balanced, with the exact chances of every label: the best
classifier.

    feeling      a whole review                        -> whether its writer liked it
    topic        one sentence of a story               -> the topic it is from
    sense        a sentence and an ambiguous word      -> which of the word's senses is meant
    relation     a whole prompt                        -> the relation of its pairs
    order        two neighbouring sentences            -> "right", or "swapped"
    passages     two neighbouring passages             -> "right", or "swapped"
    next         a sentence and another                -> "next", or "random", from another document

A passage is six sentences: two single sentences often fit in either order, two passages seldom
(ALBERT, too, takes long segments; Lan et al. 2020, section 3.1).

No document and no example is ever in both splits: each is put into one by a hash of its own words.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from labkit.checks import check_choice, check_seed, check_whole
from labkit.world.exact import Language, Text
from labkit.world.examples import Example, LabelledSet
from labkit.world.machine import END
from labkit.world.sampling import SPLITS, Document, text_hash
from labkit.world.sums import Symbols

TASKS = ("feeling", "topic", "sense", "relation", "order", "passages", "next")
PAIRED = ("order", "passages", "next")
WHOLE = ("feeling", "relation")
PASSAGE = 6
"""Sentences of a passage."""
TRIES = 200_000
"""How many examples in a row may be rejected before giving up on a label."""


def labelled(
    language: Language, task: str, size: int, *, seed: int = 0, split: str = "train"
) -> LabelledSet:
    """Draw a balanced labelled set of so many examples, with the best possible accuracy.

    The size is rounded down to equally many examples of each label.
    """
    check_choice("task", task, *TASKS)
    check_choice("split", split, *SPLITS)
    before = priors(language, task)
    labels = list(before)
    if len(labels) < 2:
        raise ValueError(f'this language has no labels for "{task}"')
    if task in PAIRED and stops_inside(language):
        raise ValueError(
            f'"{task}" needs a language in which every "." ends a sentence: this one also says it '
            "inside sentences"
        )
    check_whole("size", size)
    check_seed(seed)
    share = size // len(labels)
    if not share:
        raise ValueError(
            f"{size} examples do not give one to each of {len(labels)} labels: ask for more"
        )
    random = np.random.default_rng([seed, 3])
    candidates = _candidates(language, task, seed, split, random)
    found = _as_many_of_each(candidates, labels, share, split)
    chosen = [row for rows in found.values() for row in rows]
    chosen = [chosen[i] for i in random.permutation(len(chosen))]
    chances = _chances(language, task, chosen, before)
    pairs = zip(chosen, chances, strict=True)
    return LabelledSet(task, labels, [row._replace(chances=chance) for row, chance in pairs])


def _as_many_of_each(
    candidates: Iterator[Example], labels: list[str], share: int, split: str
) -> dict[str, list[Example]]:
    """The first examples of each label that belong to the split."""
    found: dict[str, list[Example]] = {label: [] for label in labels}
    missing, passed = len(labels), 0
    for candidate in candidates:
        rows = found.get(candidate.label)
        passed += 1
        if passed > TRIES:
            rare = min(found, key=lambda label: len(found[label]))
            raise ValueError(
                f"too few examples of {rare!r} in {split} (no new one in {TRIES:,} draws): ask for "
                "fewer, or for another task"
            )
        if rows is not None and len(rows) < share and example_split(candidate) == split:
            passed = 0
            rows.append(candidate)
            missing -= len(rows) == share
            if not missing:
                break
    return found


def example_split(example: Example) -> str:
    """The split that this text belongs to: half of all texts are in each, whatever their label."""
    texts = sorted([" ".join(example.words), " ".join(example.second or ())])
    return SPLITS[text_hash(f"{example.position} | {' | '.join(texts)}") % 2]


def _candidates(
    language: Language, task: str, seed: int, split: str, random: np.random.Generator
) -> Iterator[Example]:
    """Yield examples cut from documents of the split, without end."""
    having = task if task in WHOLE else None
    documents = language.documents(seed=seed, split=split, having=having)
    while task in PAIRED:
        yield from _pairs(task, list(itertools.islice(documents, 200)), random)
    for document in documents:
        section = document.machine.sections[document.machine.section[document.states[0]]]
        if task in WHOLE:
            yield Example(document.words[:-1], None, None, getattr(section, task), {})
        elif not section.relation:
            notes = document.annotations
            if task == "topic":
                for topic, (a, z) in zip(notes.topics, document.sentences, strict=True):
                    yield Example(document.words[a:z], None, None, topic, {})
            for t, word, sense in notes.senses if task == "sense" else ():
                a, z = next((a, z) for a, z in document.sentences if a <= t < z)
                yield Example(document.words[a:z], None, t - a, f"{word}~{sense}", {})


def _pairs(task: str, documents: list[Document], random: np.random.Generator) -> Iterator[Example]:
    """Neighbouring texts, half of them swapped, or with the second from another document."""
    pairs = [
        (number, document.words[a:b], document.words[b:c])
        for number, document in enumerate(documents)
        for a, b, c in _neighbours(document, PASSAGE if task == "passages" else 1)
    ]
    # "next" takes the second of some pairs from another document.
    if len({number for number, _, _ in pairs}) < 2:
        raise ValueError(f'the documents of this language are too short for "{task}"')
    for number, first, second in pairs:
        change = random.random() < 0.5
        if not change:
            label = "next" if task == "next" else "right"
            yield Example(first, second, None, label, {})
        elif task != "next":
            yield Example(second, first, None, "swapped", {})
        else:
            other = number
            while other == number:
                other, _, second = pairs[int(random.integers(len(pairs)))]
            yield Example(first, second, None, "random", {})


def _neighbours(document: Document, count: int) -> Iterator[tuple[int, int, int]]:
    """The start of so many sentences, the start of as many that follow, and where those end."""
    begins = [a for a, _ in document.sentences] + [document.sentences[-1][1]]
    for first in range(0, len(document.sentences) - 2 * count + 1, count):
        yield begins[first], begins[first + count], begins[first + 2 * count]


def priors(language: Language, task: str) -> dict[str, float]:
    """The share of each label without balancing."""
    machine = language.machine
    if task in PAIRED:
        return dict.fromkeys(("next", "random") if task == "next" else ("right", "swapped"), 0.5)
    found: dict[str, float] = defaultdict(float)
    if task == "sense":
        visits = np.bincount(
            machine.emission,
            language.visits[: machine.states],
            minlength=machine.emissions.distributions,
        )
        for (emission, word), sense in machine.senses.items():
            span = slice(machine.emissions.start[emission], machine.emissions.start[emission + 1])
            share = machine.emissions.weight[span][machine.emissions.word[span] == word].sum()
            found[f"{language.vocabulary[word]}~{sense}"] += float(visits[emission] * share)
        words = [label.split("~")[0] for label in found]
        return {
            label: p
            for label, p in sorted(found.items())
            if words.count(label.split("~")[0]) > 1 and p
        }
    begins = language.sentence_distribution if task == "topic" else machine.first_section
    for section, chance in zip(machine.sections, begins, strict=True):
        label = getattr(section, task)
        if label and chance:
            found[label] += float(chance)
    return dict(sorted(found.items()))


def _chances(
    language: Language, task: str, rows: list[Example], before: dict[str, float]
) -> list[dict[str, float]]:
    """The exact chances of the labels, when all labels are equally likely."""
    if task in PAIRED:
        odds = (next_odds if task == "next" else order_odds)(
            language, [(r.words, r.second or []) for r in rows]
        )
        yes, no = before
        return [
            {yes: 1 / (1 + math.exp(-x)), no: 1 / (1 + math.exp(x))}
            for x in np.clip(odds, -700, 700)
        ]
    whole = task in WHOLE
    texts = [
        (
            [*row.words, END] if whole else row.words,
            len(row.words) - 1 if row.position is None else row.position,
        )
        for row in rows
    ]
    posteriors = language.posteriors(texts, task, start="document" if whole else "sentence")
    out = []
    for row, posterior in zip(rows, posteriors, strict=True):
        if task == "sense":
            posterior = {
                f"{row.words[row.position or 0]}~{sense}": p for sense, p in posterior.items()
            }
        weights = {label: p / before[label] for label, p in posterior.items()}
        out.append({label: weight / sum(weights.values()) for label, weight in weights.items()})
    return out


def stops_inside(language: Language) -> bool:
    """Whether a sentence can say "." before its end; then a text cannot be cut into sentences."""
    machine = language.machine
    inside = np.arange(len(machine.leave), machine.states)
    return bool(machine.can_say(np.full(len(inside), machine.number["."]), inside).any())


Pairs = Sequence[tuple[Text, Text]]


def order_odds(language: Language, pairs: Pairs) -> np.ndarray:
    """log p(first, second) - log p(second, first), as neighbours in a document."""
    there, back = _together(language, pairs), _together(language, [(b, a) for a, b in pairs])
    both = zip(there, back, strict=True)
    return np.array([x - y if max(x, y) > -np.inf else 0.0 for x, y in both])


def next_odds(language: Language, pairs: Pairs) -> np.ndarray:
    """The log odds that the second follows the first, against a second of another document."""
    machine = language.machine
    goes_on = 1 - machine.leave[:, machine.ends].sum(axis=1)
    together = _together(language, pairs)
    firsts = [Symbols(language.numbers(a)) for a, _ in pairs]
    last = [[len(row.symbols) - 1] for row in firsts]
    first, stop = [], machine.number["."]
    for row, found in zip(firsts, language.states_at(firsts, "sentence", last), strict=True):
        states, weights, log_scale = found[len(row.symbols) - 1]
        # The first of a pair is a sentence that another one follows.
        ended = row.symbols[-1] == stop
        chance = float((weights * goes_on[states]).sum()) if ended else 0.0
        first.append(math.log(chance) + log_scale if chance > 0 else -math.inf)
    second = language.log_totals([Symbols(language.numbers(b)) for _, b in pairs], "second")
    alone = np.array(first) + np.array(second)
    if not (alone > -np.inf).all() or any(language.numbers(b)[-1] != stop for _, b in pairs):
        raise ValueError("a sentence of a pair is not of this language: check with is_sentence")
    return np.array(together) - alone


def _together(language: Language, pairs: Pairs) -> list[float]:
    """log p(first, second) of every pair, as neighbours in a document."""
    rows = []
    for pair in pairs:
        texts = [language.numbers(text) for text in pair]
        if not all(map(len, texts)):
            raise ValueError("a text of a pair has no words: leave the pair out")
        rows.append(Symbols(np.concatenate(texts)))
    return language.log_totals(rows, "sentence")
