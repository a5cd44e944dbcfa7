"""A perfect predictor gets exactly the floor: nothing else is asked, and nothing is asked twice.

First of a small Markov chain, whose perfect predictor sums over all texts and whose floor comes
from the chain's own matrices; then of a small language of `labkit.world`.
"""

import itertools
import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from labkit.blocks import Backbone, States
from labkit.chance import Chance
from labkit.corpus import Batch
from labkit.heads import WordHead
from labkit.models.word_vectors import WordVectorsConfig
from labkit.models.xlnet import TwoStreams
from labkit.objectives import (
    Both,
    BothDirections,
    Labels,
    MaskedToken,
    NextSentence,
    NextToken,
    Objective,
    Permutation,
    SentenceOrder,
    SkipGram,
    auxiliary,
)
from labkit.text.vocabulary import Vocabulary
from labkit.world import World
from labkit.world.floors import masked as floors_of_masked
from labkit.world.floors import mean_of
from labkit.world.world import world_from_text

# ---- a Markov chain of three words -------------------------------------------------------------

FIRST, WORDS, T = 5, 3, 6
PAD, UNK, CLS, SEP, MASK = range(FIRST)
V = FIRST + WORDS
VOCABULARY = Vocabulary(V, PAD, UNK, CLS, SEP, MASK, tuple(range(FIRST)))
START = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)
STEP = torch.tensor([[0.1, 0.6, 0.3], [0.5, 0.2, 0.3], [0.25, 0.05, 0.7]], dtype=torch.float64)
TEXTS = torch.tensor(list(itertools.product(range(WORDS), repeat=T)))


def log_p(text: Tensor, step: Tensor = STEP) -> Tensor:
    """log p(text), from the matrices of the chain."""
    steps = [step[a, b].log() for a, b in itertools.pairwise(text.tolist())]
    return START[text[0]].log() + sum(steps)


def sample(
    rows: int, length: int = T, seed: int = 0, step: Tensor = STEP, start: Tensor = START
) -> Tensor:
    """Texts of the chain."""
    uniform = Chance(seed, 0, torch.arange(rows)).uniform("text", length).double()
    text = torch.zeros(rows, length, dtype=torch.long)
    text[:, 0] = torch.searchsorted(start.cumsum(0), uniform[:, 0].contiguous(), right=True)
    for t in range(1, length):
        law = step[text[:, t - 1]].cumsum(1)
        text[:, t] = torch.searchsorted(law, uniform[:, t : t + 1].contiguous(), right=True)[
            :, 0
        ].clamp(max=2)
    return text


PRIOR = torch.stack([log_p(text) for text in TEXTS]).exp()
IS = nn.functional.one_hot(TEXTS, WORDS).double()


def law_at(place: int, evidence: Tensor) -> Tensor:
    """log p(word at a place | how well each word goes with what is seen [T, words]): a sum over
    all texts, [V]."""
    fits = PRIOR * (IS * evidence).sum(-1).prod(-1)
    law = (fits[:, None] * IS[:, place]).sum(0)
    return nn.functional.pad((law / law.sum()).log(), (FIRST, 0), value=-math.inf)


def seen(row: Tensor, visible: Tensor) -> Tensor:
    """Evidence of a text of which some words are visible."""
    words = nn.functional.one_hot((row - FIRST).clamp(min=0), WORDS).double()
    return torch.where(visible[:, None], words, 1.0)


class Says(WordHead):
    """A head for states that are the answers already."""

    def forward(self, hidden_ND: Tensor) -> Tensor:
        return hidden_ND


class Knows(Backbone):
    """A backbone that knows the chain: its states are laws."""

    def __init__(self, law: Callable[[Tensor, int], Tensor], *, causal: bool = False) -> None:
        super().__init__(WordVectorsConfig(V, V))
        self.law, self.causal = law, causal

    def forward(self, tokens_BT: Tensor, mask: Tensor | None = None) -> States:
        rows = [[self.law(row, t) for t in range(len(row))] for row in tokens_BT]
        return States((torch.stack([torch.stack(row) for row in rows]),))


def model(backbone: object, **heads: nn.Module) -> SimpleNamespace:
    return SimpleNamespace(backbone=backbone, **({"head": Says()} | heads))


def loss(objective: Objective, knower: object, given: Batch, seed: int = 3) -> float:
    return objective(knower, given, Chance(seed, 1, given.rows)).loss.item()


