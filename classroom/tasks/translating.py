"""Translation between two languages whose every probability is known (notebook 04).

Read `pair_batches`, `transformer` and `judged` first.
"""

import itertools
import math
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from classroom.tasks.watching import watching
from labkit.attention import attend
from labkit.blocks import Backbone, LanguageModel, States
from labkit.chance import Chance
from labkit.corpus import Batch, Epochs, pad_rows
from labkit.heads import NextWord, pool
from labkit.masking import real_keys
from labkit.models.transformer import Transformer, TransformerConfig, teacher_forced
from labkit.objectives import Targets, Translation
from labkit.recurrence import blank, lengths_of, run_layer
from labkit.sampling import Sampling
from labkit.text.tokenizers import Tokenizer
from labkit.world.translation import Pair, Translator, load_translator
from labkit.writing.beam import beam
from labkit.writing.translator import Conditional

KNOWN = 5_000
"""Pairs whose words make the vocabulary: every word of both languages is among them."""


@cache
def translator() -> Translator:
    """Both languages, and the exact chance of every translation."""
    return load_translator()


@cache
def known_pairs() -> list[Pair]:
    """Pairs in which every word and every tag occurs."""
    return translator().pairs(KNOWN, seed=0)


@cache
def tokenizer() -> Tokenizer:
    """One vocabulary for both languages; each word is a token."""
    words = sorted({word for pair in known_pairs() for words in pair for word in words})
    return Tokenizer.words([" ".join(words)])


def numbers(words: Sequence[str]) -> list[int]:
    """The tokens of a sentence, and the token that ends it."""
    return [*tokenizer().encode(" ".join(words)), end()]


def begin() -> int:
    """The token that the decoder reads first."""
    found = tokenizer().vocabulary.cls
    assert found is not None
    return found


def end() -> int:
    """The token that ends a sentence of either language."""
    found = tokenizer().vocabulary.sep
    assert found is not None
    return found


# ---- batches


@dataclass(frozen=True, eq=False)
class Labelled(Epochs):
    """Source sentences with labels: the words of a translation, or a tag for each word."""

    source: Tensor
    real: Tensor
    labels: Tensor

    @property
    def size(self) -> int:
        """How many sentences there are."""
        return len(self.source)

    def rows_of(self, examples: Tensor, chance: Chance) -> Batch:
        """The sentences with these numbers, cut to the longest of them."""
        real, labels = self.real[examples], self.labels[examples]
        width = int(real.sum(dim=1).max())
        long = max(1, int((labels >= 0).any(dim=0).sum()))
        kept = labels[:, : width if self.aligned else long]
        return Batch.of(self.source[examples, :width], real[:, :width], labels=kept)

    @cached_property
    def aligned(self) -> bool:
        """Whether each source word has a label of its own."""
        return self.labels.shape == self.source.shape


def pair_batches(pairs: Sequence[Pair], *, batch: int = 64, seed: int = 0) -> Labelled:
    """Batches of sentences and their translations."""
    tokens, real = pad_rows([numbers(pair.source) for pair in pairs])
    labels, _ = pad_rows([numbers(pair.target) for pair in pairs], -1)
    return Labelled(tokens, real, labels, batch=batch, seed=seed)


def held_out(source: Sequence[str]) -> bool:
    """Whether this sentence is kept for tests: one in ten, whatever it is drawn for."""
    return zlib.crc32(" ".join(source).encode()) % 10 == 0


@cache
def drawn(seed: int) -> list[Pair]:
    """Return a block of 2,000 pairs; notebooks ask for the same blocks several times."""
    return translator().pairs(2_000, seed=seed)


def pairs(split: str, count: int, *, seed: int = 0) -> list[Pair]:
    """Sentences with a drawn translation; no sentence is in both splits."""
    found: list[Pair] = []
    seeds = itertools.count(1_000 * seed)
    while len(found) < count:
        block = drawn(next(seeds))
        found += [pair for pair in block if held_out(pair.source) == (split != "train")]
    return found[:count]


# ---- translating


@dataclass(frozen=True)
class OneVectorConfig:
    """The sizes of a recurrent encoder-decoder."""

    vocabulary: int
    width: int = 64


