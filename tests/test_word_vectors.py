"""Word vectors against loops written from the papers, and the distributions of what is drawn."""

import math

import pytest
import torch

from labkit.masking import real_keys
from labkit.models.word_vectors import (
    Contexts,
    WordVectors,
    WordVectorsConfig,
    analogy,
    close_gaps,
    contexts,
    draw_noise,
    keep_probabilities,
    neighbours,
    noise_distribution,
    subsampled,
)


def pairs(found: Contexts) -> tuple[torch.Tensor, torch.Tensor]:
    """Each centre with each of its neighbours, one after the other."""
    rows_N, positions_N = found.present_NK.nonzero(as_tuple=True)
    return found.centres_N[rows_N], found.context_NK[rows_N, positions_N]


def model(dtype: torch.dtype = torch.float64, words: int = 11, width: int = 5) -> WordVectors:
    torch.manual_seed(0)
    made = WordVectors(WordVectorsConfig(words, width)).to(dtype)
    torch.nn.init.normal_(made.token.weight)
    torch.nn.init.normal_(made.output.weight)
    return made


def test_first_loss_is_that_of_coins() -> None:
    vectors = WordVectors(WordVectorsConfig(7, 4))
    losses = vectors.skip_gram(torch.arange(7), torch.arange(7), torch.zeros(7, 5).long())
    torch.testing.assert_close(losses, torch.full((7,), 6 * math.log(2)))


def test_windows_and_pairs_are_all_near_words_of_the_same_document() -> None:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(20, (4, 13), generator=generator)
    real = torch.arange(13) < torch.tensor([[13], [6], [1], [0]])
    reach = torch.randint(1, 4, (4, 13), generator=generator)
    documents = (torch.arange(13) // 5).expand(4, 13)
    for given in (None, documents):
        expected = []
        for row in range(4):
            for i in range(13):
                for j in range(13):
                    if i == j or not (real[row, i] and real[row, j]) or abs(i - j) > reach[row, i]:
                        continue
                    if given is None or given[row, i] == given[row, j]:
                        expected.append((int(tokens[row, i]), int(tokens[row, j])))
        found = contexts(tokens, real, reach, 3, given)
        centres, near = pairs(found)
        assert expected == list(zip(centres.tolist(), near.tolist(), strict=True))
        assert bool(found.present_NK.any(dim=1).all())
        assert found.context_NK.shape[1] == 6


def test_a_text_of_one_word_has_no_pairs() -> None:
    one = torch.tensor([[3]])
    found = contexts(one, one > 0, one, 5)
    assert len(found.centres_N) == 0
    assert len(pairs(found)[0]) == 0
    nothing = model().cbow(*found, noise=torch.zeros(0, 2).long())
    assert nothing.shape == (0,)


def test_noise_follows_the_power_law() -> None:
    counts = torch.tensor([0, 1000, 300, 100, 30, 10, 3, 1, 0])
    law = noise_distribution(counts)
    by_hand = [count**0.75 for count in counts.tolist()]
    torch.testing.assert_close(law, torch.tensor(by_hand).double() / sum(by_hand))
    generator = torch.Generator().manual_seed(1)
    drawn = draw_noise(law, torch.rand(200_000, generator=generator))
    seen = torch.bincount(drawn, minlength=9).double()
    assert seen[0] == 0
    assert seen[8] == 0
    expected = law * 200_000
    chi_square = ((seen - expected) ** 2 / expected)[1:8].sum()
    # 6 degrees of freedom: 22.5 is passed once in a thousand; the seed is fixed.
    assert chi_square < 22.5
    wrong = noise_distribution(counts, power=1.0) * 200_000
    assert ((seen - wrong) ** 2 / wrong)[1:8].sum() > 1000


def test_the_ends_of_the_unit_interval_give_words_that_exist() -> None:
    law = noise_distribution(torch.tensor([0, 5, 0, 7, 0]))
    edges = torch.tensor([0.0, 1 - 2**-24], dtype=torch.float64)
    assert draw_noise(law, edges).tolist() == [1, 3]
    assert draw_noise(law, torch.rand(3, 4)).shape == (3, 4)


def test_subsampling_keeps_words_at_the_rate_of_the_paper() -> None:
    counts = torch.tensor([50_000, 5_000, 50, 0])
    shares = keep_probabilities(counts, threshold=1e-3)
    total = 55_050
    for word, count in enumerate([50_000, 5_000, 50]):
        discard = max(0.0, 1 - math.sqrt(1e-3 / (count / total)))
        assert math.isclose(shares[word], 1 - discard)
    # Shares are as good as counts.
    torch.testing.assert_close(keep_probabilities(counts.double() / total, threshold=1e-3), shares)
    generator = torch.Generator().manual_seed(2)
    tokens = torch.arange(3).repeat_interleave(40_000)[None]
    kept = subsampled(tokens, shares, torch.rand(tokens.shape, generator=generator))
    for word in range(3):
        rate, expected = float(kept[tokens == word].float().mean()), float(shares[word])
        spread = math.sqrt(expected * (1 - expected) / 40_000)
        assert abs(rate - expected) <= 4 * spread


def test_gaps_are_closed_in_order() -> None:
    tokens = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4]])
    kept = torch.tensor([[False, True, False, True], [True, False, False, False]])
    moved, real = close_gaps(tokens, kept), close_gaps(kept, kept)
    assert [row[r].tolist() for row, r in zip(moved, real, strict=True)] == [[6, 8], [1]]
    assert real.tolist() == [[True, True, False, False], [True, False, False, False]]