def next_law(row: Tensor, t: int) -> Tensor:
    if t + 1 >= T:
        return torch.zeros(V).double()
    padded = nn.functional.pad(row, (0, T - len(row)), value=FIRST)
    return law_at(t + 1, seen(padded, torch.arange(T) <= t))


def previous_law(row: Tensor, t: int) -> Tensor:
    return law_at(t - 1, seen(row, torch.arange(T) >= t)) if t else torch.zeros(V).double()


def test_next_word_of_the_chain():
    texts = sample(20)
    floor = -sum(log_p(text) - START[text[0]].log() for text in texts) / (20 * (T - 1))
    knower = model(Knows(next_law, causal=True))
    assert loss(NextToken(), knower, Batch.of(texts + FIRST)) == pytest.approx(
        float(floor), rel=1e-12
    )


def test_both_directions_of_the_chain():
    texts = sample(20)
    ends = START
    for _ in range(T - 1):
        ends = ends @ STEP
    floor = sum(
        -log_p(text) + (START[text[0]].log() + ends[text[-1]].log()) / 2 for text in texts
    ) / (20 * (T - 1))
    knower = model(Knows(lambda row, t: torch.cat([next_law(row, t), previous_law(row, t)])))
    knower.backbone.two_ways = True
    found = loss(BothDirections(), knower, Batch.of(texts + FIRST))
    assert found == pytest.approx(float(floor), rel=1e-12)


RATE = 0.3


@pytest.mark.parametrize("shares", [(1.0, 0.0, 0.0), (0.8, 0.1, 0.1), (0.4, 0.4, 0.2)])
def test_masked_words_of_the_chain(shares):
    """The channel is known: what is shown may be a random word, or have been left as it was."""
    masked, swapped, kept = shares
    same = torch.eye(WORDS).double()
    chosen = torch.full((WORDS, WORDS), swapped / WORDS).double() + kept * same
    other = RATE * chosen + (1 - RATE) * same

    def evidence(row: Tensor, place: int) -> Tensor:
        shown = [
            torch.full((WORDS,), masked if t == place else RATE * masked).double()
            if token == MASK
            else (chosen if t == place else other)[:, token - FIRST]
            for t, token in enumerate(row.tolist())
        ]
        return torch.stack(shown)

    def messages(row: Tensor, place: int, word: int) -> Tensor:
        """The floor, from the chain: forward to the place, backward to it."""
        shows = evidence(row, place)
        forward = START
        for t in range(place):
            forward = (forward * shows[t]) @ STEP
        backward = torch.ones(WORDS).double()
        for t in range(T - 1, place, -1):
            backward = STEP @ (shows[t] * backward)
        law = forward * shows[place] * backward
        return (law[word] / law.sum()).log()

    given = Batch.of(sample(20) + FIRST)
    objective = MaskedToken(vocabulary=VOCABULARY, rate=RATE, shares=shares)
    targets = objective.targets(given, Chance(3, 1, given.rows))
    asked = zip(*(part.tolist() for part in targets.predicted["masked"]), strict=True)
    logs = [messages(targets.inputs.tokens[b], t, word - FIRST) for b, t, word in asked]
    knower = model(Knows(lambda row, t: law_at(t, evidence(row, t))))
    floor = -torch.stack(logs).mean().item()
    assert loss(objective, knower, given) == pytest.approx(float(floor), rel=1e-12)
    # On average it is the entropy of what is hidden: no objective asks for less than there is.
    assert len(logs) == pytest.approx(20 * T * RATE, abs=15)


class KnowsOrders(Backbone):
    """Two streams that know the chain: a query sees what its mask lets it see."""

    def __init__(self) -> None:
        super().__init__(WordVectorsConfig(V, V))

    def two_streams(self, tokens_BT, asked_BN, *, mask, query_mask, memory):
        rows = [
            torch.stack([law_at(t, seen(row, query_mask[b, 0, t])) for t in asked_BN[b].tolist()])
            for b, row in enumerate(tokens_BT)
        ]
        states = States((torch.stack(rows),))
        return TwoStreams(states, states)


