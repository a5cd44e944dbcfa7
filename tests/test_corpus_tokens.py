"""Tokens of a corpus: the same as of each document alone; a cache that is whole or not there."""

import os
import signal
import time

import copies
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.corpus import Document, Documents, from_documents, from_files, tokenize
from labkit.keeping import token_files
from labkit.text import encoding, tokens
from labkit.text.tokenizers import Tokenizer

TEXTS = ["The dog bit. The man's hat!\nAgain,  and again.", "One.", "Two words. Three of them."]
BPE = Tokenizer.bpe(TEXTS, 290)
PIECES = Tokenizer.word_pieces(TEXTS, 60)


def plain(corpus):
    """The arrays as lists, the marks apart."""
    marked = corpus.arrays.marked.astype(np.int64)
    numbers = (marked & tokens.NUMBER).tolist()
    words, begins = (((marked & mark) > 0).tolist() for mark in (tokens.WORD, tokens.DOCUMENT))
    return numbers, words, begins, *(array.tolist() for array in corpus.arrays[1:])


def by_hand(documents, tokenizer, end):
    """The same, one sentence at a time."""
    numbers, words, begins, sentence_ends, document_ends, labels = [], [], [], [], [], []
    for document in documents:
        new = True
        for n, part in enumerate(document.parts):
            encoding = tokenizer.library.encode(part, add_special_tokens=False)
            before = None
            for token, word in zip(encoding.ids, encoding.word_ids, strict=True):
                numbers.append(token)
                words.append(word != before)
                begins.append(new)
                before, new = word, False
            if end and n == len(document.parts) - 1:
                numbers.append(tokenizer.vocabulary.sep)
                words.append(True)
                begins.append(new)
            sentence_ends.append(len(numbers))
        document_ends.append(len(sentence_ends))
        labels.append(-1 if document.label is None else document.label)
    return numbers, words, begins, sentence_ends, document_ends, labels


parts = st.lists(st.text("ab. \n", max_size=8), min_size=1, max_size=4).map(tuple)
some_documents = st.lists(st.builds(Document, parts, st.none() | st.integers(0, 3)), min_size=1)


@settings(deadline=None)
@given(some_documents, st.booleans(), st.sampled_from([1, 100, 10**6]))
def test_tokens_are_those_of_each_sentence(documents, end, chunk):
    before, encoding.CHUNK = encoding.CHUNK, chunk
    try:
        expected = by_hand(documents, BPE, end)
        if not expected[0]:
            with pytest.raises(ValueError, match="hold no tokens"):
                tokenize(from_documents(documents), BPE, end=end)
        else:
            assert plain(tokenize(from_documents(documents), BPE, end=end)) == expected
    finally:
        encoding.CHUNK = before


@settings(deadline=None)
@given(st.text("aB,.!? \n'1", max_size=80))
def test_cutting_into_sentences_does_not_change_the_tokens(text):
    for tokenizer in (BPE, PIECES, Tokenizer.words(TEXTS), Tokenizer.characters(TEXTS)):
        corpus = tokenize(from_documents([text]), tokenizer)
        assert plain(corpus)[0] == [*tokenizer.encode(text), tokenizer.vocabulary.sep]


def test_the_cache_gives_the_same_tokens(tmp_path):
    documents = from_documents([*TEXTS, "long words " * 500], labels=["x", "y", "x", "z"])
    in_memory = tokenize(documents, BPE)
    written = tokenize(documents, BPE, cache=tmp_path / "cache")
    assert plain(written) == plain(in_memory)
    assert written.classes == ("x", "y", "z")
    (folder,) = (tmp_path / "cache").iterdir()
    stamp = (folder / "marked").stat().st_mtime_ns
    again = tokenize(documents, BPE, cache=tmp_path / "cache")
    assert plain(again) == plain(in_memory)
    assert (folder / "marked").stat().st_mtime_ns == stamp
    # Another content, tokenizer or way of ending documents is another corpus.
    tokenize(from_documents(TEXTS), BPE, cache=tmp_path / "cache")
    tokenize(documents, PIECES, cache=tmp_path / "cache")
    tokenize(documents, BPE, end=False, cache=tmp_path / "cache")
    assert len([*(tmp_path / "cache").iterdir()]) == 4


