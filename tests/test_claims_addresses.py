"""The experiments on real text: their arms, what they ask, and what happens without the text."""

import numpy as np
import pytest
import torch

from classroom.claims import addresses as claims
from classroom.claims import eras, transformer_xl
from classroom.models.recipes import Shuffled
from classroom.models.shipped import trained
from classroom.tasks import realtext
from classroom.tasks.realtext import Address
from labkit.blocks import LanguageModel
from labkit.chance import Chance
from labkit.heads import NextWord
from labkit.models.transformer_xl import TransformerXL, TransformerXLConfig
from labkit.objectives import MaskedToken
from labkit.plan import Plan

FEW = [Address(number, year, "", text) for number, year, text in (
    (5, 1800, "the senate met and the house met " * 40), (1, 1801, "peace with all nations " * 60),
    (15, 1900, "the gold in the bank of the union " * 40), (11, 1901, "trade with the east " * 60),
)]  # fmt: skip


def test_the_experiments_have_the_arms_of_their_contrasts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    monkeypatch.setattr(realtext, "addresses", lambda: FEW)
    monkeypatch.setitem(claims.SIZES, "smoke", claims.Size(2, 32, 2_000, 3, (8, 16), (400, 800), 4))
    monkeypatch.setattr(claims, "ROW", 64)
    monkeypatch.setattr(realtext, "asked_of_each", lambda *size, **choices: [[1, 2], [3, 4]])
    monkeypatch.setattr(eras, "right", lambda arm, size, seed, asked_texts: [1.0, 0.0, 0.0, 0.0])
    for claim in (*claims.CLAIMS, *eras.CLAIMS):
        found = claim.experiment("smoke", 0)
        assert found is not None
        assert {name for one in claim.contrasts for name in one.weights} <= set(found.arms)
        assert len({len(items) for items in found.arms.values()}) == 1
        assert np.isfinite(list(found.arms.values())).all()
        assert "no floor" in found.note


def test_an_address_counts_as_much_with_few_paragraphs_as_with_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = [[realtext.Paragraph(str(n), 0) for n in part] for part in ((1, 2, 3, 4), (5,))]
    monkeypatch.setattr(realtext, "asked_of_each", lambda *size, **choices: asked)

    def right(arm: str, size: int, seed: int, asked_texts: list[realtext.Paragraph]) -> list[float]:
        return [float(one.text in "125") for one in asked_texts]

    monkeypatch.setattr(eras, "right", right)
    found = eras.worth_of_labels("smoke", 0)
    assert found is not None
    assert found.shared  # every seed asks about the same addresses
    assert list(found.arms.values()) == [[0.5, 1.0]] * 6


def test_pieces_are_counted_within_their_frames() -> None:
    logs = claims.frequencies([[7, 1, 1, 8], [7, 1, 2, 8]], 9)
    assert logs.exp().tolist() == pytest.approx([n / 13 for n in (1, 4, 2, 1, 1, 1, 1, 1, 1)])


def test_without_the_text_nothing_is_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(realtext, "addresses", list)
    every = (*claims.CLAIMS, *eras.CLAIMS)
    assert [claim.experiment("smoke", 0) for claim in every] == [None] * len(every)


def test_both_sides_know_more_than_one_where_one_says_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After "a" comes each of six words as often; the word behind it tells which."""
    pairs = [f"a {word} {word.upper()} ." for word in ("be", "ce", "de", "ef", "gi", "ha")]
    whole = " ".join(pairs[i % 6] for i in np.random.default_rng(0).permutation(1_200))
    monkeypatch.setattr(realtext, "addresses", lambda: [Address(5, 1, "", whole[:900]),
                                                        Address(1, 2, "", whole)])  # fmt: skip
    found = claims.real_both_sides("laptop", 0)
    assert found is not None
    assert np.mean(found.arms["left side"]) > np.mean(found.arms["both sides"]) + 0.2


def test_each_row_has_as_many_masks_as_its_arm_says(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    counts = []

    def train_once(model: LanguageModel, objective: MaskedToken, text: Shuffled, how: Plan) -> None:
        seen.clear()
        for step in range(how.steps):
            batch = text.at(step)
            chance = Chance(how.seed, step, batch.rows)
            asked = objective.targets(batch, chance).predicted["masked"]
            for n, row in enumerate(batch.tokens.tolist()):
                mine = asked.positions_N[asked.rows_N == n].tolist()
                seen.setdefault(tuple(row), set()).add(tuple(mine))
        counts.append([len(masks) for masks in seen.values()])

    letters = np.random.default_rng(0).choice(list("abcdefghij"), size=(2, 600))
    texts = [Address(5 - 4 * n, 1800, "", " ".join(row)) for n, row in enumerate(letters)]
    monkeypatch.setattr(realtext, "addresses", lambda: texts)
    monkeypatch.setattr(claims, "train_once", train_once)
    monkeypatch.setattr(claims, "AT_ONCE", 8)
    claims.real_masks("smoke", 0)
    one, ten, dynamic = counts
    assert set(one) == {1}
    assert 5 < max(ten) <= 10
    assert min(dynamic) > 15


def test_rows_are_framed_and_evenly_spaced() -> None:
    pieces = trained("bert-addresses")[1]
    rows = claims.framed(pieces, "peace with all nations " * 9)
    assert [len(row) for row in rows] == [claims.TEXT + 2] * 2
    assert {(row[0], row[-1]) for row in rows} == {(pieces.vocabulary.cls, pieces.vocabulary.sep)}
    assert claims.evenly([[n] for n in range(9)], 3) == [[0], [4], [8]]
    assert claims.evenly([[1], [2]], 5) == [[1], [2]]


def test_five_words_of_the_vocabulary_fit_into_64_bits() -> None:
    assert len(realtext.KneserNey([[1, 2]], claims.WORDS).orders) == 5


def test_a_memory_changes_nothing_in_the_first_segment_and_is_read_after_it() -> None:
    torch.manual_seed(0)
    body = TransformerXL(TransformerXLConfig(30, 16, 2, 2, 32, 64, inner=32, dropout=0.0))
    model = LanguageModel(body, NextWord(body.token)).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(5)
    tokens = torch.randint(30, (3, 2 * claims.SEGMENT + 1))
    halves = (tokens[:, : claims.SEGMENT + 1], tokens[:, claims.SEGMENT :])
    alone = torch.cat([transformer_xl.losses(model, half, 0, claims.SEGMENT) for half in halves], 1)
    without, kept = (transformer_xl.losses(model, tokens, n, claims.SEGMENT) for n in (0, 64))
    assert without.shape == (3, 2 * claims.SEGMENT)
    assert torch.allclose(without, alone, atol=1e-5)
    first = slice(None), slice(claims.SEGMENT)
    assert torch.allclose(without[first], kept[first], atol=1e-5)
    assert not torch.allclose(without, kept, atol=1e-3)