@pytest.mark.parametrize("seed", range(3))
def test_all_words_in_any_order_are_the_text(seed):
    """By the chain rule, whatever the order: -log p(text) is the sum over its words."""
    texts = sample(10)
    floor = -sum(log_p(text) for text in texts) / (10 * T)
    objective = Permutation(vocabulary=VOCABULARY, share=1.0)
    found = loss(objective, model(KnowsOrders()), Batch.of(texts + FIRST), seed)
    assert found == pytest.approx(float(floor), rel=1e-12)


def test_the_last_words_of_an_order_are_a_joint():
    """log p(predicted words | the others), whatever the order among them."""
    texts = sample(10)
    given, objective = Batch.of(texts + FIRST), Permutation(vocabulary=VOCABULARY, share=0.5)
    predicted = objective.targets(given, Chance(3, 1, given.rows)).order.predicted
    joint = torch.zeros(()).double()
    for text, hidden in zip(texts, predicted, strict=True):
        fits = (text == TEXTS)[:, ~hidden].all(1)
        joint = joint + log_p(text) - PRIOR[fits].sum().log()
    floor = -joint.item() / int(predicted.sum())
    assert loss(objective, model(KnowsOrders()), given) == pytest.approx(float(floor), rel=1e-12)


def pairs(question: str) -> Batch:
    """[CLS] a [SEP] b [SEP]: two halves of a text, or strangers, or swapped."""
    texts, strangers = sample(40, 4, 1), sample(40, 2, 2)
    a, b = texts.split(2, 1)
    no = Chance(4, 0, torch.arange(40)).uniform("answer", 1)[:, 0] < 0.5
    if question == "next":
        b = torch.where(no[:, None], strangers, b)
    else:
        a, b = torch.where(no[:, None], b, a), torch.where(no[:, None], a, b)
    mark = torch.full((40, 1), 0)
    tokens = torch.cat([mark + CLS, a + FIRST, mark + SEP, b + FIRST, mark + SEP], 1)
    segments = torch.tensor([[0] * 4 + [1] * 3]).expand(40, -1)
    return Batch.of(tokens, segments=segments, labels=no.long())


@pytest.mark.parametrize("question", ["next", "order"])
def test_pairs_of_the_chain(question):
    def halves(row: Tensor) -> tuple[Tensor, Tensor]:
        return row[1:3] - FIRST, row[4:6] - FIRST

    def posterior(row: Tensor, place: int) -> Tensor:
        """p(yes), p(no): from sums over all texts."""
        a, b = halves(row)
        yes = PRIOR[(TEXTS[:, :4] == torch.cat([a, b])).all(1)].sum()
        if question == "order":
            no = PRIOR[(TEXTS[:, :4] == torch.cat([b, a])).all(1)].sum()
        else:
            no = PRIOR[(TEXTS[:, :2] == a).all(1)].sum() * PRIOR[(TEXTS[:, :2] == b).all(1)].sum()
        return torch.stack([yes, no]).log().log_softmax(0)

    given, floor = pairs(question), 0.0
    for row, label in zip(given.tokens, given.labels.tolist(), strict=True):
        a, b = halves(row)
        logs = [log_p(torch.cat([a, b])), log_p(torch.cat([b, a]))]
        if question == "next":
            logs[1] = log_p(a) + log_p(b)
        floor -= (logs[label] - torch.logaddexp(*logs)).item() / 40
    objective = NextSentence() if question == "next" else SentenceOrder()
    knower = model(Knows(posterior), head=nn.Identity())
    assert loss(objective, knower, given) == pytest.approx(float(floor), rel=1e-12)


def test_labels_and_l3_of_two_chains():
    """Which of two chains made the text, and what does the first one say next?"""
    other = STEP.flip(0)
    texts = torch.cat([sample(10), sample(10, T, 5, other)])
    labels = torch.arange(20) // 10
    given = Batch.of(texts + FIRST, labels=labels)

    def which(row: Tensor, place: int) -> Tensor:
        logs = [log_p(row - FIRST, step) for step in (STEP, other)]
        return torch.stack(logs).log_softmax(0)

    floor = 0.0
    for text, label in zip(texts, labels.tolist(), strict=True):
        odds = torch.stack([log_p(text, STEP), log_p(text, other)]).exp()
        floor -= (odds[label] / odds.sum()).log().item() / 20
    knower = model(Knows(which), head=nn.Identity())
    assert loss(Labels(), knower, given) == pytest.approx(float(floor), rel=1e-12)

    class First(nn.Module):
        """The first two numbers of a state are the label's law."""

        def forward(self, hidden_ND: Tensor) -> Tensor:
            return hidden_ND[:, :2]

    class Others(Says):
        """The others are the next word's."""

        def forward(self, hidden_ND: Tensor) -> Tensor:
            return hidden_ND[:, 2:]

    words = -sum(log_p(text) - START[text[0]].log() for text in texts) / (20 * (T - 1))
    knower = model(
        Knows(lambda row, t: torch.cat([which(row, t), next_law(row, t)]), causal=True),
        head=First(),
        words=Others(),
    )
    for objective in (
        auxiliary(0.5),
        Both(parts=(Labels(position="last"), NextToken(head="words")), weights=(1.0, 0.5)),
    ):
        expected = floor + 0.5 * words.item()
        assert loss(objective, knower, given) == pytest.approx(expected, rel=1e-12)