def test_neighbours_and_analogies_by_hand() -> None:
    # Axis 0: royal, axis 1: male, axis 2: female, axis 3: fruit; lengths differ on purpose.
    vectors = torch.tensor(
        [[2, 2, 0, 0], [3, 0, 3, 0], [0, 1, 0, 0], [0, 0, 5, 0], [0, 0, 0, 1], [0, 1, 0.1, 0]]
    )
    king, queen, man, woman, apple, boy = range(6)
    near = neighbours(vectors, vectors[man], 2, leave_out=(man,))
    assert near.words.tolist() == [boy, king]
    assert math.isclose(near.cosines[1], math.sqrt(0.5), rel_tol=1e-6)
    assert analogy(vectors, man, king, woman).words[0] == queen
    assert len(analogy(vectors, man, king, woman).words) == 3
    assert {man, king, woman}.isdisjoint(analogy(vectors, man, king, woman).words.tolist())
    assert apple in neighbours(vectors, vectors[apple], 1).words


def test_as_a_backbone_a_word_has_one_vector() -> None:
    vectors = model()
    tokens = torch.tensor([[1, 2, 1], [2, 9, 9]])
    states = vectors(tokens, mask=real_keys(torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()))
    assert torch.equal(states.hidden[0, 1], states.hidden[1, 0])
    assert torch.equal(states.hidden[1, 1:], torch.zeros(2, 5).double())
    assert states.memory is None


def test_learning_brings_words_of_one_company_together() -> None:
    """Words 0-4 stand with each other, and so do words 5-9."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    topics = torch.randint(2, (100, 1), generator=generator)
    tokens = torch.randint(5, (100, 8), generator=generator) + 5 * topics
    vectors = WordVectors(WordVectorsConfig(10, 8))
    optimizer = torch.optim.Adam(vectors.parameters(), lr=0.05)
    law = noise_distribution(torch.bincount(tokens.flatten()))
    made = pairs(contexts(tokens, torch.ones_like(tokens).bool(), torch.full((100, 8), 2), 2))
    for _ in range(100):
        noise = draw_noise(law, torch.rand(len(made[0]), 5, generator=generator))
        loss = vectors.skip_gram(*made, noise).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    table = vectors.token.weight.detach()
    for word in range(10):
        near = neighbours(table, table[word], 4, leave_out=(word,)).words
        assert {int(other) // 5 for other in near} == {word // 5}


def test_counts_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="count the words"):
        noise_distribution(torch.zeros(4))


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: neighbours(table, table[0], -1),
        lambda table: neighbours(table, table[0], 2, leave_out=(1.7,)),
        lambda table: neighbours(table, table[0], 2, leave_out=(-1,)),
        lambda table: analogy(table, 0, 1, -1),
        lambda table: analogy(table, 0, 1, 5),
    ],
)
def test_neighbours_of_what_is_no_word_are_refused(ask) -> None:
    """Python counts -1 from the end, and torch cuts 1.7 to 1."""
    with pytest.raises(ValueError, match="give a whole number from"):
        ask(torch.randn(5, 3))
