"""Exact probabilities of a language: of texts, of hidden and noisy words, of what is meant.

Read `Language.log_probability` first.  Everything is in nats.  A text is a list of words; one that
ends with the end mark is a whole document, any other is cut off there.  `start` says where a text
begins: "document" (at the beginning of a document) or "anywhere" (at a random word of an endless
stream of documents).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain

import numpy as np

from labkit.checks import check_choice, check_whole, check_words
from labkit.world.builder import compile_grammar
from labkit.world.following import (
    Direction,
    Following,
    direction_over,
    documents_of,
    following,
    joined,
    likely,
)
from labkit.world.grammar import Grammar
from labkit.world.hidden import (
    IMPOSSIBLE,
    Noisy,
    Request,
    distributions,
    hidden_positions,
    hide,
    position_in,
    weigh,
)
from labkit.world.machine import Machine, Section
from labkit.world.memory import Memories
from labkit.world.sampling import SPLITS, Document, Sampler
from labkit.world.sums import Posterior, ReadingOrder, Symbols, posteriors, prefix_masses

Text = Sequence[str] | np.ndarray | Document
MEANINGS = ("topic", "stage", "feeling", "relation", "sense")
STARTS = ("document", "anywhere", "sentence", "second")
DIRECTIONS = ("forward", "backward")
MOST = 10**9
"""The most documents or words that are drawn at once; `documents` goes on without end."""


def read_only(kept: np.ndarray) -> np.ndarray:
    """Make an array read-only: everybody who loads a language is given the same one."""
    kept.setflags(write=False)
    return kept


class Language:
    """The exact probabilities of a compiled grammar."""

    def __init__(
        self, grammar: Grammar, new_forms: bool = False, machine: Machine | None = None
    ) -> None:
        self.grammar = grammar
        self.machine = machine or compile_grammar(grammar, new_forms)
        self.memory = Memories(
            self.machine.families, self.machine.members, self.machine.prior, self.machine.number
        )

    # ── the language ─────────────────────────────────────────────────────────────────────────────

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """All words, the end mark first; the columns of every distribution."""
        return self.machine.vocabulary

    @cached_property
    def _sampler(self) -> Sampler:
        return Sampler(self.machine)

    def sample(
        self,
        *,
        documents: int | None = None,
        words: int | None = None,
        seed: int = 0,
        split: str | None = "train",
    ) -> list[Document]:
        """Draw documents, so many or with so many words at least; `split=None`: of both splits."""
        if (documents is None) == (words is None):
            raise ValueError("give how much to draw: documents=100 or words=1_000_000, not both")
        name, much = ("words", words) if documents is None else ("documents", documents)
        check_whole(name, much, most=MOST)
        assert much is not None
        out: list[Document] = []
        drawn, size = self.documents(seed=seed, split=split), 0
        while size < much:
            out.append(next(drawn))
            size += 1 if words is None else len(out[-1])
        return out

    def documents(
        self, *, seed: int = 0, split: str | None = "train", having: str | None = None
    ) -> Iterator[Document]:
        """The same documents one by one, without end.

        `having="feeling"` draws only reviews, "relation" only prompts.
        """
        if split is not None and split not in SPLITS:
            raise ValueError(
                f'the split is "{split}": choose one of {", ".join(SPLITS)}, or None for both'
            )
        begin = self.machine.first_section
        if having is not None:
            begin = begin * [
                getattr(section, having) is not None for section in self.machine.sections
            ]
        return self._sampler.documents(seed, split, begin)

    @cached_property
    def replacements(self) -> np.ndarray:
        """True [vocabulary] where a word may replace a masked one: no document remembers it."""
        free = ~self.memory.remembered[: len(self.vocabulary)]
        return read_only(free & (np.arange(len(free)) > 0))

    # ── where a text begins ──────────────────────────────────────────────────────────────────────

    @cached_property
    def visits(self) -> np.ndarray:
        """How often a document is expected to pass each node; over all states, its length."""
        machine = self.machine
        follow = machine.closing @ machine.leave
        inner = np.ones(len(machine.sections), bool)
        inner[machine.ends] = False
        sections = np.zeros(len(inner))
        within = follow[np.ix_(inner, inner)]
        begin = machine.first_section[inner]
        sections[inner] = np.linalg.solve(np.eye(inner.sum()) - within.T, begin)
        sections[~inner] = sections[inner] @ follow[np.ix_(inner, ~inner)]
        nodes = np.concatenate([np.zeros(machine.states), sections])
        now = nodes.copy()
        while now.any():
            moved = np.bincount(
                machine.arc_target,
                now[machine.arc_source] * machine.arc_weight,
                minlength=machine.states,
            )
            nodes[: machine.states] += moved
            now[machine.states :] = 0.0
            now[: machine.states] = moved
            now[: len(machine.leave)] = 0.0
        return read_only(nodes)

    @cached_property
    def stationary(self) -> np.ndarray:
        """The distribution of the state at a random word of an endless stream of documents."""
        states = self.visits[: self.machine.states]
        return read_only(states / states.sum())

    @cached_property
    def _starts(self) -> dict[str, np.ndarray]:
        """For each kind of start, the distribution of the node just before the first word."""
        machine = self.machine
        starts = {name: np.zeros(machine.states + len(machine.sections)) for name in STARTS}
        starts["document"][machine.states :] = machine.first_section
        starts["anywhere"][: machine.states] = self.stationary
        starts["anywhere"][machine.states :] = self.stationary[: len(machine.leave)] @ machine.leave
        starts["sentence"][machine.states :] = self.sentence_distribution
        second = self.sentence_distribution @ machine.closing @ machine.inside
        second[machine.ends] = 0.0
        starts["second"][machine.states :] = second / max(second.sum(), 1e-300)
        return {name: read_only(start) for name, start in starts.items()}

    @property
    def begin(self) -> np.ndarray:
        """The distribution of the node just before the first word of a document."""
        return self._starts["document"]

    @cached_property
    def sentence_distribution(self) -> np.ndarray:
        """The distribution of the section of a random sentence (prompts are no sentences)."""
        sections = self.visits[self.machine.states :].copy()
        for k, section in enumerate(self.machine.sections):
            if section.relation or section.topic == "end":
                sections[k] = 0.0
        return read_only(sections / sections.sum())

    def _start(self, name: str) -> np.ndarray:
        check_choice("start", name, *STARTS)
        return self._starts[name]

    def numbers(self, words: Text) -> np.ndarray:
        """The numbers of the words; an unknown word gets a number that no state emits."""
        unknown = len(self.vocabulary) + 1
        if isinstance(words, Document):
            # The same number is another word in another language.
            return words.numbers if words.machine is self.machine else self.numbers(words.words)
        if isinstance(words, np.ndarray) and words.dtype.kind in "iu" and words.ndim == 1:
            if len(words) and not 0 <= words.min() <= words.max() <= unknown:
                raise ValueError(
                    f"a text has the numbers {words.min()} to {words.max()}: this language has "
                    f"words from 0 to {unknown - 2}; give its own numbers"
                )
            # The symbol of a hidden word may not fit into fewer bits.
            return words.astype(np.int64, copy=False)
        check_words(words)
        return np.array([self.machine.number.get(word, unknown) for word in words], int)

    # ── probabilities of texts ───────────────────────────────────────────────────────────────────

    def log_probability(
        self,
        words: Text,
        *,
        direction: str = "forward",
        reach: int | None = None,
        start: str = "document",
    ) -> np.ndarray:
        """log p(word | all words before), or after with direction="backward", for every word.

        `reach` limits the context to so many words, as if the text started anywhere.
        """
        return self.log_probabilities([words], direction=direction, reach=reach, start=start)[0]

    def log_probabilities(
        self,
        texts: Iterable[Text],
        *,
        direction: str = "forward",
        reach: int | None = None,
        start: str = "document",
    ) -> list[np.ndarray]:
        """`log_probability` of many texts at once, which is much faster than one by one."""
        numbers = [self.numbers(words) for words in texts]
        check_choice("direction", direction, *DIRECTIONS)
        check_choice("start", start, *STARTS)
        # Backward, a text is turned round and read over arcs that are turned round.
        turn = 1 if direction == "forward" else -1
        turned = [text[::turn] for text in numbers]
        if reach is None:
            logs = self._log_prefixes(turned, self._reading_order(direction, start))
            found = [_ratios(log, np.append(0.0, log[:-1])) for log in logs]
        else:
            check_whole("reach", reach)
            found = self._within_reach(turned, direction, reach, start)
        return [each[::turn] for each in found]

    def _reading_order(self, direction: str, start: str) -> ReadingOrder:
        machine, every = self.machine, np.ones(self.machine.states)
        if direction == "forward":
            return ReadingOrder(machine.onward, machine.enter(self._start(start)), every)
        return ReadingOrder(machine.turned, every, self.stationary)

    def _log_prefixes(
        self, texts: list[np.ndarray], order: ReadingOrder, last: int | None = None
    ) -> list[np.ndarray]:
        """Log p of every prefix, or of the last ones."""
        masses = prefix_masses(self.machine, [Symbols(text) for text in texts], order, last)
        return [self._join(*pair, last) for pair in zip(texts, masses, strict=True)]

    def _join(self, text: np.ndarray, masses: np.ndarray, last: int | None) -> np.ndarray:
        """Log p of every prefix: paths times memory, summed over the classes."""
        if last is None:
            remembered = self.memory.log_chances(text)[1:]
        else:
            ends = range(len(text) - len(masses), len(text))
            chances = [self.memory.log_chance(text[: end + 1]) for end in ends]
            remembered = np.array(chances).reshape(masses.shape)
        return self._sum(masses + remembered)

    def _sum(self, logs: np.ndarray) -> np.ndarray:
        """Log of the sum over the groups and the classes, the last two axes."""
        return np.logaddexp.reduce(logs + np.log(self.machine.prior), axis=(-2, -1))

    def _within_reach(
        self, texts: list[np.ndarray], direction: str, reach: int, start: str
    ) -> list[np.ndarray]:
        """Read each word as the last one of a window of its own."""
        windows: dict[str, list[tuple[int, int, np.ndarray]]] = {"anywhere": [], start: []}
        for i, text in enumerate(texts):
            for t in range(len(text)):
                begins = start if t <= reach else "anywhere"
                windows[begins].append((i, t, text[max(0, t - reach) : t + 1]))
        out = [np.zeros(len(text)) for text in texts]
        for begins, group in windows.items():
            rows = [window for _, _, window in group]
            logs = self._log_prefixes(rows, self._reading_order(direction, begins), 2)
            for (i, t, window), log in zip(group, logs, strict=True):
                rest = log[-2] if len(window) > 1 else 0.0
                out[i][t] = log[-1] - rest if rest > -math.inf else -math.inf
        return out

    def next_word(
        self, words: Text, *, direction: str = "forward", start: str = "document"
    ) -> np.ndarray:
        """The distribution over the vocabulary of the word after these words (or before them)."""
        text = self.numbers(words)
        check_choice("direction", direction, *DIRECTIONS)
        check_choice("start", start, *STARTS)
        if direction == "forward":
            return self.conditional(np.append(text, 0), [len(text)], start=start)[0]
        if not len(text):
            return self.conditional(np.array([0]), [0], start="anywhere")[0]
        [found] = following(self.machine, self.memory, [text[::-1]], self._backward, 0.0)
        before = found.after(len(text), len(self.vocabulary))
        if not before.any():
            raise ValueError(IMPOSSIBLE)
        return before

    def following(
        self,
        texts: Iterable[Text],
        *,
        direction: str = "forward",
        start: str = "document",
        least: float = 0.0,
    ) -> list[Following]:
        """The distribution of the word after each word of each text, or of the word before it.

        It is `next_word` of every prefix, in one pass. A text may go on over the end marks of
        documents. Backward, the prefixes are read from the last word of a text on. Words that are
        less likely than `least` are left out.
        """
        check_choice("direction", direction, *DIRECTIONS)
        check_choice("start", start, *STARTS)
        documents = [documents_of(self.numbers(words)) for words in texts]

        def each(parts: Iterable[np.ndarray], read: Direction) -> Iterator[Following]:
            return iter(following(self.machine, self.memory, list(parts), read, least))

        if direction == "backward":
            turned = [[part[::-1] for part in reversed(parts)] for parts in documents]
            found = each(chain(*turned), self._backward)
            return [joined([next(found) for _ in parts]) for parts in turned]
        first = each((parts[0] for parts in documents), self._onward(start))
        later = each(chain(*(parts[1:] for parts in documents)), self._onward("document"))
        chances = likely(self.next_word([]), least)
        said = np.nonzero(chances)[0]
        begins = said, chances[said]
        return [
            joined([next(first), *(next(later) for _ in parts[1:])], begins) for parts in documents
        ]

    def _onward(self, start: str) -> Direction:
        none = np.zeros(self.machine.states)
        return direction_over(self.machine, self._reading_order("forward", start), none)

    @cached_property
    def _backward(self) -> Direction:
        begins = self.machine.enter(self.begin) * self.stationary[self.machine.ends].sum()
        return direction_over(self.machine, self._reading_order("backward", "document"), begins)

    # ── sentences and what they mean ─────────────────────────────────────────────────────────────

    def is_sentence(self, words: Text) -> bool:
        """Whether a document can hold these words: from the start of a sentence to a full stop."""
        return self.are_sentences([words])[0]

    def are_sentences(self, texts: Iterable[Text]) -> list[bool]:
        """`is_sentence` of many texts at once, which is much faster than one by one."""
        numbers = [self.numbers(words) for words in texts]
        stop = self.machine.number["."]
        ended = [len(text) > 0 and text[-1] == stop for text in numbers]
        whole = [text for text, ends in zip(numbers, ended, strict=True) if ends]
        logs = iter(self.log_probabilities(whole, start="sentence"))
        return [bool(ends and next(logs).sum() > -math.inf) for ends in ended]

    def posterior(
        self, words: Text, of: str, *, position: int = -1, start: str = "document"
    ) -> dict[str, float]:
        """Chances of every topic, stage, feeling, relation or sense at a position of a text."""
        return self.posteriors([(words, position)], of, start=start)[0]

    def posteriors(
        self, texts: Sequence[tuple[Text, int]], of: str, *, start: str = "document"
    ) -> list[dict[str, float]]:
        """`posterior` of many (words, position)."""
        check_choice("of", of, *MEANINGS)
        rows = [Symbols(self.numbers(words)) for words, _ in texts]
        positions = [
            position_in(position, len(row.symbols))
            for row, (_, position) in zip(rows, texts, strict=True)
        ]
        found = self.states_at(rows, start, [[position] for position in positions])
        out = []
        for row, position, states in zip(rows, positions, found, strict=True):
            numbers, weights, _ = states[position]
            if not weights.sum() > 0:
                # Words that it does not know are beyond the end of its vocabulary.
                said = [*self.vocabulary, "[hidden]", "[unknown]"]
                raise ValueError(
                    f'the language cannot say "{" ".join(said[n] for n in row.symbols)}"'
                )
            labels: dict[str, float] = {}
            shares = (weights / weights.sum()).tolist()
            for state, weight in zip(numbers.tolist(), shares, strict=True):
                label = self._meaning(state, int(row.symbols[position]), of)
                if label is not None and weight > 0:
                    labels[label] = labels.get(label, 0.0) + weight
            out.append(labels)
        return out

    def states_at(
        self, rows: list[Symbols], start: str, wanted: list[list[int]]
    ) -> list[dict[int, Posterior]]:
        """The weights of the states at the wanted positions, given all that a row shows.

        No word of these rows is noisy.
        """
        found = posteriors(self.machine, rows, self._start(start), wanted)
        out = []
        for row, positions in zip(rows, found, strict=True):
            remembered = self.memory.log_chance(row.symbols)
            weighed = {t: weigh(self.machine, remembered, p) for t, p in positions.items()}
            out.append({t: p._replace(weights=p.weights.sum(1)) for t, p in weighed.items()})
        return out

    def _meaning(self, state: int, word: int, of: str) -> str | None:
        if of == "sense":
            return self.machine.senses.get((int(self.machine.emission[state]), word))
        section: Section = self.machine.sections[self.machine.section[state]]
        return getattr(section, of)

    # ── hidden and noisy words ───────────────────────────────────────────────────────────────────

    def conditional(
        self, words: Text, hidden: Sequence[int], *, start: str = "document"
    ) -> np.ndarray:
        """Distributions of the hidden words, each given the seen ones: [hidden, vocabulary]."""
        request = Request(self.numbers(words), hidden_positions(hidden), {})
        return self.distributions([request], start)[0]

    def joint(self, words: Text, hidden: Sequence[int], *, start: str = "document") -> float:
        """log p(all hidden words together | the seen words)."""
        return self.joints([(self.numbers(words), hidden_positions(hidden))], start=start)[0]

    def joints(
        self, texts: list[tuple[np.ndarray, list[int]]], *, start: str = "document"
    ) -> list[float]:
        """`joint` of many texts: log p(all words) - log p(seen words)."""
        if not all(len(text) for text, _ in texts):
            raise ValueError("a text has no words: leave it out")
        rows = [Symbols(text) for text, _ in texts] + [
            Symbols(hide(self.machine, text, hidden)) for text, hidden in texts
        ]
        logs = self.log_totals(rows, start)
        if -math.inf in logs[len(texts) :]:
            raise ValueError(IMPOSSIBLE)
        return [whole - part for whole, part in zip(logs, logs[len(texts) :], strict=False)]

    def log_totals(self, rows: list[Symbols], start: str) -> list[float]:
        """log p(the words that are seen), for rows with hidden words."""
        masses = prefix_masses(self.machine, rows, self._reading_order("forward", start), 1)
        return [
            float(self._sum(mass[-1] + self.memory.log_chance(row.symbols)))
            for row, mass in zip(rows, masses, strict=True)
        ]

    def gap(self, words: Text, hidden: Sequence[int], *, start: str = "document") -> float:
        """What predicting the hidden words one by one loses against predicting them together.

        Its mean over texts is the total correlation of the hidden words given the seen ones
        (Yang et al. 2019, XLNet, section 2.5).
        """
        distributions = self.conditional(words, hidden, start=start)
        said = self.numbers(words)[list(hidden)]
        alone = np.log(distributions[np.arange(len(hidden)), said]).sum()
        return self.joint(words, hidden, start=start) - float(alone)

    def distributions(
        self, texts: Sequence[Request | tuple[np.ndarray, list[int], Noisy]], start: str
    ) -> list[np.ndarray]:
        """For every (words, wanted, noisy), the distributions at the wanted positions.

        A wanted position is hidden, unless it is noisy: then it shows a word that may be wrong.
        """
        requests = [Request(*text) for text in texts]
        return distributions(self.machine, self.memory, requests, self._start(start))


def _ratios(log: np.ndarray, known: np.ndarray) -> np.ndarray:
    """log p(this | known), which is -inf where what is known is impossible."""
    return np.where(known > -np.inf, log - np.where(known > -np.inf, known, 0.0), -np.inf)
