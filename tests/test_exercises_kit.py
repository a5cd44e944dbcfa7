"""Exercises that are functions: what a check says; it never hangs and gives nothing away."""

import contextlib
import importlib
import inspect
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import solutions_transformer
import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.cli.notebooks import every_notebook
from classroom.exercises import NotYet, check, students, students_version
from classroom.exercises.checking import (
    NOTEBOOKS,
    TRIALS,
    Function,
    Number,
    exercise,
    hashed,
    judge,
    lent,
    sealed,
)
from classroom.exercises.checking import exercises as exercises_of
from classroom.exercises.labs import page
from classroom.exercises.limits import OutOfTime, limited
from classroom.exercises.verdicts import Verdict

ROOT = Path(__file__).resolve().parent.parent
ALL = {name: one for number in NOTEBOOKS for name, one in exercises_of(number).items()}
FUNCTIONS = {name: one for name, one in ALL.items() if isinstance(one, Function)}
NUMBERS = {name: one for name, one in ALL.items() if isinstance(one, Number)}
MISTAKES = [
    pytest.param(name, says, wrong, id=f"{name}-{number}")
    for name, one in FUNCTIONS.items()
    for number, (says, wrong) in enumerate(one.mistakes)
]


def gives_a_list(one: Function) -> bool:
    return isinstance(one.fallback(*one.inputs(torch.Generator().manual_seed(0))), list)


def test_every_exercise_knows_at_least_three_mistakes() -> None:
    for name, one in ALL.items():
        assert len(one.mistakes) >= 3, name
        assert one.learned, name
    assert len(FUNCTIONS) >= 4


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_argument_has_one_value_in_all_trials(name: str) -> None:
    asked = FUNCTIONS[name]
    trials = [asked.inputs(torch.Generator().manual_seed(number)) for number in range(TRIALS)]
    arguments = inspect.signature(asked.fallback).parameters
    for argument, values in zip(arguments, zip(*trials, strict=True), strict=True):
        # An answer that takes the notebook's own value instead would be called right.
        assert len(set(map(repr, values))) > 1, argument


@pytest.mark.parametrize(("name", "says", "wrong"), MISTAKES)
def test_a_known_mistake_is_named(name: str, says: str, wrong: Callable[..., Any]) -> None:
    verdict = judge(exercise(name), wrong)
    assert not verdict.right
    assert verdict.why == says


# Each exercise in two ways that are not the course's own.


def parameters_by_parts(vocabulary: int, context: int, width: int, layers: int) -> int:
    attention = 3 * width * width + 3 * width + width * width + width
    mlp = width * 4 * width + 4 * width + 4 * width * width + width
    return (vocabulary + context) * width + layers * (attention + mlp + 4 * width) + 2 * width


def parameters_of_a_model(vocabulary: int, context: int, width: int, layers: int) -> int:
    from labkit.models.gpt import GPT, GPTConfig

    with torch.device("meta"):  # with one layer: all others are as large
        model = GPT(GPTConfig(vocabulary, width, layers=1, heads=1, context=context))
    whole, block = (
        sum(weight.numel() for weight in part.parameters()) for part in (model, model.blocks[0])
    )
    return whole + (layers - 1) * block


def loss_by_gathering(logits: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
    log_p = logits.log_softmax(dim=-1)[:, :-1].gather(2, tokens[:, 1:, None])[..., 0]
    return -(log_p * real[:, 1:]).sum() / real[:, 1:].sum()


def loss_by_ignoring(logits: Tensor, tokens: Tensor, real: Tensor) -> Tensor:
    targets = tokens[:, 1:].masked_fill(~real[:, 1:], -100)
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), targets.flatten())


def last_by_gathering(states: Tensor, real: Tensor) -> Tensor:
    last = (real.sum(dim=1) - 1)[:, None, None].expand(-1, 1, states.shape[-1])
    return states.gather(1, last)[:, 0]


def last_by_loops(states: Tensor, real: Tensor) -> Tensor:
    return torch.stack([row[own][-1] for row, own in zip(states, real, strict=True)])


