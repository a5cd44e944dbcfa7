"""Documents from labelled tables (.csv, .tsv, .jsonl) and from the data sets of the hub."""

import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from labkit.checks import has_half_a_pair, shown
from labkit.keeping.paths import to_install
from labkit.text.documents import Document, Documents, ordered, sentences, unknown
from labkit.text.files import LONGEST_LINE, content, find_files, read_lines


def from_table(
    path: str | Path,
    text: str = "text",
    label: str | None = "label",
    second: str | None = None,
    header: bool = True,
) -> Documents:
    """A .csv, .tsv or .jsonl with a text (or two) and a label in each row.

    A label that is empty, null, None or NaN is not known: the row is a text without a label. White
    space around a label does not count. Without a header the columns are "0", "1", …; quotes in a
    .tsv are ordinary characters.
    """
    files = find_files(path)
    if len(files) > 1:
        raise ValueError(f"{str(path)!r} matches {len(files)} files: a table is one file")
    file = files[0]
    wanted = _wanted(text, second, label)
    # The labels are few words: they are read first, so that all sides number them alike, and so
    # that a broken row is known at once.
    given = (_name(row) for row in _rows(file, wanted, header)) if label else ()
    classes = ordered(name for name in given if not unknown(name))
    number = {name: n for n, name in enumerate(classes)}
    parts = len(wanted) - (label is not None)

    def read() -> Iterator[Document]:
        for row in _rows(file, wanted, header):
            yield _document(row[:parts], number.get(_name(row)) if label else None)

    return Documents(read, classes, lambda: f"{content([file])} {wanted} {header}")


def _name(row: Sequence[str]) -> str:
    """The label of a row: what a spreadsheet leaves around it does not make another class."""
    return row[-1].strip()


def _wanted(text: str, second: str | None, label: str | None) -> list[str]:
    if second is not None and label is None:
        raise ValueError(
            f"the pairs of {text!r} and {second!r} have no label: name its column, too"
        )
    return [name for name in (text, second, label) if name is not None]


def _document(texts: Sequence[str], label: int | None) -> Document:
    alone = label is None and len(texts) == 1
    return Document(sentences(texts[0]) if alone else tuple(texts), label)


def _rows(path: Path, wanted: Sequence[str], header: bool) -> Iterator[list[str]]:
    kinds = {".csv": _separated, ".tsv": _separated, ".jsonl": _objects}
    if path.suffix.lower() not in kinds:
        raise ValueError(f"{path} is not a table: give a {', '.join(kinds)} file")
    return kinds[path.suffix.lower()](path, wanted, header)


def _separated(path: Path, wanted: Sequence[str], header: bool) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_LINE)
    lines = (line + "\n" for line in read_lines(path))
    tabs = path.suffix.lower() == ".tsv"
    if tabs:
        rows = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        rows = csv.reader(lines, strict=True)
    try:
        first = next((row for row in rows if row), None)  # empty lines may stand before the table
        if first is None:
            return
        columns = first if header else [str(n) for n in range(len(first))]
        _have(wanted, columns, f"{path}, line {rows.line_num}", _other_mark(columns, tabs))
        if twice := [name for name in wanted if columns.count(name) > 1]:
            raise ValueError(f"{path}: two columns are called {shown(twice[0])}: rename one")
        indices = [columns.index(name) for name in wanted]
        for row in chain([] if header else [first], rows):
            if row and len(row) != len(columns):
                raise ValueError(
                    f"{path}, line {rows.line_num}: {len(row)} fields, the first row has "
                    f"{len(columns)}" + ("" if tabs else "; put a text with commas in quotes")
                )
            if row:
                yield [row[index] for index in indices]
    except csv.Error as error:
        unsplit = rows.line_num == 1 and "expected after" in str(error)
        mark = "; a .csv has commas between its fields" if unsplit else ""
        raise ValueError(f"{path}, line {rows.line_num}: {error}{mark}") from error


def _other_mark(columns: Sequence[str], tabs: bool) -> str:
    """What to do about a header that was not split: a spreadsheet may separate by semicolons."""
    if len(columns) > 1 or not any(mark in columns[0] for mark in ",;\t|"):
        return ""
    return f"; a {'.tsv has tabs' if tabs else '.csv has commas'} between its fields"


def _objects(path: Path, wanted: Sequence[str], header: bool) -> Iterator[list[str]]:
    for number, line in enumerate(read_lines(path), 1):
        where = f"{path}, line {number}"
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{where}: this is not JSON: {error}") from error
        if not isinstance(row, dict):
            raise ValueError(f"{where}: give an object such as {{{wanted[0]!r}: …}}")
        _have(wanted, row, where)
        values = [row[name] for name in wanted]
        if len(wanted) > 1 and values[-1] is None:
            values[-1] = ""
        yield [_written(value, name, where) for value, name in zip(values, wanted, strict=True)]


def _written(value: Any, column: str, where: str) -> str:
    if value is None:
        raise ValueError(f"{where}: {column!r} is null; give a text, or leave the row out")
    if isinstance(value, list | dict):
        kind = type(value).__name__
        raise ValueError(f"{where}: {column!r} is a {kind}; give one text, or one number")
    text = str(value)
    if has_half_a_pair(text):
        raise ValueError(f"{where}: {column!r} holds half of a surrogate pair; clean the text")
    return text


def _have(wanted: Iterable[str], columns: Iterable[str], where: str, advice: str = "") -> None:
    for name in wanted:
        if name not in columns:
            known = ", ".join(map(shown, list(columns)[:20]))
            raise ValueError(f"{where}: there is no column {name!r}; there are {known}{advice}")


# ---- the hub


def from_hub(
    data: Any,
    text: str = "text",
    label: str | None = None,
    second: str | None = None,
    split: str = "train",
    config: str | None = None,
) -> Documents:
    """A data set of the hub by its name, or one that the library `datasets` has loaded already."""
    if isinstance(data, str):
        data = _library().load_dataset(data, config, split=split)
    wanted = _wanted(text, second, label)
    _have(wanted, data.column_names, "the data set")
    classes: tuple[str, ...] = ()
    if label:
        # The hub's own numbers stay, where it has names for them.
        named = hasattr(data.features[label], "names")
        values = (name for name in map(str, data.unique(label)) if not unknown(name))
        classes = tuple(data.features[label].names) if named else ordered(values)
    number = {name: n for n, name in enumerate(classes)}

    def read() -> Iterator[Document]:
        columns = [name for name in (text, second) if name is not None]
        for index, row in enumerate(data.select_columns(wanted)):
            texts = [_written(row[name], name, f"row {index}") for name in columns]
            value = row[label] if label else None
            known = value if label is None or named else number.get(str(value))
            yield _document(texts, known)

    return Documents(read, classes, lambda: f"{data._fingerprint} {wanted}")


def _library() -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"the hub needs the library datasets: {to_install('hub')}, "
            "or save the data as .jsonl and use from_table"
        ) from error
    return datasets
