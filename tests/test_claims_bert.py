"""The experiments on BERT: exact floors, honest measures, and arms that the contrasts know."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from classroom.claims import bert, village
from classroom.ledger import Claim, one_seed
from labkit.blocks import Backbone, LanguageModel, States
from labkit.models.word_vectors import WordVectorsConfig


class Knows(Backbone):
    """A backbone that says what it is told, whatever it reads."""

    def __init__(self, logits_V: Tensor) -> None:
        super().__init__(WordVectorsConfig(len(logits_V), len(logits_V)))
        self.logits_V = nn.Parameter(logits_V)

    def forward(self, tokens_BT: Tensor, **_: object) -> Any:
        """The same scores everywhere."""
        return States((self.logits_V.expand(*tokens_BT.shape, -1),))


class AsGiven(nn.Module):
    """A head that takes the states for scores."""

    def forward(self, hidden_NV: Tensor) -> Tensor:
        """The same."""
        return hidden_NV

    def losses_N(self, hidden_NV: Tensor, targets_N: Tensor) -> Tensor:
        """-log p(target)"""
        return nn.functional.cross_entropy(hidden_NV, targets_N, reduction="none")


def test_the_floors_of_the_blanks_are_those_of_the_language() -> None:
    asked = village.blanks(30)
    world = village.village()
    for row in range(30):
        words = village.sentences("held_out", 360)[row]
        place = int(asked.places[row]) - 1
        assert asked.batch.tokens[row, place + 1] == village.tokenizer()[words[place]]
        law = world.conditional(list(words), [place], start="sentence")[0]
        assert asked.both[row] == pytest.approx(-np.log(law[world.vocabulary.index(words[place])]))
    assert asked.both.mean() < asked.left.mean()


def test_a_model_without_an_idea_has_the_loss_of_all_words_alike() -> None:
    size = len(village.tokenizer())
    told = Knows(torch.zeros(size))
    losses = village.cloze(LanguageModel(told, AsGiven()), village.blanks(20))
    assert losses == pytest.approx([float(np.log(size))] * 20)


def test_a_model_sees_mask_only_where_it_is_hidden() -> None:
    read = []

    class Notes(Knows):
        def forward(self, tokens_BT: Tensor, **asked: object) -> Any:
            read.append(tokens_BT)
            return super().forward(tokens_BT)

    told, asked = Notes(torch.zeros(len(village.tokenizer()))), village.blanks(20)
    for hidden in (True, False):
        village.cloze(LanguageModel(told, AsGiven()), asked, hidden=hidden)
    assert ((read[0] == village.tokenizer().vocabulary.mask).sum(dim=1) == 1).all()
    assert torch.equal(read[1], asked.batch.tokens)


def test_a_probe_finds_what_is_there_and_nothing_else() -> None:
    torch.manual_seed(0)
    labels, right = torch.arange(40) % 4, torch.arange(400) % 4
    noise = torch.randn(440, 8)
    there = noise.clone()
    there[:, :4] += 8 * nn.functional.one_hot(torch.cat([labels, right])).float()
    assert np.mean(village.probe(there[:40], labels, there[40:], right)) > 0.95
    assert np.mean(village.probe(noise[:40], labels, noise[40:], right)) < 0.4


def test_words_alone_do_not_tell_their_senses() -> None:
    """The lowest layer knows the word and its place: of two senses it can but guess one."""
    model = village.encoder(0)
    blocks = model.backbone.blocks
    model.backbone.blocks = nn.ModuleList()
    model.backbone.config = replace(model.backbone.config, layers=0)
    assert np.mean(village.sense_probe(model)) < 0.7
    assert len(blocks) == 2


@pytest.mark.parametrize("claim", bert.CLAIMS, ids=lambda claim: claim.id)
def test_experiments_give_the_arms_that_their_contrasts_weigh(
    claim: Claim, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setitem(bert.STEPS, "smoke", 2)
    monkeypatch.setitem(bert.WORDS, "smoke", 2_000)
    monkeypatch.setitem(bert.HELD_OUT, "smoke", 400)
    monkeypatch.setattr(bert, "TESTS", 40)
    found = one_seed(claim, "smoke", 0)
    assert {name for one in claim.contrasts for name in one.weights} <= set(found["arms"])
    assert set(found["best"]) <= set(found["arms"])
    assert all(np.isfinite(items).all() and len(items) for items in found["arms"].values())


def test_pairs_of_both_questions_have_their_labels() -> None:
    model = village.encoder(0)
    for question in bert.QUESTIONS:
        features, labels = bert.pair_features(model, question, "train", 40)
        assert features.shape == (40, 128)
        assert labels.sum() == 20


def test_mails_are_half_spam_and_those_of_a_test_are_others() -> None:
    train, test = (village.spam(40, 0, split=split) for split in ("train", "held_out"))
    for mails in (train, test):
        [batch] = [one for one in mails.once() if len(one) == 32]
        assert mails.tokens.arrays.labels.sum() == 20
        assert village.tokenizer().vocabulary.unk not in batch.tokens
    same = torch.equal(train.at(0).tokens[:, :5], test.at(0).tokens[:, :5])
    assert not same


def test_the_best_words_are_those_of_the_model() -> None:
    words = village.tokenizer()
    law = torch.full((len(words),), -10.0)
    law[words["bat"]], law[words["wave"]] = 2.0, 1.0
    told = Knows(law)
    said = village.best_words(LanguageModel(told, AsGiven()), words, "she saw a [MASK] .", count=2)
    assert said == "bat 0.73  wave 0.27"


def test_a_text_is_most_like_itself() -> None:
    near = village.likeness(
        village.encoder(0).backbone, village.tokenizer(), ["she saw a bat .", "we saw a star ."]
    )
    assert torch.allclose(near.diagonal(), torch.ones(2), atol=1e-5)
    assert near[0, 1] < 1


def test_both_directions_of_a_sentence_have_one_floor() -> None:
    world, texts = village.village(), village.sentences("held_out", 300)
    each = world.log_probabilities([world.numbers(words) for words in texts], start="sentence")
    predictions = sum(len(words) + 1 for words in texts)  # and the end, or the beginning
    total = -sum(float(one.sum()) for one in each)
    assert village.sentence_floor(texts) == pytest.approx(total / predictions)
    batch = village.whole(texts)
    assert int(batch.real.sum()) == predictions + len(texts)
    assert village.tokenizer().pieces(batch.tokens[0, 1:3].tolist()) == list(texts[0][:2])
