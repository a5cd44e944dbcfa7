"""Documents from files of text, read line by line."""

import glob
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Literal

from labkit.checks import check_choice
from labkit.keeping.files import digest, file_digest
from labkit.text.documents import Document, Documents, sentences

LONGEST_LINE = 10_000_000  # bytes
LONGEST_DOCUMENT = 1_000_000  # characters


def from_files(
    pattern: str | Path, ends: Literal["blank line", "line", "file"] = "blank line"
) -> Documents:
    """Text files, read line by line; a document ends at a blank line, each line or the file's end.

    Longer ones are cut at the first line end after a million characters.
    """
    check_choice("ends", ends, "blank line", "line", "file")
    paths = find_files(pattern)

    def read() -> Iterator[Document]:
        for path in paths:
            for text in _texts_of(path, ends):
                yield Document(sentences(text))

    return Documents(read, fingerprint=lambda: f"{content(paths)} {ends}")


def _texts_of(path: Path, ends: str) -> Iterator[str]:
    lines: list[str] = []
    size = 0
    for line in read_lines(path):
        empty = ends == "blank line" and not line.strip()
        if not empty:
            lines.append(line)
            size += len(line) + 1
        if empty or ends == "line" or size >= LONGEST_DOCUMENT:
            yield from _joined(lines)
            lines, size = [], 0
    yield from _joined(lines)


def _joined(lines: list[str]) -> Iterator[str]:
    text = "\n".join(lines)
    if text.strip():
        yield text


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; an error names the file and the line."""
    with path.open("rb") as file:
        for number, line in enumerate(_raw_lines(file), 1):
            if len(line) > LONGEST_LINE:
                raise ValueError(
                    f"{path}, line {number}: more than {LONGEST_LINE:,} bytes without a line end; "
                    "break the text into lines, or check that it is text"
                )
            if _is_wide(line):
                raise ValueError(
                    f"{path}, line {number}: this looks like UTF-16 (there are NUL bytes between "
                    "the letters); save the file as UTF-8"
                )
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}, line {number}, byte {error.start + 1}: this is not UTF-8 "
                    f"({error.reason}); save the file as UTF-8"
                ) from error
            yield text.rstrip("\r\n")


def _raw_lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, or the beginnings of those that are too long."""
    first = file.readline(LONGEST_LINE + 1)
    file.seek(0)
    if first.endswith(b"\n") or b"\r" not in first:
        yield from iter(lambda: file.readline(LONGEST_LINE + 1), b"")
    else:
        # As old Macs ended lines, and spreadsheets still do when asked. latin-1 keeps each byte.
        lines = io.TextIOWrapper(file, "latin-1", newline="\r")
        yield from (
            line.encode("latin-1") for line in iter(lambda: lines.readline(LONGEST_LINE + 1), "")
        )


def _is_wide(line: bytes) -> bool:
    """Whether each letter of a line has two bytes or four, which UTF-8 would read silently."""
    # Of a script whose letters need both bytes, only the end of the line shows it.
    return 3 * line.count(0) > len(line) or line.startswith(b"\0") or line.endswith(b"\0\n")


def find_files(pattern: str | Path) -> list[Path]:
    """The files that match a pattern; refuse a pattern without files, and empty files."""
    names = glob.glob(str(pattern), recursive=True)
    paths = [Path(pattern)] if Path(pattern).exists() else [Path(name) for name in sorted(names)]
    if not paths:
        raise FileNotFoundError(f"no file matches {str(pattern)!r} (from {Path.cwd()})")
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path} is not a file: give a pattern such as {path}/*.txt")
        if path.stat().st_size == 0:
            raise ValueError(f"{path} is empty: remove it or leave it out of the pattern")
    return paths


def content(paths: Iterable[Path]) -> str:
    """A name for all that stands in these files."""
    return digest(*(file_digest(path).encode() for path in paths))