def similarity_by_a_loop(first: list[str], second: list[str]) -> list[list[str]]:
    orders = ((first, second), (second, first))
    return [["<start>", *a, "$", *b, "<extract>"] for a, b in orders]


def similarity_by_adding(first: list[str], second: list[str]) -> list[list[str]]:
    def row(a: list[str], b: list[str]) -> list[str]:
        return ["<start>"] + a + ["$"] + b + ["<extract>"]  # noqa: RUF005

    return [row(first, second), row(second, first)]


def choice_by_viewing(scores: Tensor, answers: Tensor) -> Tensor:
    rows = scores.view(answers.numel(), scores.numel() // answers.numel())
    return (rows.logsumexp(dim=1) - rows[torch.arange(len(rows)), answers]).mean()


def choice_by_loops(scores: Tensor, answers: Tensor) -> Tensor:
    parts = scores.chunk(len(answers))
    losses = [-part.log_softmax(0)[k] for part, k in zip(parts, answers, strict=True)]
    return torch.stack(losses).mean()


SOLUTIONS = [
    importlib.import_module(path.stem) for path in Path(__file__).parent.glob("solutions_*")
]
"""A module for each notebook: two right answers to each exercise, and the wrong numbers."""
RIGHT: dict[str, tuple[Any, Any]] = {
    **{name: both for module in SOLUTIONS for name, both in getattr(module, "RIGHT", {}).items()},
    "05.parameters": (parameters_by_parts, parameters_of_a_model),
    "05.loss": (loss_by_gathering, loss_by_ignoring),
    "05.last": (last_by_gathering, last_by_loops),
    "05.similarity": (similarity_by_a_loop, similarity_by_adding),
    "05.choice": (choice_by_viewing, choice_by_loops),
    "05.factor": (2**6, torch.tensor(64.0)),
}
WRONG_NUMBERS = {
    **{k: v for module in SOLUTIONS for k, v in getattr(module, "WRONG_NUMBERS", {}).items()},
    "05.factor": (2**16, 2**24, 6, 2**5),
}


@pytest.mark.parametrize("name", ALL)
def test_every_exercise_is_solved_in_two_ways(name: str) -> None:
    one, other = RIGHT[name]
    for answer in (one, other):
        verdict = judge(exercise(name), answer)
        assert verdict.right, verdict


@pytest.mark.parametrize("name", NUMBERS)
def test_a_wrong_number_is_named_and_cannot_be_read(name: str) -> None:
    one, right = NUMBERS[name], sealed(float(RIGHT[name][0]))
    known = {
        hashed(f"{value:.0f}") if one.exact and sealed(value) == right else sealed(value): value
        for value in WRONG_NUMBERS[name]
    }
    assert set(one.mistakes) == set(known)
    for key, value in known.items():
        assert one.mistakes[key] in judge(one, value).why
    assert "is not right" in judge(one, 12345).why
    assert "a number is asked for" in judge(one, "many").why


def gap_of_a_square(joint: Tensor) -> Tensor:
    """The gap, by someone who takes the table for a square."""
    size = range(len(joint))
    rows, columns = joint.sum(dim=1), joint.sum(dim=0)
    terms = [
        joint[a, b] * (joint[a, b] / (rows[a] * columns[b])).log()
        for a in size
        for b in size
        if joint[a, b] > 0
    ]
    return torch.stack(terms).sum()


def attention_from_the_front(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[2] ** 0.5
    return scores.masked_fill(~mask, -torch.inf).softmax(2) @ v


def analogy_that_may_be_a(vectors: Tensor, a: int, b: int, c: int) -> int:
    similarity = vectors @ (vectors[b] - vectors[a] + vectors[c])
    similarity[[b, c]] = -torch.inf
    return int(similarity.argmax())


def triangle_of_a_tenth(step: int, steps: int) -> float:
    cut = steps / 10
    p = step / cut if step < cut else 1 - (step - cut) / (steps - cut)
    return (1 + p * 31) / 32


def pieces_two_at_most(word: str, vocabulary: set[str]) -> list[str]:
    ends = range(len(word), 0, -1)
    first = next((word[:end] for end in ends if word[:end] in vocabulary), None)
    if first is None or first == word:
        return ["[UNK]"] if first is None else [word]
    rest = f"##{word[len(first) :]}"
    if rest in vocabulary:
        return [first, rest]
    return ["[UNK]"]


def top_of_less_than_all(logits: Tensor, k: int) -> Tensor:
    return logits.masked_fill(logits <= logits.topk(k + 1).values[:, -1:], -torch.inf)


def nucleus_by_a_shift(logits: Tensor, p: float) -> Tensor:
    """The nucleus as many write it: with p = 1 a sum that is rounded up drops words."""
    best, order = logits.sort(dim=-1, descending=True)
    outside = (best.softmax(dim=-1).cumsum(dim=-1) > p).roll(1, dims=-1)
    outside[:, 0] = False
    return logits.masked_fill(outside.scatter(-1, order, outside), -torch.inf)


NEARLY: dict[str, Any] = {
    "01.analogy": analogy_that_may_be_a,
    "03.rates": lambda layers, rate: [round(rate / 2.6**k, 5) for k in range(layers)][::-1],
    "03.triangle": triangle_of_a_tenth,
    "04.attention": attention_from_the_front,
    "04.forced": lambda answers, begin: F.pad(answers[:, :-1], (1, 0), value=1),
    "06.greedy": lambda model, tokens, words: exercise("06.greedy").fallback(
        lambda read: model(read.flip(1)), tokens, words
    ),
    "06.nucleus": nucleus_by_a_shift,
    "06.top_k": top_of_less_than_all,
    "07.leave_one_out": lambda rewards: (
        (rewards - rewards.mean(dim=1, keepdim=True))
        * (rewards.shape[1] / (rewards.shape[1] - 1) if rewards.shape[1] > 2 else 1)
    ),
    "08.choose": lambda tokens, draws, special, rate: (draws < rate) & (tokens > 2),
    "08.pieces": pieces_two_at_most,
    "08.tables": (30_522 + 512 + 3) * 768,
    "11.gap": gap_of_a_square,
    "12.route": lambda scores, used: exercise("12.route").fallback(
        scores, min(used, scores.shape[1] - 1)
    ),
    "13.verdict": lambda low, high, bound: (
        "holds" if low > bound else "does not hold here" if high < bound else "not significant"
    ),
}
"""Answers that are wrong only on some of the inputs that the text allows."""


@pytest.mark.parametrize("name", NEARLY)
def test_an_answer_that_is_nearly_right_is_not_right(name: str) -> None:
    assert not judge(exercise(name), NEARLY[name]).right


@pytest.mark.parametrize("number", [-10.0, -15.0, -30.0])
def test_a_large_negative_number_is_no_mask(number: float) -> None:
    def filled(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return scores.masked_fill(~mask, number).softmax(dim=-1) @ v

    assert not judge(exercise("04.attention"), filled).right


def test_several_values_come_as_a_tuple_or_a_list_and_all_of_them() -> None:
    asked = FUNCTIONS["02.targets"]
    assert judge(asked, lambda *given: list(asked.fallback(*given))).right
    assert "returns 1 values, not 2" in judge(asked, lambda *given: asked.fallback(*given)[:1]).why
    halves = judge(asked, lambda *given: tuple(one.float() for one in asked.fallback(*given)))
    assert "torch.float32: give whole numbers (dtype=torch.long)" in halves.why


# ---- what a check says


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["arrays", "tensors"])
@pytest.mark.parametrize("name", [name for name, one in FUNCTIONS.items() if gives_a_list(one)])
def test_a_list_of_arrays_is_not_right_and_no_end(name: str, kind: Callable[..., Any]) -> None:
    one = FUNCTIONS[name]
    verdict = judge(one, lambda *given: [kind([1.0, 2.0]) for _ in one.fallback(*given)])
    assert not verdict.right
    assert verdict.why


def test_a_tensor_of_another_kind_is_named() -> None:
    one = Function("double", lambda x: 2 * x, lambda rng: (torch.rand(3, generator=rng),), [])
    assert judge(one, lambda x: x + x).right
    assert judge(one, lambda x: (x + x).to(torch.complex64)).why.endswith("give real numbers")
    assert "give a dense one" in judge(one, lambda x: (x + x).to_sparse()).why


def test_a_missing_answer_is_asked_for_and_the_notebook_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def last_state(states: Tensor, real: Tensor) -> Any: ...

    def with_a_comment(states: Tensor, real: Tensor) -> Any: ...  # your turn

    for answer in (..., None, last_state, with_a_comment):
        used = check("05.last", answer)
        assert used is lent("05.last")
    assert capsys.readouterr().out.count("Not yet: write the function above") == 4
    assert check("05.last", last_by_loops) is last_by_loops
    assert capsys.readouterr().out.startswith("Right")


def test_the_version_that_stands_in_for_a_wrong_answer_is_no_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A cell that checks a name, run twice."""
    used: Any = check("05.last", lambda states, real: states[:, 0])
    assert check("05.last", used) is used
    said = capsys.readouterr().out
    assert "Right" not in said
    assert "Not yet: this is the course's own version" in said


def test_the_courses_version_in_another_function_is_no_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lent_last: Any = check("05.last", lambda states, real: states[:, 0])
    check("05.last", lambda states, real: lent_last(states, real))
    said = capsys.readouterr().out
    assert "Right" not in said
    assert "it calls the course's own version: write it yourself" in said
    # It serves everywhere else: in later cells, and in the answers to other exercises.
    states, real = torch.randn(2, 3, 4), torch.ones(2, 3, dtype=torch.bool)
    assert torch.equal(lent_last(states, real), last_by_loops(states, real))
    mask: Any = check("04.mask", ...)
    check("05.last", lambda states, real: (mask(3), last_by_loops(states, real))[1])
    assert capsys.readouterr().out.splitlines()[-1].startswith("Right")


def test_a_function_that_returns_a_plain_value_is_an_answer() -> None:
    for answer in (lambda length: False, lambda length: 0, lambda length: 3):
        assert "write the function above" not in judge(exercise("04.mask"), answer).why


def test_a_difference_is_shown_on_the_smallest_input() -> None:
    def odd(length: int) -> Tensor:
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        mask[-1, 0] = length < 3
        return mask

    verdict = judge(exercise("04.mask"), odd)
    table = {row[0]: row[1] for row in verdict.rows}
    assert table["length"] == "1" or int(table["length"]) == 3
    assert table["expected"] != table["yours"]
    assert "smallest" in verdict.why


WRONG: dict[str, tuple[str, Any]] = {
    "a list was given": ("04.mask", [1, 2]),
    "returns None: is `return` missing": ("04.mask", lambda length: print(end="")),
    "give True and False": ("04.mask", lambda length: torch.ones(length, length).tril()),
    "returns a list, not a tensor": ("04.mask", lambda length: [[True]]),
    "no gradient can flow": ("05.loss", lambda x, t, r: loss_by_ignoring(x, t, r).detach()),
    "changes its input": ("05.loss", lambda x, t, r: (t.zero_(), loss_by_ignoring(x, t, r))[1]),
    "stops with ZeroDivisionError: division by zero": ("04.mask", lambda length: 1 / 0),
    "stops with SystemExit": ("04.mask", lambda length: exit()),
    "stops with RecursionError": ("04.mask", lambda length: (f := lambda g: g(g))(f)),
}


@pytest.mark.parametrize("says", WRONG)
def test_what_is_wrong_is_said_in_one_line(says: str) -> None:
    name, answer = WRONG[says]
    verdict = judge(exercise(name), answer)
    assert not verdict.right
    assert says in verdict.why
    assert "\n" not in verdict.why
    assert "Traceback" not in str(verdict)


def test_a_students_error_names_the_students_line() -> None:
    def broken(length: int) -> Tensor:
        return torch.ones(length).no_such_thing()

    assert "return torch.ones(length).no_such_thing()" in judge(exercise("04.mask"), broken).why


def endless(length: int) -> Tensor:
    while True:
        pass


def stubborn(length: int) -> Tensor:
    # It outlives the test, but not for long.
    begun = time.monotonic()
    while time.monotonic() - begun < 15:
        with contextlib.suppress(BaseException):
            time.sleep(0.001)
    return torch.zeros(length, length)


@pytest.mark.parametrize("answer", [endless, stubborn, lambda length: time.sleep(30)])
def test_an_endless_loop_is_reported(answer: Any) -> None:
    from dataclasses import replace

    asked = exercise("04.mask")
    assert isinstance(asked, Function)
    begun = time.monotonic()
    verdict = judge(replace(asked, seconds=0.3), answer)
    assert "does a loop never end?" in verdict.why
    assert time.monotonic() - begun < 10


def test_an_endless_loop_is_really_over() -> None:
    steps = []

    def run() -> None:
        while True:
            steps.append(1)

    assert isinstance(limited(run, 0.1).error, OutOfTime)
    before = len(steps)
    time.sleep(0.1)
    assert len(steps) == before
    assert limited(lambda: 3, 1).value == 3


def test_where_it_is_strict_a_wrong_answer_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_STRICT", "1")
    with pytest.raises(NotYet, match="write the function above"):
        check("04.mask", ...)
    check("04.mask", solutions_transformer.mask_by_loops)


def test_what_a_student_wrote_is_escaped() -> None:
    page = Verdict(False, "<script>", [("yours", "<img src=x>")]).html
    assert "<script>" not in page
    assert "<img" not in page


def test_an_unknown_exercise_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"no exercise '05.nothing': choose 05\.parameters"):
        check("05.nothing", 1)


# ---- the page for lecturers


def test_the_page_for_lecturers_is_the_one_that_the_exercises_give() -> None:
    assert (ROOT / "docs" / "labs.md").read_text(encoding="utf-8") == page()


# ---- nothing is given away


def cells_of(notebook: Path) -> list[dict[str, Any]]:
    return list(json.loads(notebook.read_text(encoding="utf-8"))["cells"])


@pytest.mark.parametrize("path", every_notebook(), ids=lambda path: path.stem)
def test_the_students_version_gives_nothing_away(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    if f'check(\\"{path.stem[:2]}.' not in path.read_text(encoding="utf-8"):
        pytest.skip("its exercises have the older form")
    theirs = json.dumps(students_version(notebook), ensure_ascii=False)
    whole = json.dumps(notebook, ensure_ascii=False)
    for source in re.findall(r"### BEGIN SOLUTION\n(.*?)### END", "\n".join(
        "".join(cell["source"]) for cell in cells_of(path)), re.DOTALL):  # fmt: skip
        for line in source.splitlines():
            if len(line.strip()) > 20:
                written = json.dumps(line.strip(), ensure_ascii=False)[1:-1]
                assert theirs.count(written) < whole.count(written), line
    for one in exercises_of(path.stem[:2]).values():
        says = one.mistakes.values() if isinstance(one, Number) else [s for s, _ in one.mistakes]
        for mistake in says:
            assert mistake not in theirs
    for name, numbers in WRONG_NUMBERS.items():
        if name.startswith(path.stem[:2]):
            assert RIGHT[name][0] not in numbers
    # Neither the number itself nor what was printed with it is left where it was worked out.
    for cell in students_version(notebook)["cells"]:
        source = "".join(cell["source"])
        for name in re.findall(r'check\("([\w.]+)"', source):
            assert cell["outputs"] == []
            if isinstance(exercise(name), Number):
                right = float(RIGHT[name][0])
                forms = [f"{right:.6g}"]
                if right == int(right):
                    forms += [f"{int(right)}", f"{int(right):,}", f"{int(right):_}"]
                # A small number may stand there for another reason.
                assert not [form for form in forms if len(form) > 3 and form in source]


def test_a_function_keeps_its_head_and_loses_its_body() -> None:
    source = (
        "def f(x):\n    ### BEGIN SOLUTION\n    y = x + 1\n    return y\n    ### END SOLUTION\n"
    )
    assert students.unsolved(source) == "def f(x):\n    ...  # your turn\n"
    begin, end = students.BEGIN, students.END
    kept = f'def f(x):\n    """Doc."""\n\n    {begin}\n    return x\n    {end}\nf(1)'
    assert students.unsolved(kept) == 'def f(x):\n    """Doc."""\n\n    ...  # your turn\nf(1)'
    method = f"class A:\n    def f(self):\n        {begin}\n        return 1\n        {end}\n"
    assert students.unsolved(method).endswith("def f(self):\n        ...  # your turn\n")
    timed = f"{begin}\n%time x = 1\n{end}\n"  # no Python
    assert students.unsolved(timed) == "...  # your turn\n"


def test_what_checks_an_answer_is_a_locked_cell_of_nbgraders() -> None:
    solved = f'{students.BEGIN}\nx = 1\n{students.END}\n\n\nx = check("05.factor", x)\nprint(x)'
    cell = {"cell_type": "code", "id": "a" * 64, "metadata": {"tags": ["exercise"]}, "outputs": [],
            "execution_count": 1, "source": solved}  # fmt: skip
    answer, check_cell = students_version({"cells": [cell], "metadata": {}})["cells"]
    assert answer["source"] == "x = ...  # your turn"
    assert "nbgrader" not in answer["metadata"]
    assert check_cell["source"] == 'x = check("05.factor", x)\nprint(x)'
    assert check_cell["id"] != answer["id"]
    assert len(check_cell["id"]) <= 64
    assert check_cell["metadata"]["tags"] == ["exercise"]
    graded = check_cell["metadata"]["nbgrader"]
    assert graded["grade_id"] == "05-factor"
    assert (graded["grade"], graded["locked"], graded["solution"]) == (True, True, False)
    assert graded["points"] == 1


@pytest.mark.parametrize("path", every_notebook(), ids=lambda path: path.stem)
def test_each_exercise_has_one_graded_cell(path: Path) -> None:
    theirs = students_version(json.loads(path.read_text(encoding="utf-8")))["cells"]
    graded = [cell["metadata"]["nbgrader"]["grade_id"] for cell in theirs
              if "nbgrader" in cell["metadata"]]  # fmt: skip
    assert len(set(graded)) == len(graded) >= 1
    assert len({cell["id"] for cell in theirs}) == len(theirs)
    assert not any(
        "### " in "".join(cell["source"]) for cell in theirs if cell["cell_type"] != "markdown"
    )


# ---- hints


@pytest.mark.parametrize("notebook", NOTEBOOKS)
def test_every_exercise_has_a_hint_that_can_be_unfolded(notebook: str) -> None:
    """Beside it in the notebook, or in what its check says while the answer is not right."""
    [path] = [path for path in every_notebook() if path.name.startswith(notebook)]
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for name in exercises_of(notebook):
        [at] = [i for i, cell in enumerate(cells) if f'check("{name}"' in "".join(cell["source"])]
        words = "".join(cells[at - 1]["source"])
        assert exercise(name).hint or re.search(r"<summary>[^<]*[Hh]int", words), name


def test_a_hint_is_folded_and_gives_nothing_away_in_plain_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check("12.cache", ...)
    hint = exercise("12.cache").hint
    assert hint
    assert hint not in capsys.readouterr().out
    verdict = Verdict(False, "write it", hint="a < b")
    assert "<details><summary>A hint</summary>a &lt; b</details>" in verdict.html
    assert "<details>" not in Verdict(True, "right").html


def test_a_number_without_end_is_only_wrong() -> None:
    assert not judge(next(iter(NUMBERS.values())), 10**400).right