def test_the_best_word_vectors_are_shifted_mutual_information():
    """Levy and Goldberg 2014: with u . v = log p(c | w) / (k q(c)) the loss is at its floor."""
    counts = torch.cat([torch.zeros(FIRST), torch.tensor([5.0, 2.0, 3.0])])
    stationary = torch.linalg.matrix_power(STEP, 64)[0]
    texts = sample(4000, T, 7, start=stationary)
    joint = (stationary[:, None] * STEP + (stationary[:, None] * STEP).T) / 2
    noise = counts[FIRST:].double() ** 0.75
    noise, k = noise / noise.sum(), 3
    score = (joint / joint.sum(1, keepdim=True) / (k * noise)).log()
    floor = -(joint * nn.functional.logsigmoid(score)).sum()
    floor -= (joint.sum(1)[:, None] * noise * k * nn.functional.logsigmoid(-score)).sum()

    class Vectors(Backbone):
        def __init__(self) -> None:
            super().__init__(WordVectorsConfig(V, 1))

        def forward(self, tokens_BT: Tensor, mask: Tensor | None = None) -> States:
            return States((torch.zeros(*tokens_BT.shape, 1),))

        def skip_gram(self, centres_N: Tensor, context_N: Tensor, drawn: Tensor) -> Tensor:
            right = score[centres_N - FIRST, context_N - FIRST]
            wrong = score[centres_N[:, None] - FIRST, drawn - FIRST]
            return -nn.functional.logsigmoid(right) - nn.functional.logsigmoid(-wrong).sum(1)

    objective = SkipGram(counts=counts, reach=1, noise=k, threshold=None)
    found = loss(objective, model(Vectors()), Batch.of(texts + FIRST))
    assert found == pytest.approx(floor.item(), abs=0.02)


# ---- a language of labkit.world ----------------------------------------------------------------

TINY = """
documents
    story 1 begins with walk

fact hero
    anna 2, ben

words place
    park 2, new york, river bank

topic walk
    leads to walk 1, end 2

stage begin
    2 {hero} went to the {place} .
    in the {place} (old|) {hero} ate .
"""


@pytest.fixture(scope="module")
def world() -> World:
    return world_from_text({"tiny.txt": TINY})


@pytest.fixture(scope="module")
def texts(world: World) -> list[np.ndarray]:
    return [document.numbers for document in world.sample(documents=8, seed=1, split=None)]


def rows_of(world: World, texts: list[np.ndarray], begin: bool = False) -> tuple[Batch, Vocabulary]:
    """One document a row, padded; the end mark, 0, is a special token."""
    size = len(world.vocabulary)
    lengths = [len(text) + begin for text in texts]
    tokens = torch.full((len(texts), max(lengths)), size)
    for row, text in zip(tokens, texts, strict=True):
        row[: len(text) + begin] = torch.tensor([0] * begin + text.tolist())
    vocabulary = Vocabulary(size + 2, pad=size, mask=size + 1, special=(0, size, size + 1))
    return Batch.of(tokens, tokens != size), vocabulary


class KnowsWorld(Backbone):
    """A backbone that knows the language, word by word."""

    def __init__(
        self, world: World, law: Callable[[np.ndarray, int], Tensor], **promises: bool
    ) -> None:
        # A vocabulary with the end of a document, padding and [MASK].
        size = len(world.vocabulary)
        super().__init__(WordVectorsConfig(size + 2, size))
        self.world, self.law = world, law
        vars(self).update(promises)

    def forward(self, tokens_BT: Tensor, mask: Tensor | None = None) -> States:
        rows = []
        for row in tokens_BT.numpy():
            text = row[row != len(self.world.vocabulary)]
            laws = [self.law(text, t) for t in range(len(text))]
            blank = [torch.zeros_like(laws[0])] * (len(row) - len(text))
            rows.append(torch.stack(laws + blank))
        return States((torch.stack(rows),))


