"""Batches: every token in its place, and nothing but (seed, step) decides."""

import dataclasses
from itertools import chain, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.corpus import (
    Batch,
    Document,
    Examples,
    Pairs,
    Stages,
    Streams,
    Windows,
    from_documents,
    pad_rows,
    tokenize,
)
from labkit.text.tokenizers import Tokenizer
from labkit.world import load_world

# Each word is a token of its own, so that rows can be read.
LETTERS = [chr(n) for n in range(ord("a"), ord("z") + 1)]
STORIES = [
    " ".join(f"{letter}{n}." for n in range(2 + place % 5)) for place, letter in enumerate(LETTERS)
]
WORDS = Tokenizer.words([*STORIES, "x y z"])
PIECES = Tokenizer.word_pieces(STORIES, 60)
CORPUS = tokenize(from_documents(STORIES), WORDS)
FLAT = (CORPUS.arrays.marked & 0x3FFFFFFF).tolist()
CLS, SEP, PAD = WORDS.vocabulary.cls, WORDS.vocabulary.sep, WORDS.vocabulary.pad

RATED = from_documents(
    [Document((f"x {'y ' * (n % 23)}",), n % 3) for n in range(150)],
)
LABELLED = tokenize(RATED, WORDS)
TWO = from_documents([Document(("x " * (1 + n % 9), "y " * (n % 7)), n % 2) for n in range(60)])
PAIRED = tokenize(TWO, WORDS)

ALL = {
    "windows": Windows(CORPUS, 7, batch=4, seed=3),
    "framed windows": Windows(CORPUS, 7, batch=4, seed=3, framed=True, apart=True),
    "moved windows": Windows(CORPUS, 7, batch=4, seed=3, moved=True),
    "streams": Streams(CORPUS, 5, batch=4, seed=3),
    "examples": Examples(LABELLED, 16, batch=4, seed=3),
    "pairs of texts": Examples(PAIRED, 16, batch=4, seed=3),
    "next": Pairs(CORPUS, 12, "next", batch=4, seed=3),
    "order": Pairs(CORPUS, 12, "order", batch=4, seed=3),
}


