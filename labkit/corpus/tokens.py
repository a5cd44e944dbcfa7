"""All tokens of a corpus in one array, in memory or in a file that the memory need not hold.

Each token is one 32-bit number: the token itself and two marks, "a word begins" and "a document
begins". So words and documents in any stretch of text are a running sum of marks.

The file is written beside its place and moved there when it is complete: a run that dies leaves
nothing that another run could take for a corpus. Read `tokenize` first.
"""

import contextlib
import gc
import hashlib
import json
import mmap
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding

from labkit.corpus.documents import Document, Documents
from labkit.keeping.files import fingerprint
from labkit.text.tokenizers import Tokenizer, Vocabulary

NUMBER = (1 << 30) - 1
WORD = 1 << 30
DOCUMENT = 1 << 31

FORMAT = 1
CHUNK = 250_000  # characters that are tokenized at once
AROUND = 512 << 10  # bytes that reading one place may bring into memory
TOUCHED = 64 << 20  # bytes of a file that may be in memory before they are handed back


class Arrays(NamedTuple):
    """A corpus in numbers: its tokens, where each sentence and each document ends, the labels."""

    marked: NDArray[np.uint32]
    sentence_ends: NDArray[np.int64]  # in tokens
    document_ends: NDArray[np.int64]  # in sentences
    labels: NDArray[np.int64]  # -1: none


