"""Training on text of one's own: a folder that is loaded like a shipped model, and a page."""

import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from classroom.cli import main
from classroom.demos import masking_demo, sampling_demo
from classroom.models.recipes import course_text
from classroom.models.shipped import card, trained
from classroom.tasks import own_text
from labkit.text.documents import from_documents

SENTENCE = "the old ship sails slowly over a grey sea and nobody on board knows where"


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of a few words, many times over."""
    random.seed(0)
    lines = [" ".join(random.choices(SENTENCE.split(), k=12)) + "." for _ in range(500)]
    path = tmp_path_factory.mktemp("book") / "book.txt"
    path.write_text("\n\n".join(lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["gpt", "bert"])
def test_your_text_becomes_a_model_and_a_page(
    kind: str, book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / kind
    words = ["--text", str(book.parent / "*.txt"), "--minutes", "0.02", "--output", str(folder)]
    assert main(["train", kind, *words]) == 0
    assert "page.html" in capsys.readouterr().out
    model, tokenizer = trained(folder)
    known = card(folder)
    assert known["held_out"] < 6.0  # log(400) = 5.99 for all pieces alike
    assert "--minutes 0.02" in known["command"]
    page = (folder / "page.html").read_text(encoding="utf-8")
    assert f"{known['held_out']:.3f}" in page
    assert "data:image/png;base64," in page
    assert page.count('<li dir="auto">') == {"gpt": 3, "bert": 5}[kind]
    if kind == "gpt":
        assert sampling_demo(model, tokenizer, "the old ship").shown.pieces
    else:
        assert masking_demo("the old ship sails", tokenizer, model=model).shown.pieces


def test_what_cannot_be_trained_on_is_said_in_one_line(
    book: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short.txt").write_text("too short\n\nfor anything")
    (tmp_path / "same.txt").write_text("the old ship sails over the sea.\n\n" * 2000)
    signs = list(map(chr, range(0xE01, 0xE2F)))  # WordPiece gives up after 100 letters
    thai = "\n\n".join("".join(random.Random(i).choices(signs, k=120)) for i in range(300))
    (tmp_path / "thai.txt").write_text(thai, encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes("für immer".encode("latin-1") * 9)
    here = str(tmp_path)
    for words, said in (
        (["gpt", "--text", f"{here}/none*.txt"], "no file matches"),
        (
            ["gpt", "--text", f"{here}/short.txt"],
            "too little text: 2 different documents, 21 characters",
        ),
        (["gpt", "--text", f"{here}/same.txt"], "1 different document, 64,000 characters to learn"),
        (["bert", "--text", f"{here}/latin.txt"], "this is not UTF-8"),
        (["bert", "--text", f"{here}/thai.txt"], "100% of the held-out words are unknown"),
        (["gptt", "--text", str(book)], "did you mean gpt?"),
        (["gpt", "--text", str(book), "--minutes", "0"], "give minutes"),
        (["gpt", "--text", str(book), "--checkpoints", here], "leave --checkpoints out"),
    ):
        with pytest.raises(SystemExit) as left:
            main(["train", *words])
        assert left.value.code == 2
        error = capsys.readouterr().err
        assert said in error
        assert error.count("\n") == 1
    with pytest.raises(ValueError, match=r"has no card\.json, which `labkit train` writes"):
        trained(tmp_path)


def test_a_text_that_would_be_learned_from_without_use_is_refused(tmp_path: Path) -> None:
    """In the notebooks, whose tokens are words."""
    only_held_out = "a document of 3 words"
    assert [*from_documents([only_held_out]).split(held_out=0.1)[1]]
    path = tmp_path / "text.txt"
    path.write_text(only_held_out)
    with pytest.raises(ValueError, match="too few different documents to hold one out"):
        course_text(path)
    signs = list(map(chr, range(0x4E00, 0x4E00 + 3000)))  # Chinese has no spaces
    spaced = "\n\n".join(" ".join(random.Random(i).choices(signs[:99], k=9)) for i in range(300))
    path.write_text(spaced.replace(" ", ""), encoding="utf-8")
    with pytest.raises(ValueError, match="100% of the held-out words are unknown"):
        course_text(path)
    path.write_text(spaced, encoding="utf-8")
    assert course_text(path).vocabulary == 99 + 5


def test_the_minutes_decide_the_steps(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known, held_out = own_text.documents_of(str(book))
    assert not set(known) & set(held_out)
    recipe = own_text.Recipe("x", steps=1, batch=2, length=16, width=32, layers=1, rate=1e-2)
    run = own_text.run_of("gpt", known, recipe)
    clock = iter(range(100))
    slow = SimpleNamespace(perf_counter=lambda: 2.0 * next(clock))
    monkeypatch.setattr(own_text, "time", slow)
    assert own_text.steps_in(run, 1.0, 1e-2) == 30  # two seconds each
    assert own_text.steps_in(run, 1e6, 1e-2) == own_text.MOST_PASSES * run.batches.steps
