"""Turn documents into the tokens of a corpus, in memory or in a file that may be larger.

Read `tokenize` first.
"""

import contextlib
import gc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from labkit.keeping.fingerprints import fingerprint
from labkit.keeping.token_files import FORMAT, stored
from labkit.text.documents import Document, Documents
from labkit.text.tokens import DOCUMENT, WORD, Arrays, Tokens

if TYPE_CHECKING:
    from tokenizers import Encoding

    from labkit.text.tokenizers import Tokenizer

CHUNK = 250_000  # characters that are tokenized at once


def tokenize(
    documents: Documents,
    tokenizer: "Tokenizer",
    *,
    end: bool = True,
    cache: str | Path | None = None,
) -> Tokens:
    """All documents as tokens, each followed by the separator if `end`; in a file if `cache`.

    The file is found again by the content of the documents and of the tokenizer.
    """
    if not isinstance(documents, Documents):
        raise TypeError(
            f"documents is a {type(documents).__name__}: give from_documents(texts), or what "
            "from_files or from_table reads"
        )
    separator = tokenizer.vocabulary.sep
    if end and separator is None:
        raise ValueError("the vocabulary has no separator to put between documents: give end=False")
    encoded = encode(documents, tokenizer, separator if end else None)
    if cache is None:
        with _uncollected():
            arrays = Arrays(*map(np.concatenate, zip(*encoded, strict=True)))
        return Tokens(arrays, tokenizer.vocabulary, documents.classes, end)
    if documents.fingerprint is None:
        raise ValueError("these documents have no fingerprint to be found by: give cache=None")
    identity = (FORMAT, documents.fingerprint(), tokenizer.fingerprint, end, documents.classes)
    with _uncollected():
        arrays, pages = stored(Path(cache) / fingerprint(identity), encoded)
    return Tokens(arrays, tokenizer.vocabulary, documents.classes, end, pages)


def encode(
    documents: Iterable[Document], tokenizer: "Tokenizer", separator: int | None
) -> Iterator[Arrays]:
    """The corpus in stretches; their ends are counted from the beginning of the corpus."""
    tokens = sentences = 0
    for some, encodings in _ahead(_chunks(documents), tokenizer):
        arrays = _numbers(some, encodings, separator)
        yield arrays._replace(
            sentence_ends=arrays.sentence_ends + tokens,
            document_ends=arrays.document_ends + sentences,
        )
        tokens += len(arrays.marked)
        sentences += len(arrays.sentence_ends)
    if tokens == 0:
        raise ValueError(
            "the documents hold no tokens: give more of them (in a file, a blank line ends one; "
            "split puts each on one side)"
        )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Turn off Python's garbage collector, which would run for every 700 new lists."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    some: list[Document] = []
    size = 0
    for document in documents:
        if not document.parts:
            raise ValueError("a document has no parts: give it at least one text, empty or not")
        some.append(document)
        # Short documents cost something, too.
        size += 32 + sum(map(len, document.parts))
        if size >= CHUNK:
            yield some
            some, size = [], 0
    if some:
        yield some


def _ahead(
    chunks: Iterable[list[Document]], tokenizer: "Tokenizer"
) -> Iterator[tuple[list[Document], list["Encoding"]]]:
    """Tokenize one chunk while the numbers of the one before are being collected."""
    with ThreadPoolExecutor(1) as pool:
        before = None
        for some in chunks:
            parts = [part for document in some for part in document.parts]
            begun = some, pool.submit(tokenizer.encode_all, parts)
            if before is not None:
                yield before[0], before[1].result()
            before = begun
        if before is not None:
            yield before[0], before[1].result()


def _numbers(
    documents: list[Document], encodings: list["Encoding"], separator: int | None
) -> Arrays:
    sizes = np.fromiter(map(len, encodings), np.int64, len(encodings))
    total = int(sizes.sum())
    ids = chain.from_iterable(encoding.ids for encoding in encodings)
    words = chain.from_iterable(encoding.word_ids for encoding in encodings)
    marked = np.fromiter(ids, np.uint32, total)
    word = np.fromiter(words, np.int32, total)
    begins = np.empty(total, bool)
    np.not_equal(word[1:], word[:-1], out=begins[1:])
    starts = np.cumsum(sizes) - sizes
    begins[starts[sizes > 0]] = True
    marked |= np.uint32(WORD) * begins

    document_ends = np.cumsum([len(document.parts) for document in documents])
    if separator is not None:
        positions = np.cumsum(sizes)[document_ends - 1]
        marked = np.insert(marked, positions, np.uint32(separator | WORD))
        sizes[document_ends - 1] += 1
    sentence_ends = np.cumsum(sizes)
    document_starts = np.append(0, sentence_ends[document_ends - 1])[:-1]
    marked[document_starts[document_starts < len(marked)]] |= np.uint32(DOCUMENT)
    labels = [-1 if document.label is None else document.label for document in documents]
    return Arrays(marked, sentence_ends, document_ends, np.array(labels, np.int64))