def log(law: np.ndarray) -> Tensor:
    with np.errstate(divide="ignore"):
        return torch.from_numpy(np.log(law))


def test_next_word_of_the_language(world, texts):
    def law(text: np.ndarray, t: int) -> Tensor:
        # What stands after the end of a document is not asked.
        return (
            log(world.next_word(text[1 : t + 1]))
            if 0 not in text[1 : t + 1]
            else log(np.ones(size))
        )

    size = len(world.vocabulary)
    given, _ = rows_of(world, texts, begin=True)
    found = loss(NextToken(), model(KnowsWorld(world, law, causal=True)), given)
    logs = world.log_probabilities(texts)
    assert found == pytest.approx(mean_of([-each for each in logs]).mean, rel=1e-10)


def test_both_directions_of_the_language(world, texts):
    size = len(world.vocabulary)

    def law(text: np.ndarray, t: int) -> Tensor:
        # What stands after the end of a document, or before its beginning, is not asked.
        ahead = world.next_word(text[: t + 1]) if text[t] else np.ones(size)
        back = world.next_word(text[t:], direction="backward") if t else np.ones(size)
        return torch.cat([log(ahead), log(back)])

    given, _ = rows_of(world, texts)
    forward = np.concatenate([each[1:] for each in world.log_probabilities(texts)])
    backward = np.concatenate(
        [each[:-1] for each in world.log_probabilities(texts, direction="backward")]
    )
    found = loss(
        BothDirections(), model(KnowsWorld(world, law, attends=False, two_ways=True)), given
    )
    assert found == pytest.approx(-(forward.mean() + backward.mean()) / 2, rel=1e-10)


def test_masked_words_of_the_language(world, texts):
    given, vocabulary = rows_of(world, texts)
    mask = vocabulary.mask

    def law(text: np.ndarray, t: int) -> Tensor:
        hidden = np.nonzero(text == mask)[0].tolist()
        if t not in hidden:
            return log(np.ones(len(world.vocabulary)))
        return log(world.conditional(np.where(text == mask, 1, text), hidden)[hidden.index(t)])

    objective = MaskedToken(vocabulary=vocabulary, rate=0.3, shares=(1, 0, 0))
    chosen = objective.choose(given, Chance(3, 1, given.rows))
    rows = [row.nonzero()[:, 0].tolist() for row in chosen]
    some = [i for i, row in enumerate(rows) if row]
    floors = floors_of_masked(
        world,
        [texts[i] for i in some],
        [rows[i] for i in some],
        0.3,
        (1.0, 0.0, 0.0),
        0,
        "document",
    )
    found = loss(objective, model(KnowsWorld(world, law)), given)
    assert found == pytest.approx(mean_of(floors).mean, rel=1e-10)


def test_permutations_of_the_language(world, texts):
    given, vocabulary = rows_of(world, texts)
    objective = Permutation(vocabulary=vocabulary, share=0.4)
    order = objective.targets(given, Chance(3, 1, given.rows)).order
    places = torch.arange(given.tokens.shape[1])

    class TwoStreamed(KnowsWorld):
        def two_streams(self, tokens_BT, asked_BN, *, mask, query_mask, memory):
            rows = []
            for b, row in enumerate(tokens_BT):
                laws = []
                for t in asked_BN[b].tolist():
                    hidden = places[~query_mask[b, 0, t] & given.real[b]].tolist()
                    law = self.world.conditional(row[given.real[b]].numpy(), hidden)
                    laws.append(log(law[hidden.index(t)]))
                rows.append(torch.stack(laws))
            states = States((torch.stack(rows),))
            return TwoStreams(states, states)

    chosen = [row.nonzero()[:, 0].tolist() for row in order.predicted]
    joints = world.joints(list(zip(texts, chosen, strict=True)))
    found = loss(objective, model(TwoStreamed(world, lambda *_: torch.zeros(1))), given)
    assert found == pytest.approx(-sum(joints) / sum(map(len, chosen)), rel=1e-10)
