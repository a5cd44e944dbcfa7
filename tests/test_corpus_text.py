"""Where text comes from: documents, sentences, splits, and errors that name file and line."""

import json
import time

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from labkit.corpus import Document, from_documents, from_files, from_hub, from_table
from labkit.text import files
from labkit.text.documents import Documents, sentences


def texts(source):
    return [document.text for document in source]


@given(st.text("ab.!? \n\t", max_size=40))
def test_sentences_are_the_text(text):
    parts = sentences(text)
    assert "".join(parts) == text
    assert all(not part.isspace() for part in parts) or not text.strip()


def test_sentences_by_hand():
    text = "One. Two?! 3.5 is it.\n\nFour\nfive ... "
    assert sentences(text) == ("One.", " Two?!", " 3.5 is it.", "\n\nFour", "\nfive ... ")
    assert sentences("") == ("",)


def test_documents_of_files(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfOne.\r\nTwo.\r\n\r\n \nThree.\n")
    (tmp_path / "b.txt").write_text("\nünï\n\n\n")
    pattern = tmp_path / "*.txt"
    assert texts(from_files(pattern)) == ["One.\nTwo.", "Three.", "ünï"]
    assert texts(from_files(pattern, "line")) == ["One.", "Two.", "Three.", "ünï"]
    assert texts(from_files(pattern, "file")) == ["One.\nTwo.\n\n \nThree.", "\nünï\n\n"]
    # It can be read again, and each reading is from the beginning.
    source = from_files(pattern)
    assert list(source) == list(source)
    assert next(iter(source)).parts == ("One.", "\nTwo.")
    assert [*source.texts] == texts(source) == [*source.texts]


def test_a_name_with_brackets_is_a_file(tmp_path):
    (tmp_path / "a[1].txt").write_text("one")
    assert texts(from_files(tmp_path / "a[1].txt")) == ["one"]


def test_long_documents_are_cut_at_line_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_DOCUMENT", 10)
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\nfour\n\nfive\n")
    for ends, last in (("blank line", ["four", "five"]), ("file", ["four\n\nfive"])):
        assert texts(from_files(tmp_path / "a.txt", ends)) == ["one\ntwo\nthree", *last]


def test_fingerprints_change_with_the_content(tmp_path):
    path = tmp_path / "a.txt"
    names = []
    for content in ("one\n\ntwo", "one\n\ntoo", "one\n\ntwo"):
        path.write_text(content)
        train, held_out = from_files(path).split(0.5)
        names.append([from_files(path, "line").fingerprint(), from_files(path).fingerprint()])
        names[-1] += [
            train.fingerprint(),
            held_out.fingerprint(),
            train.split(0.1)[0].fingerprint(),
        ]
    assert names[0] == names[2]
    assert len({*names[0], *names[1]}) == 10


def test_held_out_documents_are_not_trained_on():
    source = from_documents([f"Document {n % 1500}.{' ' * (n // 1500)}" for n in range(3000)])
    train, held_out = source.split(0.2)
    # Equal documents, and those that differ in white space alone, are on one side.
    words = {text.strip() for text in train.texts}, {text.strip() for text in held_out.texts}
    assert not words[0] & words[1]
    assert len(words[0] | words[1]) == 1500
    assert 0.17 < len(words[1]) / 1500 < 0.23
    # A share that grows keeps what was held out; the order and the neighbours do not matter.
    assert set(held_out) < set(source.split(0.3)[1])
    some = from_documents(list(source)[::-7])
    assert set(some.split(0.2)[1]) == set(some) & set(held_out)


def test_pairs_with_one_first_text_are_on_one_side(tmp_path):
    rows = [{"a": f"premise {n // 4}", "b": f"hypothesis {n}", "y": n % 2} for n in range(400)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    train, held_out = from_table(tmp_path / "t.jsonl", "a", "y", "b").split(0.3)
    sides = [{document.parts[0] for document in side} for side in (train, held_out)]
    assert len(sides[0]) + len(sides[1]) == 100
    assert train.classes == held_out.classes == ("0", "1")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\na. b,\nc,yes\nd,None\ne,no\n"),
        ("a.csv", "text,label\na. b,NaN\nc,yes\nd,nan\ne,no\n"),
        ("a.CSV", "text,label\na. b,null\nc,yes\nd,NULL\ne,no\n"),
        ("a.tsv", "text\tlabel\na. b\t\nc\tyes\nd\tNone\ne\tno\n"),
        ("a.jsonl", '{"text": "a. b", "label": null}\n{"text": "c", "label": "yes"}\n'
                    '{"text": "d", "label": ""}\n{"text": "e", "label": "no"}\n'),
    ],
)  # fmt: skip
def test_rows_without_a_label_are_texts_without_a_label(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    table = from_table(tmp_path / name)
    assert table.classes == ("no", "yes")
    assert [one.label for one in table] == [None, 1, None, 0]
    assert next(iter(table)).parts == ("a.", " b")


def test_tables(tmp_path):
    (tmp_path / "a.csv").write_text('text,label\n"a, ""b""\nc",pos\nd,neg\n\ne,10\n')
    (tmp_path / "a.tsv").write_text('text\tlabel\na, "b\tpos\nd\tneg\n')
    (tmp_path / "a.jsonl").write_text(
        '{"text": "a", "label": 10, "x": 1}\n\n{"label": 9, "text": "b"}'
    )
    (tmp_path / "n.tsv").write_text("g\t1\tthe text\ng\t0\tother\n")
    table = from_table(tmp_path / "a.csv")
    assert table.classes == ("10", "neg", "pos")
    assert [*table] == [Document(('a, "b"\nc',), 2), Document(("d",), 1), Document(("e",), 0)]
    assert [*from_table(tmp_path / "a.tsv")] == [Document(('a, "b',), 1), Document(("d",), 0)]
    table = from_table(tmp_path / "a.jsonl")
    assert table.classes == ("9", "10")
    assert [*table] == [Document(("a",), 1), Document(("b",), 0)]
    bare = from_table(tmp_path / "n.tsv", text="2", label="1", header=False)
    assert [*bare] == [Document(("the text",), 1), Document(("other",), 0)]
    (tmp_path / "s.jsonl").write_text('{"text": "One. Two."}')
    assert [*from_table(tmp_path / "s.jsonl", label=None)] == [Document(("One.", " Two."))]
    assert texts(from_table(tmp_path / "a.tsv", label=None)) == ['a, "b', "d"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "text,label\na,5 \nb,5\nc,\" \"\nd, 1\n"),
     ("a.tsv", "text\tlabel\na\t5 \nb\t5\nc\t \nd\t 1\n"),
     ("a.jsonl", '{"text":"a","label":"5 "}\n{"text":"b","label":5}\n{"text":"c","label":" "}\n'
                 '{"text":"d","label":" 1"}\n')],
)  # fmt: skip
def test_white_space_around_a_label_makes_no_class(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    table = from_table(tmp_path / name)
    assert table.classes == ("1", "5")
    assert [row.label for row in table] == [1, 1, None, 0]


def test_lists_with_labels():
    class Sample:
        text = "One. Two."

    assert next(iter(from_documents([Sample()]))).parts == ("One.", " Two.")
    labelled = from_documents(["good. very", "bad"], ["yes", "no"])
    assert labelled.classes == ("no", "yes")
    assert [*labelled] == [Document(("good. very",), 1), Document(("bad",), 0)]
    assert from_documents(["a", "b"], [10, 2]).classes == ("2", "10"), "in the order of numbers"
    assert from_documents(["a"] * 3, [2.0, 10.0, 1.5]).classes == ("1.5", "2.0", "10.0")
    of_a_tensor = from_documents(["a"] * 12, torch.arange(12))
    assert [one.label for one in of_a_tensor] == list(range(12))
    assert from_documents(["a", "b"], torch.tensor([1.0, torch.nan])).classes == ("1.0",)
    cut = list(from_documents(["One. Two.", "One."]))
    assert cut[0].parts == ("One.", " Two.")
    whole = [Document(("One. Two.",), 0), Document(("One.",), 1)]
    assert [*from_documents(cut, ["a", "b"])] == whole, "sentences are no pair"
    pairs = [Document(("is it red", "it is blue")), Document(("One.", " Two."), 7)]
    kept = [Document(pair.parts, n) for n, pair in enumerate(pairs)]
    assert [*from_documents(pairs, ["no", "yes"])] == kept
    three = from_documents([Document(("One.", "Two.", "Three."))], ["a"])
    assert [*three] == [Document(("One.Two.Three.",), 0)]
    with pytest.raises(ValueError, match="1 documents have 2 labels"):
        from_documents(["a"], [1, 2])
    with pytest.raises(TypeError, match="the documents are 'abc': give a list of them"):
        from_documents("abc")
    with pytest.raises(TypeError, match="the labels are 'xy': give a list of them"):
        from_documents(["a", "b"], "xy")
    with pytest.raises(TypeError, match="a document is a int"):
        from_documents([3])


def test_the_hub(monkeypatch):
    datasets = pytest.importorskip("datasets")
    rows = {"sentence": ["good", "bad", "fine"], "b": ["x", "y", "z"], "label": [1, 0, 1]}
    data = datasets.Dataset.from_dict(rows)
    assert [*from_hub(data, "sentence", "label")][1] == Document(("bad",), 0)
    assert from_hub(data, "sentence", "label", "b").classes == ("0", "1")
    named = data.cast_column("label", datasets.ClassLabel(names=["neg", "pos"]))
    assert from_hub(named, "sentence", "label", "b").classes == ("neg", "pos")
    assert next(iter(from_hub(named, "sentence", "label", "b"))) == Document(("good", "x"), 1)
    assert from_hub(data, "b").fingerprint() != from_hub(data, "sentence").fingerprint()
    monkeypatch.setattr(datasets, "load_dataset", lambda name, config, split: {name: data}[name])
    assert texts(from_hub("a/b", "sentence")) == ["good", "bad", "fine"]
    with pytest.raises(ValueError, match=r"no column 'text'; there are 'sentence', 'b', 'label'"):
        from_hub(data)
    with pytest.raises(ValueError, match="have no label: name its column"):
        from_hub(data, "sentence", second="b")
    empty = datasets.Dataset.from_dict({"text": ["a", None]})
    with pytest.raises(ValueError, match="row 1: 'text' is null"):
        list(from_hub(empty))


def test_without_the_library_of_the_hub(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ImportError, match=r'pip install .*\[hub\]"'):
        from_hub("a/b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"bad\.txt is empty"),
        (b"fine\nna\xefve\n", r"bad\.txt, line 2, byte 3: this is not UTF-8"),
        (b"fine\n" + b"x" * 101, r"bad\.txt, line 2: more than 100 bytes without a line end"),
        (b"cut off \xc3", r"bad\.txt, line 1, byte 9: this is not UTF-8"),
    ],
)
def test_bad_files(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr(files, "LONGEST_LINE", 100)
    (tmp_path / "bad.txt").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(from_files(tmp_path / "*.txt"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le"])
@pytest.mark.parametrize("text", ["A cat sat.", "Кошка села.\nОна спит.\n", "猫\n"])
def test_a_text_in_utf_16_is_named(tmp_path, encoding, text):
    (tmp_path / "a.txt").write_bytes(text.encode(encoding))
    with pytest.raises(ValueError, match=r"a\.txt, line \d.*(looks like UTF-16|not UTF-8).*; save"):
        list(from_files(tmp_path / "a.txt"))


def test_a_stray_nul_byte_is_no_utf_16(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a cat\0 sat\n")
    assert texts(from_files(tmp_path / "a.txt")) == ["a cat\0 sat"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_end_as_on_any_computer(tmp_path, end, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 30)
    lines = ["text,label", "café,1", '"a, b",0', '"two', 'lines",1', ""] + ["c,0"] * 20
    (tmp_path / "t.csv").write_bytes(end.join(lines).encode())
    found = list(from_table(tmp_path / "t.csv"))
    assert [one.text for one in found] == ["café", "a, b", "two\nlines"] + ["c"] * 20
    (tmp_path / "t.txt").write_bytes(end.join(["a", "b", "", "c"]).encode())
    assert texts(from_files(tmp_path / "t.txt")) == ["a\nb", "c"]
    (tmp_path / "bad.txt").write_bytes(b"a" + end.encode() + b"b\xff" + end.encode())
    with pytest.raises(ValueError, match=r"bad\.txt, line 2, byte 2: this is not UTF-8"):
        list(from_files(tmp_path / "bad.txt"))


def test_labels_of_very_many_digits_are_words():
    """Python refuses to read a number of more than 4300 digits."""
    assert len(from_documents(["a", "b"], labels=["1" * 5000, "2"]).classes) == 2
    some = from_documents(["a", "b", "c", "d"], labels=["x", None, float("nan"), ""])
    assert some.classes == ("x",)
    assert [one.label for one in some] == [0, None, None, None]


@pytest.mark.parametrize("text", [".", "\n", " \n", ". ", "a", "?", " "])
def test_sentences_take_linear_time(text):
    start = time.perf_counter()
    parts = sentences(text * 200_000)
    assert time.perf_counter() - start < 5
    assert "".join(parts) == text * 200_000


def test_a_label_without_a_text_is_on_one_side():
    empty = Documents(lambda: iter([Document((), 1)] * 3))
    assert sorted(len(list(side)) for side in empty.split(0.5)) == [0, 3]


def test_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no file matches '.*none-\*\.txt'"):
        from_files(tmp_path / "none-*.txt")
    with pytest.raises(ValueError, match="is not a file: give a pattern such as"):
        from_files(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(ValueError, match="ends is 'page': choose blank line, line or file"):
        from_files(tmp_path / "a.txt", "page")
    with pytest.raises(ValueError, match="held_out is"):
        from_documents(["a"]).split(1.5)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "t.csv",
            "text,y\na,1\n",
            r"t\.csv, line 1: there is no column 'label'; there are 'text', 'y'",
        ),
        ("t.csv", "text,label\na,1\nb, c,1\n", r"t\.csv, line 3: 3 fields, the first row has 2"),
        ("t.csv", "text;label\na;1\n", r"no column 'text'; .*'; a \.csv has commas between"),
        ("t.csv", '"text";"label"\n', r"',' expected after '\"'; a \.csv has commas between"),
        ("t.tsv", "text,label\na,1\n", r"no column 'text'; .*'; a \.tsv has tabs between"),
        ("t.csv", "label\n1\n", r"there are 'label'$"),
        ("t.csv", 'text,label\n"a,1\n', r"t\.csv, line 2: unexpected end of data$"),
        ("t.tsv", "text\tlabel\na\n", r"t\.tsv, line 2: 1 fields, the first row has 2$"),
        ("t.jsonl", '{"text": "a"}', r"t\.jsonl, line 1: there is no column 'label'"),
        ("t.jsonl", '{"text": "a", "label": 1}\n{', r"t\.jsonl, line 2: this is not JSON"),
        ("t.jsonl", '{"text": null, "label": 1}', r"t\.jsonl, line 1: 'text' is null"),
        ("t.jsonl", '{"text": ["a", "b"], "label": 1}', "line 1: 'text' is a list; give one text"),
        ("t.jsonl", '{"text": "a", "label": {"b": 1}}', "line 1: 'label' is a dict; give one"),
        ("t.csv", "text,label,text\na,b,c\n", "two columns are called 'text'"),
        ("t.jsonl", "[" * 100_000, r"t\.jsonl, line 1: this is not JSON"),
        ("t.jsonl", '{"text": "\\ud800", "label": 1}', r"t\.jsonl, line 1: .* surrogate pair"),
        ("t.jsonl", "[1]", r"t\.jsonl, line 1: give an object"),
        ("t.xml", "<a>", r"t\.xml is not a table: give a \.csv, \.tsv, \.jsonl"),
        ("t.csv", "", r"t\.csv is empty"),
        ("t.csv", "text,label\na,\udcff\n", r"t\.csv, line 2, byte 3: this is not UTF-8"),
    ],
)
def test_bad_tables(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(ValueError, match=message):
        from_table(tmp_path / name)


def test_a_text_with_half_a_surrogate_pair_is_refused_when_it_is_held_out_or_not():
    documents = from_documents(["a \ud83d b", "c"])
    for side in documents.split(0.5):
        with pytest.raises(ValueError, match=r"'a \\ud83d b' holds half of a surrogate pair"):
            list(side)