def same(a: Batch, b: Batch) -> bool:
    pairs = [(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(Batch)]
    return all((x is None and y is None) or torch.equal(x, y) for x, y in pairs)


def pieces(batch: Batch, tokenizer: Tokenizer = WORDS) -> list[list[str]]:
    """The rows as words, without padding."""
    rows = zip(batch.tokens, batch.real, strict=True)
    return [tokenizer.pieces(row[real].tolist()) for row, real in rows]


@pytest.mark.parametrize("given", [RATED, STORIES, FLAT])
def test_text_that_is_not_tokenized_is_refused_at_once(given):
    for made in (Windows, Streams, Examples):
        with pytest.raises(TypeError, match=r"tokens is a .*: give tokenize\("):
            made(given, 7, batch=4)
    with pytest.raises(TypeError, match=r"tokens is a .*: give tokenize\("):
        Pairs(given, 12, "order", batch=4)


def test_texts_that_are_no_documents_are_refused():
    with pytest.raises(TypeError, match=r"documents is a list: give from_documents\(texts\)"):
        tokenize(STORIES, WORDS)


@pytest.mark.parametrize("kind", ALL)
def test_numbers_of_numpy_name_the_same_batches(kind):
    batches, last = ALL[kind], 2 * ALL[kind].steps + 1
    again = dataclasses.replace(batches, seed=np.int64(3))
    assert same(again.at(np.int64(last)), batches.at(last))


@pytest.mark.parametrize("kind", ALL)
def test_a_batch_is_a_function_of_seed_and_step(kind):
    batches = ALL[kind]
    steps = [5, 0, 2, 2 * batches.steps + 1, 5]
    first = [batches.at(step) for step in steps]
    fresh = dataclasses.replace(batches)
    assert all(same(fresh.at(step), batch) for step, batch in zip(steps, first, strict=True))
    assert same(first[0], first[4])
    assert not same(first[0], first[2])
    if kind != "streams":
        assert not same(dataclasses.replace(batches, seed=4).at(0), batches.at(0))
    for batch in first:
        B, T = batch.tokens.shape
        assert B == len(batch) == 4
        assert batch.tokens.dtype == batch.rows.dtype == batch.examples.dtype == torch.int64
        assert batch.real.dtype == batch.fresh.dtype == torch.bool
        assert batch.rows.tolist() == [*range(B)]
        assert batch.real.shape == batch.words.shape == (B, T)
        assert batch.examples.shape == batch.fresh.shape == (B,)


@pytest.mark.parametrize("kind", ALL)
def test_each_epoch_meets_every_example_once(kind):
    batches = dataclasses.replace(ALL[kind])
    seen = torch.cat([batches.at(step).examples for step in range(batches.steps)])
    assert sorted(set(seen.tolist())) == [*range(batches.size)]
    if kind not in ("examples", "pairs of texts"):
        assert sorted(seen[: batches.size].tolist()) == [*range(batches.size)]
    if kind != "streams":
        again = torch.cat([batches.at(batches.steps + n).examples for n in range(batches.steps)])
        assert not torch.equal(seen, again)
    once = [batch.examples for batch in batches.once()]
    assert torch.equal(torch.cat(once), torch.arange(batches.size))


@pytest.mark.parametrize("length", [1, 7, 60])
def test_windows_are_the_text(length):
    batches = Windows(CORPUS, length, batch=3)
    rows = [row for batch in batches.once() for row in batch.tokens.tolist()]
    assert [*chain(*rows)] == FLAT[: len(FLAT) // length * length]
    batch = batches.at(1)
    for row, example in zip(batch.tokens.tolist(), batch.examples.tolist(), strict=True):
        assert row == FLAT[example * length : (example + 1) * length]
    assert batch.real.all()
    assert batch.fresh.all()
    assert batch.documents is None


def test_moved_windows_are_cut_elsewhere_in_each_epoch():
    batches = Windows(CORPUS, 7, batch=4, seed=3, moved=True)
    shifts = set()
    for batch in map(batches.at, range(3 * batches.steps)):
        for row, example in zip(batch.tokens.tolist(), batch.examples.tolist(), strict=True):
            found = [n for n in range(7) if FLAT[7 * example + n : 7 * example + n + 7] == row]
            # The last window has less room behind it than a window's length.
            assert found
            shifts.update(found)
    assert shifts == {*range(7)}
    still = dataclasses.replace(batches, moved=False)
    assert all(map(same, batches.once(), still.once()))


@pytest.mark.parametrize("framed", [False, True])
def test_packed_documents_are_told_apart(framed):
    batches = Windows(CORPUS, 12, batch=4, framed=framed, apart=True)
    for batch in batches.once():
        for row, documents in zip(pieces(batch), batch.documents.tolist(), strict=True):
            expected, now = [], 0
            for place, piece in enumerate(row):
                expected.append(now)
                ends = piece == "[SEP]" and place < len(row) - (2 if framed else 1)
                now += ends
            assert documents == expected
            if framed:
                assert row[0] == "[CLS]"
                assert row[-1] == "[SEP]"


@pytest.mark.parametrize("framed", [False, True])
def test_words_are_numbered_by_their_pieces(framed):
    corpus = tokenize(from_documents(STORIES), PIECES)
    assert any(piece.startswith("##") for piece in PIECES.pieces(corpus.arrays.marked & 0x3FFFFFFF))
    for batch in Windows(corpus, 9, batch=4, framed=framed).once():
        for row, words in zip(pieces(batch, PIECES), batch.words.tolist(), strict=True):
            for place, (one, other) in enumerate(pairwise(words)):
                # A row may begin within a word; that is no part of the word [CLS].
                cut = framed and place == 0
                joined = row[place + 1].startswith("##") and not cut
                assert (other == one) if joined else (other == one + 1)


def test_rows_may_become_longer_on_the_way():
    short, long = Windows(CORPUS, 4, batch=2), Windows(CORPUS, 8, batch=2)
    batches = Stages((0, short), (10, long))
    assert batches.at(9).tokens.shape == (2, 4)
    assert same(batches.at(3), short.at(3))
    assert same(batches.at(12), long.at(2))
    with pytest.raises(ValueError, match="step is -1"):
        batches.at(-1)
    with pytest.raises(ValueError, match=r"first step of a stage is 5\.5"):
        Stages((0, short), (5.5, long))


def test_streams_go_on_where_they_ended():
    batches = Streams(CORPUS, 8, batch=3)
    each = len(FLAT) // 3
    for epoch in range(3):
        rows = [[] for _ in range(3)]
        for step in range(batches.steps):
            batch = batches.at(epoch * batches.steps + step)
            assert batch.fresh.tolist() == [step == 0] * 3
            assert batch.tokens.shape == (3, 9)
            for row, tokens in zip(rows, batch.tokens.tolist(), strict=True):
                assert not row or row.pop() == tokens[0]
                row.extend(tokens)
        for n, row in enumerate(rows):
            assert row == FLAT[n * each : n * each + batches.steps * 8 + 1]


def test_examples_are_framed_padded_and_labelled():
    for batch in Examples(LABELLED, 12, batch=7).once():
        width = max(min(12, 3 + example % 23) for example in batch.examples.tolist())
        assert batch.tokens.shape[1] == width
        assert (batch.tokens[~batch.real] == PAD).all()
        assert batch.labels.tolist() == [example % 3 for example in batch.examples.tolist()]
        assert batch.segments is None
        for example, row in zip(batch.examples.tolist(), pieces(batch), strict=True):
            assert row == ["[CLS]", *["x", *["y"] * (example % 23)][:10], "[SEP]"]
    bare = next(iter(Examples(LABELLED, 12, batch=7, framed=False).once()))
    assert pieces(bare)[:3] == [["x", "[SEP]"], ["x", "y", "[SEP]"], ["x", "y", "y", "[SEP]"]]


@given(st.integers(5, 20))
@settings(deadline=None)
def test_two_texts_share_the_room(length):
    for batch in Examples(PAIRED, length, batch=9).once():
        assert batch.tokens.shape[1] <= length
        for place, row in enumerate(pieces(batch)):
            n = int(batch.examples[place])
            x, y = 1 + n % 9, n % 7
            kept_x, kept_y = row.count("x"), row.count("y")
            assert row == ["[CLS]", *["x"] * kept_x, "[SEP]", *["y"] * kept_y, "[SEP]"]
            assert kept_x + kept_y == min(x + y, length - 3)
            # A text is cut only if it is longer than its half.
            assert kept_x == x or kept_x >= (length - 3) // 2
            assert kept_y == y or kept_y >= (length - 3) // 2
            segments = batch.segments[place].tolist()
            assert segments[: len(row)] == [0] * (kept_x + 2) + [1] * (kept_y + 1)
            assert set(segments[len(row) :]) <= {0}


def test_buckets_save_padding():
    def padding(bucketed):
        batches = Examples(LABELLED, 32, batch=10, bucketed=bucketed)
        rows = [batches.at(step).real for step in range(batches.steps)]
        return sum((~real).sum().item() for real in rows) / sum(real.sum().item() for real in rows)

    assert padding(True) < 0.1 * padding(False)


@pytest.mark.parametrize("bucketed", [False, True])
@pytest.mark.parametrize("size", [4, 150])
def test_many_blocks_of_buckets(bucketed, size, monkeypatch):
    monkeypatch.setattr("labkit.corpus.padded.BUCKETS", 3)
    batches = Examples(LABELLED, 32, batch=size, bucketed=bucketed)
    seen = torch.cat([batches.at(step).examples for step in range(batches.steps)])
    assert sorted(set(seen.tolist())) == [*range(150)]
    assert len(seen) == (150 if bucketed else batches.steps * size)


def read_pair(row: list[str]) -> tuple[list[str], list[str]]:
    middle = row.index("[SEP]")
    assert row[0] == "[CLS]"
    assert row[-1] == "[SEP]"
    return row[1:middle], row[middle + 1 : -1]


def numbered(words: list[str]) -> tuple[str, list[int]]:
    """The document of some sentences, and which ones they are."""
    assert words[1::2] == ["."] * (len(words) // 2)
    (letter,) = {word[0] for word in words[::2]}
    numbers = [int(word[1:]) for word in words[::2]]
    assert numbers == [*range(numbers[0], numbers[-1] + 1)]
    return letter, numbers


@pytest.mark.parametrize("fill", [True, False])
@pytest.mark.parametrize("question", ["next", "order"])
def test_pairs_are_what_their_label_says(question, fill):
    batches = Pairs(CORPUS, 15, question, fill, batch=16)
    yes = no = 0
    cuts, others = set(), set()
    for step in range(60):
        batch = batches.at(step)
        assert batch.tokens.shape[1] <= 15
        for place, row in enumerate(pieces(batch)):
            (one, first), (other, second) = map(numbered, read_pair(row))
            cuts.add((len(first), len(second)))
            if batch.labels[place] == 0:
                yes += 1
                assert one == other
                assert second[0] == first[-1] + 1
            elif question == "order":
                no += 1
                assert one == other
                assert first[0] == second[-1] + 1
            else:
                no += 1
                assert one != other
                others.add((other, second[0]))
            words = batch.segments[place][batch.real[place]].tolist()
            assert words == [0] * (2 * len(first) + 2) + [1] * (2 * len(second) + 1)
    # 960 fair coins.
    assert abs(yes - 480) < 4 * 480**0.5 / 2**0.5
    if fill:
        # A pair fills its row: five sentences of two tokens in all, wherever it is cut.
        assert {(1, 4), (2, 3), (3, 2), (4, 1)} <= cuts
    else:
        assert cuts == {(1, 1)}
    if question == "next":
        # Any sentence of any other document may be drawn.
        assert len(others) > 0.9 * len(CORPUS.arrays.sentence_ends)


def test_examples_of_pairs_are_their_first_sentences():
    batch = next(iter(Pairs(CORPUS, 9, "order", fill=False, batch=10_000).once()))
    starts = set()
    for label, row in zip(batch.labels.tolist(), pieces(batch), strict=True):
        (letter, first), (_, second) = map(numbered, read_pair(row))
        starts.add((letter, min(first + second)))
        assert label == int(first > second)
    expected = {(x, n) for k, x in enumerate(LETTERS) for n in range(1 + k % 5)}
    assert starts == expected
    assert len(batch) == len(expected)


def test_a_sentence_with_the_words_of_the_next_one_is_no_other_one():
    # Most sentences are alike, and the others must be drawn.
    stories = ["Same. Same. Same."] * 10 + ["Other. Same."] * 10
    corpus = tokenize(from_documents(stories), Tokenizer.words(stories))
    batches = Pairs(corpus, 9, "next", fill=False, batch=8)
    seen = set()
    for step in range(20):
        batch = batches.at(step)
        for label, row in zip(
            batch.labels.tolist(), pieces(batch, Tokenizer.words(stories)), strict=True
        ):
            seen.add((label, read_pair(row)[1][0]))
    assert seen == {(0, "Same"), (1, "Other")}
    alike = tokenize(from_documents(["Same. Same."] * 5), WORDS)
    with pytest.raises(ValueError, match="the corpus repeats itself too much"):
        Pairs(alike, 9, "next", batch=8).at(0)


def test_long_sentences_keep_the_place_where_they_meet():
    stories = [f"{'a ' * 30} end. begin {'b ' * 30}." for _ in range(2)] + ["x. y."]
    tokenizer = Tokenizer.words(stories)
    batches = Pairs(tokenize(from_documents(stories), tokenizer), 15, "order", batch=30)
    met = 0
    for label, row in zip(
        batches.at(0).labels.tolist(), pieces(batches.at(0), tokenizer), strict=True
    ):
        first, second = read_pair(row)
        if "x" not in row and label == 0:
            met += 1
            assert first[-2:] == ["end", "."]
            assert second[0] == "begin"
            assert len(row) == 15
    assert met > 0


def test_a_cut_within_a_word_does_not_join_it_to_the_frame():
    stories = ["lowestlowest " * 9 + ". slower " * 9 for _ in range(3)]
    tokenizer = Tokenizer.word_pieces(stories, 22)
    corpus = tokenize(from_documents(stories), tokenizer)
    cut = 0
    for length in range(9, 20):
        batch = Pairs(corpus, length, "order", fill=False, batch=8).at(0)
        for row, words in zip(pieces(batch, tokenizer), batch.words.tolist(), strict=True):
            cut += row[1].startswith("##")
            assert words[1] == words[0] + 1
    assert cut > 0


def test_corpora_without_separators_pair_alike():
    bare = tokenize(from_documents(STORIES), WORDS, end=False)
    for question in ("next", "order"):
        one, other = (Pairs(c, 9, question, False, batch=32) for c in (bare, CORPUS))
        assert same(one.at(3), other.at(3))
    assert "[SEP]" not in WORDS.pieces(Windows(bare, 50, batch=1).at(0).tokens[0].tolist())


def test_documents_of_the_language_keep_their_words_and_sentences():
    documents = load_world().sample(documents=20, seed=0)
    source = from_documents(documents)
    words = Tokenizer.words(source.texts)
    corpus = tokenize(source, words)
    for batch in Examples(corpus, 10_000, batch=4, framed=False).once():
        for example, row in zip(batch.examples.tolist(), pieces(batch, words), strict=True):
            # The separator stands where the language has its end mark.
            assert row == [*documents[example].words[:-1], "[SEP]"]
            assert batch.words[example % 4, : len(row)].tolist() == [*range(1, len(row) + 1)]
    # A question and its answer, or a cry and who shouts it, are one sentence of the language and
    # two of the corpus.
    sentences = [
        document.words[start:end] for document in documents for start, end in document.sentences
    ]
    inside = sum(word in ("?", "!") for words in sentences for word in words[:-1])
    assert len(corpus.arrays.sentence_ends) == len(sentences) + inside


# ---- the batch itself


def test_micro_batches_are_the_batch():
    batch = ALL["next"].at(0)
    for parts in (1, 2, 3, 4):
        split = batch.micro(parts)
        assert sum(map(len, split)) == 4
        assert max(map(len, split)) - min(map(len, split)) <= 1
        assert torch.equal(torch.cat([part.rows for part in split]), batch.rows)
        assert torch.equal(torch.cat([part.tokens for part in split]), batch.tokens)
    assert same(batch[1:3][1:], batch[2:3])
    assert same(batch[torch.tensor([False, True, False, True])], batch[torch.tensor([1, 3])])
    assert same(batch.to("cpu"), batch)
    with pytest.raises(ValueError, match="4 rows cannot be split into 5 parts: give 1 to 4"):
        batch.micro(5)


def test_a_batch_of_bare_tokens():
    batch = Batch.of(torch.arange(6).view(2, 3), labels=torch.tensor([1, 0]))
    assert batch.real.all()
    assert batch.rows.tolist() == batch.examples.tolist() == [0, 1]
    assert batch.labels.tolist() == [1, 0]
    assert batch.documents is None


def test_the_parts_of_a_batch_lie_apart():
    batch = Batch.of(torch.arange(6).view(2, 3))
    batch.fresh[:] = False
    batch.examples.add_(100)
    assert batch.real.all()
    assert batch.rows.tolist() == [0, 1]


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0), (4,), (1, 2, 3), ()])
def test_a_batch_has_at_least_one_token(shape):
    with pytest.raises(ValueError, match=r"give whole numbers \[B, T\]"):
        Batch.of(torch.zeros(shape, dtype=torch.long))
    with pytest.raises(ValueError, match="the tokens are float32"):
        Batch.of(torch.zeros(2, 2))
    with pytest.raises(ValueError, match=r"the tokens are int16 .* of 64 or 32 bits"):
        Batch.of(torch.zeros(2, 2, dtype=torch.int16))
    with pytest.raises(ValueError, match=r"real is float32 .* give booleans"):
        Batch.of(torch.ones(2, 2, dtype=torch.long), torch.ones(2, 2))


