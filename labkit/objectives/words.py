"""Objectives that predict words: the next one, or masked ones.

Next word: Bengio et al. 2003; in both directions: Peters et al. 2018, section 3.1; AR and TAR:
Merity et al. 2018, section 4.6. Masked words: Devlin et al. 2019, section 3.1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from labkit.blocks import States, halves
from labkit.chance import Chance
from labkit.checks import check_choice, check_not_negative, check_share, check_whole
from labkit.corpus import Batch
from labkit.heads import exact
from labkit.objectives import hiding
from labkit.objectives.base import (
    Continuing,
    Objective,
    Predicted,
    Targets,
    Term,
    at,
)
from labkit.recurrence import activation, temporal_activation
from labkit.text.vocabulary import Vocabulary


def of_one_text(batch: Batch) -> Tensor:
    """True [B, T - 1] where a real word and the one after it are of the same text."""
    both = batch.real[:, 1:] & batch.real[:, :-1]
    if batch.documents is None:
        return both
    return both & (batch.documents[:, 1:] == batch.documents[:, :-1])


@dataclass(frozen=True, kw_only=True, eq=False)
class NextToken(Continuing):
    """Predict each word from those before it: -mean log p(x_t | x_1 ... x_(t-1)).

    A row of T words has T - 1 predictions: the model reads all but the last.
    """

    ar: float = 0.0
    """AWD-LSTM: weight of the squares of the last states, after dropout."""
    tar: float = 0.0
    """AWD-LSTM: weight of the squares of the last states' steps in time, before dropout."""
    by_row: bool = False
    """The mean of the means of the rows, as the code of GPT's fine-tuning takes it (train.py,
    model); by default each word counts the same, so that a split batch has the loss of the whole
    corpus."""

    def __post_init__(self) -> None:
        check_not_negative(ar=self.ar, tar=self.tar)

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """Every real word that has a word of its own text before it."""
        self._check(batch)
        width = batch.tokens.shape[1] - 1
        # The last word of a row is not read, wherever the row ends.
        real = batch.real[:, 1:] & batch.real[:, :-1]
        if not width:
            # Rows of one token hold no next word; a model reads one position at least.
            width, real = 1, torch.zeros_like(batch.real)
        inputs = replace(first(batch, width), real=real)
        predicted = Predicted.where(of_one_text(batch), batch.tokens[:, 1:])
        counts = {"word": len(predicted.rows_N.unique())} if self.by_row else {}
        if self.ar:
            counts["ar"] = int(inputs.real.sum())
        if self.tar:
            counts["tar"] = int(of_one_text(inputs).sum())
        return Targets.of(inputs, {"word": predicted}, counts, causal=True)

    def terms(self, model: Any, states: States, targets: Targets) -> dict[str, Term]:
        """The loss of the words, and the penalties on large and on changing states."""
        terms = super().terms(model, states, targets)
        # Beside other objectives the model may have read more than this one predicts from.
        width = targets.inputs.tokens.shape[1]
        if self.ar:
            squares = activation(exact(states.layers[-1][:, :width]))[targets.inputs.real]
            terms["ar"] = Term(squares.sum(), targets.counts["ar"], self.ar)
        if self.tar:
            if len(states.layers) < model.backbone.layers + 2:
                raise ValueError(
                    f"{type(model.backbone).__name__} does not give its last states before dropout "
                    "too, whose steps tar would weigh: give tar=0, or an AWDLSTM"
                )
            steps = temporal_activation(exact(states.layers[-2][:, :width]))
            squares = steps[of_one_text(targets.inputs)]
            terms["tar"] = Term(squares.sum(), targets.counts["tar"], self.tar)
        return terms

    def summed(self, losses_N: Tensor, predicted: Predicted) -> Tensor:
        """The sum of all words' losses, or of the rows' means."""
        if not self.by_row:
            return super().summed(losses_N, predicted)
        return (losses_N / predicted.rows_N.bincount()[predicted.rows_N]).sum()


def first(batch: Batch, width: int) -> Batch:
    """The first `width` positions of each row."""
    by_position = ("tokens", "real", "segments", "documents", "words")
    given = {name: getattr(batch, name) for name in by_position}
    return replace(batch, **{k: v[:, :width] for k, v in given.items() if v is not None})