class OneVector(Backbone):
    """One network reads the source into one vector, another writes from it (Sutskever et al. 2014).

    It is called as the Transformer is, so the same functions train it, write with it and judge it.
    """

    causal, attends, remembers = True, False, True

    def __init__(self, config: OneVectorConfig) -> None:
        super().__init__(config)
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.encoder = nn.GRU(config.width, config.width, batch_first=True)
        self.decoder = nn.GRU(config.width, config.width, batch_first=True)
        self.blocks = nn.ModuleList()

    def read(self, source_BK: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The states of all words of each source [B, K, D], and the one after its last [B, D]."""
        x_BKD = self.token(source_BK)
        start, lengths_B = blank(x_BKD, self.width), lengths_of(mask, source_BK)
        states_BKD, (last_BD,) = run_layer(self.encoder, x_BKD, start, lengths_B)
        return states_BKD, last_BD

    def encode(self, source_BK: Tensor, *, mask: Tensor | None = None) -> States:
        """The state after the last word of each source: [B, 1, D]."""
        return States((self.read(source_BK, mask)[1][:, None],))

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        source_BK: Tensor | None = None,
        encoded_BKD: Tensor | None = None,
        source_mask: Tensor | None = None,
        mask: Tensor | None = None,
        memory: tuple[Any, ...] | None = None,
    ) -> States:
        """The decoder's states; the source's vector is where it starts from."""
        if encoded_BKD is None:
            assert source_BK is not None
            encoded_BKD = self.encode(source_BK, mask=source_mask).hidden
        start = memory or (encoded_BKD[:, 0],)
        hidden_BTD, after = run_layer(self.decoder, self.token(tokens_BT), start)
        return States((hidden_BTD,), None if memory is None else after)


class WithAttention(OneVector):
    """The same, but its decoder attends to the states of all words of the source.

    c_t is the mean of these states, weighed by softmax(h_t . s_k / sqrt(D)), and the word is
    predicted from tanh(W [c_t; h_t]): Luong et al. 2015, section 3.1, after Bahdanau et al. 2015.
    """

    def __init__(self, config: OneVectorConfig) -> None:
        super().__init__(config)
        self.mix = nn.Linear(2 * config.width, config.width, bias=False)

    def encode(self, source_BK: Tensor, *, mask: Tensor | None = None) -> States:
        """The states of all words of each source: [B, K, D]."""
        return States((self.read(source_BK, mask)[0],))

    def forward(
        self,
        tokens_BT: Tensor,
        *,
        source_BK: Tensor | None = None,
        encoded_BKD: Tensor | None = None,
        source_mask: Tensor | None = None,
        **given: Any,
    ) -> States:
        """The decoder's states with what they attend to; it starts from the last word's state."""
        if encoded_BKD is None:
            assert source_BK is not None
            encoded_BKD = self.encode(source_BK, mask=source_mask).hidden
        real_BK = torch.ones_like(encoded_BKD[:, :, 0], dtype=torch.bool)
        if source_mask is not None:
            real_BK = source_mask[:, 0, 0]
        last_B1D = pool(encoded_BKD, real_BK, "last")[:, None]
        states = super().forward(tokens_BT, encoded_BKD=last_B1D, **given)
        keys_B1KD = encoded_BKD[:, None]
        context_B1TD = attend(states.hidden[:, None], keys_B1KD, keys_B1KD, mask=source_mask)
        both_BTE = torch.cat([context_B1TD[:, 0], states.hidden], dim=-1)
        return States((self.mix(both_BTE).tanh(),), states.memory)


def transformer(seed: int, *, width: int = 64, layers: int = 2) -> LanguageModel:
    """A small Transformer with one table of words for both languages and the output."""
    torch.manual_seed(seed)
    sizes = TransformerConfig(len(tokenizer()), width, layers, 4, 4 * width, dropout=0.0)
    backbone = Transformer(sizes)
    return LanguageModel(backbone, NextWord(backbone.token))


def one_vector(seed: int, *, width: int = 128, kind: type[OneVector] = OneVector) -> LanguageModel:
    """A recurrent encoder-decoder with about as many weights as the Transformer."""
    torch.manual_seed(seed)
    backbone = kind(OneVectorConfig(len(tokenizer()), width))
    return LanguageModel(backbone, NextWord(backbone.token))


def with_attention(seed: int, *, width: int = 128) -> LanguageModel:
    """The same recurrent encoder-decoder with attention."""
    return one_vector(seed, width=width, kind=WithAttention)


@torch.no_grad()
def greedy(
    model: Any, sources: Sequence[Sequence[str]], *, begins: Sequence[str] = (), length: int = 32
) -> list[list[str]]:
    """What a model writes after the given words, each time the likeliest word."""
    rows = [numbers(source) for source in sources]
    source_BK, real = pad_rows(rows)
    mask = real_keys(real)
    encoded_BKD = model.backbone.encode(source_BK, mask=mask).hidden
    word_B1, memory, written = torch.full((len(rows), 1), begin()), (), []
    forced = tokenizer().encode(" ".join(begins))
    for step in range(length):
        given = {"encoded_BKD": encoded_BKD, "source_mask": mask, "memory": memory}
        states = model.backbone(word_B1, **given)
        memory, word_B1 = states.memory, model.head(states.hidden).argmax(dim=-1)
        if step < len(forced):
            word_B1 = torch.full_like(word_B1, forced[step])
        written.append(word_B1)
        if bool((torch.cat(written, dim=1) == end()).any(dim=1).all()):
            break
    return [spelled(row) for row in torch.cat(written, dim=1).tolist()]


def searched(model: Any, source: Sequence[str], *, beams: int = 4) -> list[list[str]]:
    """The translations that a beam search finds, the best first."""
    one = Conditional(model, torch.tensor([numbers(source)]))
    found = beam(
        one, [begin()], Sampling(length=20, stop=(end(),)), beams=beams, length_penalty=0.0
    )
    return [spelled(sample.tokens) for sample in found]


def spelled(row: Sequence[int]) -> list[str]:
    """The words of a translation, up to its end."""
    kept = itertools.takewhile(lambda token: token != end(), row)
    return tokenizer().pieces(list(kept))


def _after_right_words(model: Any, asked: Sequence[Pair]) -> tuple[States, Targets]:
    """The decoder's states for each pair, and what they have to predict."""
    [batch] = pair_batches(asked, batch=len(asked)).once()
    objective = Translation(begin=begin())
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    states, _ = objective.forward(model, targets)
    return states, targets


@torch.no_grad()
def log_probabilities(model: Any, asked: Sequence[Pair]) -> list[float]:
    """log p(target | source) under a model, for each pair."""
    states, targets = _after_right_words(model, asked)
    rows, _, answers = targets.predicted["words"]
    [scores] = Translation(begin=begin()).scores(model, states, targets).values()
    each = scores.log_softmax(dim=-1).gather(1, answers[:, None])[:, 0]
    found: list[float] = torch.zeros(len(asked)).index_add(0, rows, each).tolist()
    return found


def joined(pairs: Sequence[Pair], count: int) -> list[Pair]:
    """Longer texts: `count` sentences in one row, and their translations in the same order."""
    groups = zip(*[iter(pairs)] * count, strict=False)
    return [Pair(*(list(itertools.chain(*texts)) for texts in zip(*group, strict=True)))
            for group in groups]  # fmt: skip


KINDS = (nn.Linear, nn.LayerNorm, nn.Embedding)


@torch.no_grad()
def copy_weights(theirs: nn.Module, mine: nn.Module, *, back: bool = False) -> nn.Module:
    """Give a model that was built by hand the weights of labkit's, or the other way round.

    Both define their layers in the same order; labkit keeps query, key and value in one matrix. An
    encoder alone takes the first of them.
    """
    layers = [module for module in mine.modules() if isinstance(module, KINDS)]
    given = [
        part
        for name, module in theirs.named_modules()
        if isinstance(module, KINDS) and name != "head.words"
        for part in zip(
            *(weight.chunk(3 if name.endswith("query_key_value") else 1) for weight in
              module.parameters()), strict=True)
    ]  # fmt: skip
    for layer, weights in zip(layers, given, strict=False):
        for new, old in zip(layer.parameters(), weights, strict=True):
            (old if back else new).copy_(new if back else old)
    return theirs if back else mine


# ---- what is best


class Scores(NamedTuple):
    """How good a translator is."""

    loss: float
    """-log p(word | source, the right words before it), the mean over all words and ends."""
    tokens: float
    """How often its likeliest next word is right, on average, after the right words."""
    exact: float
    """The chance that a drawn translation is word for word the written one."""
    bleu: float
    """BLEU of what is written, against the drawn translations."""


def judged(model: Any, asked: Sequence[Pair], written: Sequence[Sequence[str]]) -> Scores:
    """The scores of a model, and of what it has written, on some pairs."""
    count = sum(len(pair.target) + 1 for pair in asked)
    loss = -sum(log_probabilities(model, asked)) / count
    both = zip(asked, first_choices(model, asked), strict=True)
    rights = [
        p.get(word, 0.0)
        for pair, words in both
        for p, word in zip(next_words(*pair), words, strict=True)
    ]
    return Scores(loss, sum(rights) / count, *scores_of(asked, written))


@torch.no_grad()
def first_choices(model: Any, asked: Sequence[Pair]) -> list[list[str]]:
    """The likeliest word at each step, after the right words; "" is the end."""
    states, _ = _after_right_words(model, asked)
    best = model.head(states.hidden).argmax(dim=-1).tolist()
    return [
        ["" if token == end() else tokenizer().pieces([token])[0] for token in row]
        for row in (row[: len(pair.target) + 1] for row, pair in zip(best, asked, strict=True))
    ]


def scores_of(asked: Sequence[Pair], written: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Exact match, as its expectation over what might be drawn, and BLEU."""
    chances = [
        translator().translations(pair.source).get(tuple(words), 0.0)
        for pair, words in zip(asked, written, strict=True)
    ]
    return sum(chances) / len(asked), bleu(written, [pair.target for pair in asked])


def best_of(asked: Sequence[Pair]) -> Scores:
    """What the true distribution reaches on these pairs, writing its likeliest translation.

    No translator has a higher expected exact match or token accuracy. (BLEU may be a little higher
    for one that hedges.)
    """
    written = [translator().best(pair.source) for pair in asked]
    return Scores(floor(asked), best_tokens(asked), *scores_of(asked, written))


def floor(asked: Sequence[Pair]) -> float:
    """The loss of the true distribution on these pairs, in nats per word."""
    count = sum(len(pair.target) + 1 for pair in asked)
    return -sum(translator().log_probability(*pair) for pair in asked) / count


def best_tokens(asked: Sequence[Pair], count: int = 1) -> float:
    """The highest token accuracy on `joined(asked, count)`: only the last sentence has an end."""
    rights = []
    for number, pair in enumerate(asked, start=1):
        shares = [max(p.values()) for p in next_words(*pair)]
        rights += shares if number % count == 0 else shares[:-1]
    return sum(rights) / len(rights)


def next_words(source: Sequence[str], target: Sequence[str]) -> list[dict[str, float]]:
    """p(next word | source, the target's words before it), at each word and at the end ("")."""
    known = translator().translations(source)
    return [next_word(source, target[:t], known) for t in range(len(target) + 1)]


def next_word(
    source: Sequence[str], before: Sequence[str], known: dict[tuple[str, ...], float] | None = None
) -> dict[str, float]:
    """p(next word | source, the words before it); empty where no translation begins with them."""
    known = translator().translations(source) if known is None else known
    shares: dict[str, float] = defaultdict(float)
    for words, p in known.items():
        if list(words[: len(before)]) == list(before):
            shares[words[len(before)] if len(words) > len(before) else ""] += p
    total = sum(shares.values())
    return {word: p / total for word, p in shares.items()}


def likeliest(source: Sequence[str]) -> list[list[str]]:
    """All translations that have the highest probability."""
    known = translator().translations(source)
    most = max(known.values())
    return [list(words) for words, p in known.items() if p > most - 1e-9]


class Error(NamedTuple):
    """A translation that is not one of the likeliest, and whether the search is to blame."""

    source: list[str]
    written: list[str]
    best: list[str]
    searching: bool
    """Whether the search is to blame: the model gives the best translation a higher probability."""


def errors(
    model: Any, sources: Sequence[Sequence[str]], written: Sequence[list[str]]
) -> list[Error]:
    """The wrong translations, each with the right one that the model finds likeliest."""
    found = []
    for source, words in zip(sources, written, strict=True):
        best = likeliest(source)
        if words in best:
            continue
        asked = [Pair(list(source), target) for target in [words, *best]]
        own, *others = log_probabilities(model, asked)
        first = int(np.argmax(others))
        found.append(Error(list(source), words, best[first], max(others) > own))
    return found


def bleu(written: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float:
    """BLEU of a corpus (Papineni et al. 2002), from 0 to 100, by sacrebleu; nan without it."""
    try:
        from sacrebleu import corpus_bleu
    except ModuleNotFoundError:
        print("BLEU is left out; to have it: pip install sacrebleu")
        return math.nan
    texts, references = ([" ".join(words) for words in some] for some in (written, wanted))
    return float(corpus_bleu(texts, [references], tokenize="none", force=True).score)


def possible_after_right_words(model: Any, asked: Sequence[Pair]) -> list[bool]:
    """Whether the likeliest word is possible at every step, after the right words before it.

    "Possible" is what the true distribution gives a chance above zero.
    """
    both = zip(asked, first_choices(model, asked), strict=True)
    return [
        all(word in p for word, p in zip(words, next_words(*pair), strict=True))
        for pair, words in both
    ]


# ---- alignment


@torch.no_grad()
def cross_attention(model: Any, source: Sequence[str], target: Sequence[str]) -> Tensor:
    """How much each word of the target takes from each word of the source: [layers, heads, T, K].

    Row t is what the decoder looks at when it predicts word t; the last row predicts the end, the
    last column is the end of the source.
    """
    given_BT = teacher_forced(torch.tensor([numbers(target)]), begin())
    encoded = model.backbone.encode(torch.tensor([numbers(source)])).hidden
    with watching() as found:
        model.backbone(given_BT, encoded_BKD=encoded)
    return torch.cat(found[1::2])


def aligned(weights_TK: Any, true_TK: np.ndarray) -> list[bool]:
    """Whether the largest weight of each target word is at a source word that it comes from."""
    words, sources = true_TK.shape
    chosen = np.asarray(weights_TK)[:words, :sources].argmax(axis=1)
    return [bool(true[one] > true.max() - 1e-9)
            for one, true in zip(chosen, true_TK, strict=True) if true.sum() > 0.5]  # fmt: skip