def test_a_file_stays_out_of_memory_and_reads_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(token_files, "TOUCHED", 1)
    documents = from_documents(TEXTS * 500)
    in_memory, mapped = tokenize(documents, BPE), tokenize(documents, BPE, cache=tmp_path)
    places = np.arange(len(in_memory)).reshape(4, -1)
    for _ in range(3):
        assert (mapped.take(places) == in_memory.take(places)).all()
        assert mapped.take(places).dtype == np.int64
    with pytest.raises(ValueError, match="read-only"):
        mapped.arrays.marked[0] = 0


@pytest.mark.parametrize("damage", ["cut", "lost", "flipped", "no checksums", "bad checksums"])
def test_a_damaged_cache_is_written_again(tmp_path, damage):
    documents = from_documents(TEXTS)
    expected = plain(tokenize(documents, BPE, cache=tmp_path))
    (folder,) = tmp_path.iterdir()
    if damage == "cut":
        (folder / "marked").write_bytes((folder / "marked").read_bytes()[:-4])
    elif damage == "lost":
        (folder / "labels").unlink()
    elif damage == "flipped":
        raw = bytearray((folder / "marked").read_bytes())
        raw[2] ^= 64  # a token of some millions
        (folder / "marked").write_bytes(raw)
    elif damage == "no checksums":
        (folder / "checksums.json").unlink()
    else:
        (folder / "checksums.json").write_text("{")
    with pytest.warns(UserWarning, match=f"{folder.name} are made anew, .* set aside"):
        again = tokenize(documents, BPE, cache=tmp_path)
    assert plain(again) == expected
    assert {path.name for path in tmp_path.iterdir()} == {folder.name, f"{folder.name}.damaged"}
    (folder / "labels").unlink()
    with pytest.warns(UserWarning, match="made anew"):
        assert plain(tokenize(documents, BPE, cache=tmp_path)) == expected
    assert len([*tmp_path.iterdir()]) == 2, "of damaged ones the last stays"


def test_an_error_leaves_nothing_behind(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"fine\n\n" * 3 + b"\xff")
    with pytest.raises(ValueError, match="line 7"):
        tokenize(from_files(tmp_path / "a.txt"), BPE, cache=tmp_path / "cache")
    assert [*(tmp_path / "cache").iterdir()] == []


KILLED = """
import sys, time
from labkit.corpus import Document, Documents, tokenize
from labkit.text import encoding
from labkit.text.tokenizers import Tokenizer
encoding.CHUNK = 1
def read():
    for n in range(10**6):
        yield Document((f"line {n}",))
        if n == 50:
            print("half-way", flush=True)
        if n > 50:
            time.sleep(0.01)
tokenize(Documents(read, (), lambda: "the name"), Tokenizer.load(sys.argv[1]), cache=sys.argv[2])
"""


def test_a_killed_run_leaves_no_corrupt_cache(tmp_path):
    BPE.save(tmp_path / "tokenizer.json")
    cache = tmp_path / "cache"
    with copies.Program(["-c", KILLED, tmp_path / "tokenizer.json", cache]) as run:
        assert run.stdout.readline() == "half-way\n"
        run.send_signal(signal.SIGKILL)
    (left,) = cache.iterdir()
    assert left.name.startswith(".unfinished-")
    # The next run of the same corpus is not misled by what was left ...
    documents = Documents(lambda: iter([Document(("the whole text",))]), (), lambda: "the name")
    corpus = tokenize(documents, BPE, cache=cache)
    assert plain(corpus) == by_hand(documents, BPE, True)
    # ... which is removed when nobody has written there for a day, and not before.
    assert left.exists()
    for path in (*left.iterdir(), left):
        os.utime(path, (time.time() - 25 * 3600,) * 2)
    other = from_documents(["other"])
    tokenize(other, BPE, cache=cache)
    assert not left.exists()


