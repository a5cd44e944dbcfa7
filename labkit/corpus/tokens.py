"""All tokens of a corpus in one array, in memory or in a file that the memory need not hold.

Each token is one 32-bit number: the token itself and two marks, "a word begins" and "a document
begins". So words and documents in any stretch of text are a running sum of marks.

The file is written under another name and renamed when it is complete: a run that dies leaves
no incomplete corpus behind. Read `tokenize` first.
"""

import contextlib
import gc
import json
import mmap
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from labkit.corpus.documents import Document, Documents
from labkit.keeping.files import file_digest, replacing, set_aside
from labkit.keeping.fingerprints import fingerprint
from labkit.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Encoding

    from labkit.text.tokenizers import Tokenizer

NUMBER = (1 << 30) - 1
WORD = 1 << 30
DOCUMENT = 1 << 31

FORMAT = 2
CHECKSUMS = "checksums.json"
CHUNK = 250_000  # characters that are tokenized at once
AROUND = 512 << 10  # bytes that reading one position may bring into memory
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
        self._check()

    def _check(self) -> None:
        # A piece at a time: the file may be larger than the memory.
        for start in range(0, len(self), 2**20):
            largest = (self.arrays.marked[start : start + 2**20] & NUMBER).max()
            if largest >= self.vocabulary.size:
                raise ValueError(
                    f"token {largest:,} is not in the vocabulary of {self.vocabulary.size:,}"
                )
            self._touch(2**22)
        check_ends(self.arrays, len(self.classes))

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

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The marked tokens at these positions."""
        taken = self.arrays.marked[positions].astype(np.int64)
        # The system maps much around each page that is read.
        self._touch(len(positions) * AROUND + positions.nbytes // 2)
        return taken

    def _touch(self, size: int) -> None:
        """Release the pages of a file that were read; a long run would hold all of it in memory."""
        self._touched += size
        if self._mapped and self._touched > TOUCHED and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
            self._touched = 0

    def sentence_starts(self, sentences: NDArray[np.int64]) -> NDArray[np.int64]:
        """At which token each sentence begins."""
        return self.arrays.sentence_ends[sentences - 1] * (sentences > 0)

    def document_starts(self, documents: NDArray[np.int64]) -> NDArray[np.int64]:
        """At which sentence each document begins."""
        return self.arrays.document_ends[documents - 1] * (documents > 0)


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
    folder = Path(cache) / fingerprint(identity)
    wrong = damage(folder) if folder.exists() else "it is not there"
    if wrong:
        if folder.exists():
            aside = set_aside(folder)
            where = f", those there are set aside as {aside.name}" if aside else ""
            warnings.warn(f"the tokens in {folder} are made anew{where}: {wrong}", stacklevel=2)
        with _uncollected():
            write_arrays(folder, encoded)
    arrays, mapped = _map(folder)
    return Tokens(arrays, tokenizer.vocabulary, documents.classes, end, mapped)


# ---- text to numbers


def encode(
    documents: Iterable[Document], tokenizer: "Tokenizer", separator: int | None
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
            begun = (
                some,
                pool.submit(tokenizer.encode_all, parts),
            )
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


# ---- numbers to files


def _gather(encoded: Iterable[Arrays]) -> Arrays:
    return Arrays(*map(np.concatenate, zip(*encoded, strict=True)))


def write_arrays(folder: Path, encoded: Iterable[Arrays]) -> None:
    """Write a corpus and the checksums of its files, all or nothing."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacing(folder, folder=True) as draft:
            with contextlib.ExitStack() as stack:
                files = [stack.enter_context((draft / name).open("wb")) for name in Arrays._fields]
                for arrays in encoded:
                    for name, file in zip(Arrays._fields, files, strict=True):
                        getattr(arrays, name).tofile(file)
            checksums = {name: file_digest(draft / name) for name in Arrays._fields}
            (draft / CHECKSUMS).write_text(json.dumps(checksums), encoding="utf-8")
    except OSError:
        # Another run may have written the same corpus just now.
        if damage(folder) is not None:
            raise


def damage(folder: Path) -> str | None:
    """What is wrong with the files of a corpus, or None if they are what was written."""
    try:
        checksums = json.loads((folder / CHECKSUMS).read_text(encoding="utf-8"))
        for name in Arrays._fields:
            if file_digest(folder / name) != checksums[name]:
                return f"the checksum of {name} differs"
    except OSError as error:
        return f"{Path(error.filename or folder).name} is missing or cannot be read"
    except (ValueError, KeyError, TypeError, RecursionError):
        return f"{CHECKSUMS} is not what was written"
    return None


def check_ends(arrays: Arrays, classes: int) -> None:
    """Refuse ends that do not part the text in order, and labels that are no class."""
    for ends, until, what in (
        (arrays.sentence_ends, len(arrays.marked), "sentences"),
        (arrays.document_ends, len(arrays.sentence_ends), "documents"),
    ):
        if len(ends) == 0 or ends[0] < 0 or ends[-1] != until or (np.diff(ends) < 0).any():
            raise ValueError(f"the ends of the {what} do not part the text in order")
    if len(arrays.labels) != len(arrays.document_ends):
        raise ValueError(
            f"{len(arrays.document_ends)} documents have {len(arrays.labels)} labels: give one "
            "for each, -1 for none"
        )
    if arrays.labels.min() < -1 or (classes and arrays.labels.max() >= classes):
        raise ValueError(f"a label is not one of the {classes} classes")


def _map(folder: Path) -> tuple[Arrays, mmap.mmap]:
    maps = []
    for name in Arrays._fields:
        with (folder / name).open("rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    types = (np.uint32, np.int64, np.int64, np.int64)
    arrays = [np.frombuffer(one, kind) for one, kind in zip(maps, types, strict=True)]
    return Arrays(*arrays), maps[0]