@dataclass(frozen=True, kw_only=True, eq=False)
class BothDirections(Continuing):
    """ELMo: the mean of the losses of the next word and of the one before.

    The states of the backbone are two halves: one depends on the words up to a position, the other
    on the words from it on. Both use the same head.
    """

    term_weight: ClassVar[float] = 0.5

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The word after each word, and the word before it."""
        if batch.documents is not None:
            raise ValueError("documents in one row would be read as one text: give each a row")
        wanted = of_one_text(batch)
        ahead = Predicted.where(wanted, batch.tokens[:, 1:])
        # The same pairs of neighbours, the other way round.
        back = Predicted(
            ahead.rows_N, ahead.positions_N + 1, batch.tokens[ahead.rows_N, ahead.positions_N]
        )
        return Targets.of(batch, {"next": ahead, "previous": back})

    def hidden(self, states: States, targets: Targets) -> dict[str, Tensor]:
        """The left half predicts the next word, the right half the previous one."""
        left, right = halves(states)
        return {
            "next": at(left.hidden, targets.predicted["next"]),
            "previous": at(right.hidden, targets.predicted["previous"]),
        }

    def check_model(self, model: Any) -> None:
        """Refuse a backbone that does not keep both directions apart."""
        super().check_model(model)
        if not model.backbone.two_ways:
            raise ValueError(
                f"{type(model.backbone).__name__} mixes both directions, so it would see the words "
                "that it has to predict: use ELMo, or Recurrent with both_ways=True and one layer"
            )


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedToken(Objective):
    """BERT: hide 15 % of the words and predict them from all the others at once."""

    vocabulary: Vocabulary
    rate: float = 0.15
    shares: Sequence[float] = (0.8, 0.1, 0.1)
    """Of what is predicted: replaced by [MASK], by a random word, left as it is."""
    unit: Literal["token", "word", "ngram", "span"] = "token"
    """What is hidden together: one token, all pieces of a word, up to three words as in ALBERT, or
    a span of tokens as in SpanBERT."""
    exact: bool = False
    """Hide the same share of every row, at least one token, as the code of BERT and ALBERT does. A
    word of more pieces than may be hidden is passed over, so a row of long words may have none.
    By default each is hidden with probability `rate`, for which the exact loss of a language is
    known; a short row may then have no prediction."""
    most: int | None = None
    """With `exact`: the most tokens of a row that are hidden, 20 in BERT; None: no limit."""
    static: bool = False
    """Hide the same words each time an example comes back, as BERT did; RoBERTa did not."""
    frequencies: Tensor | None = None
    """How frequent each word is among the random ones; all alike when None."""
    special: bool = False
    """Whether the random words may be special tokens, as in BERT's code; by default they are words
    of the language, so that what is read could have been written."""

    def __post_init__(self) -> None:
        check_share("rate", self.rate)
        hiding.check_shares(self.shares, self.vocabulary)
        check_choice("unit", self.unit, "token", "word", "ngram", "span")
        if self.exact and self.unit == "span":
            raise ValueError("spans cover a share on average: give exact=False, or unit='ngram'")
        if self.unit == "ngram" and not self.exact:
            raise ValueError("n-grams are hidden up to a count of each row: give exact=True")
        if self.most is not None:
            check_whole("most", self.most, least=1)
            if not self.exact:
                raise ValueError(f"most is {self.most} without exact=True: give both or neither")

    def choose(self, batch: Batch, chance: Chance) -> Tensor:
        """True [B, T] where a word is predicted."""
        candidates = hiding.ordinary(batch.tokens, batch.real, self.vocabulary)
        if self.exact:
            words = hiding.own_words(batch.tokens) if self.unit == "token" else words_of(batch)
            # Special tokens count for the share of a row, though they are never hidden.
            count_B = (batch.real.sum(dim=1).double() * self.rate).round().long()
            count_B = count_B.clamp(min=1 if self.rate else 0, max=self.most)
            longest = 3 if self.unit == "ngram" else 1
            return hiding.choose_exactly(candidates, words, chance, count_B, longest=longest)
        if self.unit == "span":
            return hiding.choose_spans(candidates, chance, self.rate)
        if self.unit == "token":
            return hiding.choose_tokens(candidates, chance, self.rate)
        return hiding.choose_words(candidates, words_of(batch), chance, self.rate)

    def targets(self, batch: Batch, chance: Chance) -> Targets:
        """The words at the positions that are predicted; some of them are hidden."""
        if self.static:
            chance = Chance.of_examples(chance.seed, batch.examples)
        predicted = self.choose(batch, chance)
        tokens = hiding.corrupt(
            batch.tokens,
            predicted,
            chance,
            self.vocabulary,
            shares=self.shares,
            frequencies=self.frequencies,
            special=self.special,
        )
        masked = Predicted.where(predicted, batch.tokens)
        return Targets.of(replace(batch, tokens=tokens), {"masked": masked})


def words_of(batch: Batch) -> Tensor:
    """The numbers of the words [B, T], from a batch that says them."""
    if batch.words is None:
        raise ValueError(
            "whole words are to be hidden, but the batch does not say which tokens are pieces "
            "of one word: give Batch.words, or unit='token'"
        )
    return batch.words