def test_the_smallest_batch_of_stages_is_that_of_their_smallest_stage():
    small, large = (Windows(CORPUS, 7, batch=rows) for rows in (2, 8))
    assert Stages((0, large), (2, small), (4, large)).fewest == 2
    assert Stages((0, large), (2, Stages((0, small)))).fewest == 2


def test_errors_say_what_to_do():
    none = Tokenizer.words(STORIES, special=["[UNK]"])
    bare = tokenize(from_documents(STORIES), none, end=False)
    single = tokenize(from_documents(["one", "two"]), WORDS)
    story = tokenize(from_documents(["One. Two."]), WORDS)
    for make, message in (
        (lambda: Windows(CORPUS, 5, batch=0), "batch is 0"),
        (lambda: Windows(CORPUS, 0, batch=1), "length is 0: give a whole number from 1 to"),
        (
            lambda: Windows(CORPUS, 2, batch=1, framed=True),
            "length is 2: .* from 3 to",
        ),
        (
            lambda: Windows(CORPUS, 9999, batch=1),
            "the corpus has .* tokens, and a window needs 9999",
        ),
        (lambda: Windows(bare, 9, batch=1, framed=True).at(0), r"the vocabulary lacks \[CLS\]"),
        (lambda: Windows(CORPUS, 5, batch=1).at(-1), "step is -1"),
        (lambda: Windows(CORPUS, 2.5, batch=1), r"length is 2\.5: give a whole number"),
        (lambda: Windows(CORPUS, True, batch=1), "length is True: give a whole number"),
        (lambda: Windows(CORPUS, 5, batch=10**30), r"batch is 10+: .* to 10,000,000"),
        (lambda: Windows(CORPUS, 5, batch=1, seed="x"), "seed is 'x': give a whole number"),
        (lambda: Windows(CORPUS, 5, batch=1).at(1.5), r"step is 1\.5"),
        (lambda: Examples(CORPUS, 9.5, batch=1), r"length is 9\.5"),
        (lambda: Streams(CORPUS, 60, batch=9), "9 streams of one segment need 549"),
        (lambda: Streams(CORPUS, 0, batch=1), "length is 0"),
        (lambda: Examples(CORPUS, 4, batch=1), "length is 4"),
        (lambda: Pairs(CORPUS, 4, "next", batch=1), "length is 4"),
        (lambda: Pairs(CORPUS, 9, "previous", batch=1), "question is 'previous': choose next"),
        (lambda: Pairs(single, 9, "next", batch=1), "no document has two sentences"),
        (lambda: Pairs(story, 9, "next", batch=1), "there is one document"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize(
    "row", [[1.7], [1, 2.0], [True], ["a"], [[1]], [None], [2**63], np.array([0.5]), "12"]
)
def test_rows_of_anything_but_whole_numbers_are_refused(row):
    """A fraction would be dropped in silence: 1.7 became the token 1."""
    with pytest.raises(ValueError, match=r"row 1 is .*: give a list of whole numbers"):
        pad_rows([[1, 2], row])


def test_rows_of_whole_numbers_are_padded():
    rows = [[1, 2, 3], [], np.array([4], np.uint32), torch.tensor([5, 6], dtype=torch.int32)]
    tokens_BT, real_BT = pad_rows(rows, 9)
    assert tokens_BT.tolist() == [[1, 2, 3], [9, 9, 9], [4, 9, 9], [5, 6, 9]]
    assert tokens_BT.dtype == torch.long
    assert real_BT.sum(1).tolist() == [3, 0, 1, 2]
    with pytest.raises(ValueError, match="there are no rows"):
        pad_rows([])


@pytest.mark.parametrize("name", ALL)
def test_sizes_and_seeds_may_be_numbers_of_numpy(name):
    batches = ALL[name]
    sizes = {f: getattr(batches, f) for f in ("batch", "seed", "length") if hasattr(batches, f)}
    of_numpy = dataclasses.replace(batches, **{f: np.int64(size) for f, size in sizes.items()})
    for step in (0, 5):
        assert same(of_numpy.at(np.int64(step)), batches.at(step))