class Tokens:
    """The tokens of a corpus, one document after the other."""

    def __init__(
        self,
        arrays: Arrays,
        vocabulary: Vocabulary,
        classes: tuple[str, ...],
        end: bool,
        mapped: mmap.mmap | None = None,
    ) -> None:
        self.arrays = arrays
        self.vocabulary = vocabulary
        self.classes = classes
        # Whether a separator stands at the end of each document.
        self.end = end
        self._mapped = mapped
        self._touched = 0

    def __len__(self) -> int:
        return len(self.arrays.marked)

    @property
    def documents(self) -> int:
        """How many documents there are."""
        return len(self.arrays.document_ends)

    @property
    def fingerprint(self) -> str:
        """A name that differs when any token, end or label does."""
        return fingerprint(self.arrays, self.vocabulary, self.classes, self.end)

    def take(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """The marked tokens at these places."""
        taken = self.arrays.marked[places].astype(np.int64)
        if self._mapped is not None:
            # The system maps much around each page that is read: a long run would have the whole
            # file in its memory, if what it has read were not handed back.
            self._touched += len(places) * AROUND + places.nbytes // 2
            if self._touched > TOUCHED and hasattr(mmap, "MADV_DONTNEED"):
                self._mapped.madvise(mmap.MADV_DONTNEED)
                self._touched = 0
        return taken

    def sentence_starts(self, sentences: NDArray[np.int64]) -> NDArray[np.int64]:
        """At which token each sentence begins."""
        return self.arrays.sentence_ends[sentences - 1] * (sentences > 0)

    def document_starts(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """At which sentence each document begins."""
        return self.arrays.document_ends[documents - 1] * (documents > 0)


def tokenize(
    documents: Documents,
    tokenizer: Tokenizer,
    *,
    end: bool = True,
    cache: str | Path | None = None,
) -> Tokens:
    """All documents as tokens, each followed by the separator if `end`; in a file if `cache`.

    The file is found again by the content of the documents and of the tokenizer.
    """
    separator = tokenizer.vocabulary.sep
    if end and separator is None:
        raise ValueError("the vocabulary has no separator to put between documents: give end=False")
    encoded = encode(documents, tokenizer, separator if end else None)
    if cache is None:
        with _uncollected():
            arrays = _gather(encoded)
        return Tokens(arrays, tokenizer.vocabulary, documents.classes, end)
    if documents.fingerprint is None:
        raise ValueError("these documents have no fingerprint to be found by: give cache=None")
    identity = (FORMAT, documents.fingerprint(), tokenizer.fingerprint, end, documents.classes)
    key = hashlib.blake2b(repr(identity).encode(), digest_size=16).hexdigest()
    folder = Path(cache) / key
    if not _complete(folder):
        with _uncollected():
            write(folder, encoded)
    arrays, mapped = _map(folder)
    return Tokens(arrays, tokenizer.vocabulary, documents.classes, end, mapped)


# ---- text to numbers


def encode(
    documents: Iterable[Document], tokenizer: Tokenizer, separator: int | None
) -> Iterator[Arrays]:
    """The corpus in stretches, of which the ends count from the beginning of the corpus."""
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
            "the documents hold no tokens: is the text, or this side of a split, empty?"
        )


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without Python's collector, which looks through all that there is for every 700 new lists."""
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
        some.append(document)
        # Short documents cost something, too.
        size += 32 + sum(map(len, document.parts))
        if size >= CHUNK:
            yield some
            some, size = [], 0
    if some:
        yield some


def _ahead(
    chunks: Iterable[list[Document]], tokenizer: Tokenizer
) -> Iterator[tuple[list[Document], list[Encoding]]]:
    """Tokenize one chunk while the numbers of the one before are being collected."""
    with ThreadPoolExecutor(1) as pool:
        before = None
        for some in chunks:
            parts = [part for document in some for part in document.parts]
            begun = (
                some,
                pool.submit(tokenizer.library.encode_batch, parts, add_special_tokens=False),
            )
            if before is not None:
                yield before[0], before[1].result()
            before = begun
        if before is not None:
            yield before[0], before[1].result()


def _numbers(documents: list[Document], encodings: list[Encoding], separator: int | None) -> Arrays:
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
        places = np.cumsum(sizes)[document_ends - 1]
        marked = np.insert(marked, places, np.uint32(separator | WORD))
        sizes[document_ends - 1] += 1
    sentence_ends = np.cumsum(sizes)
    document_starts = np.append(0, sentence_ends[document_ends - 1])[:-1]
    marked[document_starts[document_starts < len(marked)]] |= np.uint32(DOCUMENT)
    labels = [-1 if document.label is None else document.label for document in documents]
    return Arrays(marked, sentence_ends, document_ends, np.array(labels, np.int64))


# ---- numbers to files


def _gather(encoded: Iterable[Arrays]) -> Arrays:
    return Arrays(*map(np.concatenate, zip(*encoded, strict=True)))


def write(folder: Path, encoded: Iterable[Arrays]) -> None:
    """Write a corpus beside its place and move it there at the end: all or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    partial = folder.with_name(f"{uuid4().hex}.partial")
    partial.mkdir()
    try:
        sizes = dict.fromkeys(Arrays._fields, 0)
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context((partial / name).open("wb")) for name in Arrays._fields]
            for arrays in encoded:
                for name, file in zip(Arrays._fields, files, strict=True):
                    sizes[name] += file.write(getattr(arrays, name).data)
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        (partial / "sizes.json").write_text(json.dumps(sizes))
        if not _complete(folder):
            shutil.rmtree(folder, ignore_errors=True)
            _rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _rename(partial: Path, folder: Path) -> None:
    try:
        partial.rename(folder)
    except OSError:
        # Another run may have written the same corpus just now.
        if not _complete(folder):
            raise


def _complete(folder: Path) -> bool:
    try:
        sizes = json.loads((folder / "sizes.json").read_text())
        return all((folder / name).stat().st_size == sizes[name] for name in Arrays._fields)
    except (OSError, ValueError, KeyError):
        return False


def _sweep(cache: Path) -> None:
    """Remove what a run that was killed has left: nobody has written there for a day."""
    for partial in cache.glob("*.partial"):
        with contextlib.suppress(OSError):
            newest = max(path.stat().st_mtime for path in (partial, *partial.iterdir()))
            if time.time() - newest > 24 * 3600:
                shutil.rmtree(partial, ignore_errors=True)


def _map(folder: Path) -> tuple[Arrays, mmap.mmap]:
    maps = []
    for name in Arrays._fields:
        with (folder / name).open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    types = (np.uint32, np.int64, np.int64, np.int64)
    arrays = [np.frombuffer(one, kind) for one, kind in zip(maps, types, strict=True)]
    return Arrays(*arrays), maps[0]