def test_two_runs_at_once(tmp_path):
    documents = from_documents(TEXTS)
    folder = tmp_path / "corpus"

    def slow():
        yield from encoding.encode(documents, BPE, BPE.vocabulary.sep)
        # Another run is faster.
        token_files.write_arrays(folder, encoding.encode(documents, BPE, BPE.vocabulary.sep))

    token_files.write_arrays(folder, slow())
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    assert token_files.damage(folder) is None


def test_what_a_faster_run_has_written_stays_where_it_is(tmp_path):
    folder, written = tmp_path / "corpus", []

    def slow():
        parts = list(encoding.encode(from_documents(TEXTS), BPE, BPE.vocabulary.sep))
        yield from parts
        token_files.write_arrays(folder, iter(parts))
        written.append(token_files.map_arrays(folder))
        written.append({path.name: path.stat().st_ino for path in folder.iterdir()})

    token_files.write_arrays(folder, slow())
    assert {path.name: path.stat().st_ino for path in folder.iterdir()} == written[1]
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]


def test_errors_say_what_to_do(tmp_path):
    with pytest.raises(ValueError, match="give end=False"):
        tokenize(from_documents(["a"]), Tokenizer.bpe(TEXTS, 300, special=[]))
    with pytest.raises(ValueError, match="no fingerprint"):
        tokenize(Documents(lambda: iter([Document(("a",))])), BPE, cache=tmp_path)
    (tmp_path / "blank.txt").write_text(" \n\n")
    with pytest.raises(ValueError, match=r"hold no tokens.*a blank line ends one"):
        tokenize(from_files(tmp_path / "blank.txt"), BPE)
    for documents in ([Document(()), Document(("a",))], [Document(("a",)), Document(())]):
        with pytest.raises(ValueError, match="has no parts: give it at least one text"):
            tokenize(from_documents(documents), BPE)


def test_documents_are_read_as_they_are_needed():
    read = []

    def endless():
        for n in range(10**9):
            read.append(n)
            yield Document((f"document {n} and its text",))

    encoded = encoding.encode(endless(), BPE, None)
    for _ in range(3):
        before = len(read)
        next(encoded)
        # Two chunks at most: one that is tokenized and one that is collected.
        assert len(read) - before < 2 * encoding.CHUNK / 50


MEMORY = """
import resource, sys
from pathlib import Path
import numpy as np
from labkit.corpus import Tokens, Windows
from labkit.keeping import token_files
from labkit.text import tokens
from labkit.text.vocabulary import Vocabulary
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def corpus(size):
    folder = Path(sys.argv[1]) / str(size)
    piece = np.arange(250_000, dtype=np.uint32)
    one, ends = np.array([0]), np.array([1])
    parts = (tokens.Arrays(piece, one + 250_000 * (n + 1), ends + n, one) for n in range(size))
    token_files.write_arrays(folder, parts)
    arrays, pages = token_files.map_arrays(folder)
    return Tokens(arrays, Vocabulary(250_000), (), False, pages)
for size in (4, 160):
    before = peak()
    batches = Windows(corpus(size), 512, batch=64)
    for step in range(batches.steps):
        batches.at(step)
print(peak() - before)
"""


def test_a_large_file_takes_no_more_memory_than_a_small_one(tmp_path):
    """160 MB of tokens are written and read, while the memory grows by a part of that."""
    done = copies.run(["-c", MEMORY, tmp_path])
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 100


def test_tokens_out_of_range_are_refused():
    arrays = tokenize(from_documents(TEXTS), BPE).arrays
    for changed, what in (
        (arrays._replace(marked=arrays.marked + np.uint32(8_000_000)), "not in the vocabulary"),
        (arrays._replace(sentence_ends=arrays.sentence_ends + 1), "ends of the sentences"),
        (arrays._replace(document_ends=arrays.document_ends[::-1]), "ends of the documents"),
        (arrays._replace(labels=arrays.labels[1:]), "give one for each"),
        (arrays._replace(labels=arrays.labels - 1), "a label is not one of the 0 classes"),
    ):
        with pytest.raises(ValueError, match=what):
            tokens.Tokens(changed, BPE.vocabulary, (), True)
