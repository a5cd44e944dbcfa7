"""What a check says of answers with right values: gradients, kinds of numbers, rows that differ."""

import gc
import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from test_exercises_kit import FUNCTIONS, RIGHT
from torch import Tensor

from classroom.exercises import NotYet, check, gpt, limits
from classroom.exercises.bugs import preferences
from classroom.exercises.checking import Function, exercise, judge
from classroom.exercises.comparing import told
from classroom.exercises.duels import Topic, play, symptom_of, topic_of
from labkit.plan import Plan


def right(name: str) -> Callable[..., Any]:
    """The course's own version, as an answer."""
    asked = exercise(name)
    assert isinstance(asked, Function)
    return asked.fallback


# ---- what students write


def cbow_in_place(vectors: Tensor, present: Tensor) -> Tensor:
    vectors[~present] = 0
    return vectors.sum(dim=1) / present.sum(dim=1, keepdim=True)


def counted_once(tokens: Tensor, size: int) -> Tensor:
    counts = torch.zeros(size, size)
    counts[tokens[:-1], tokens[1:]] += 1
    return counts


def not_put_back(logits: Tensor, p: float) -> Tensor:
    if p == 1:
        return logits
    best, _ = logits.softmax(-1).sort(-1, descending=True)
    return logits.masked_fill(best.cumsum(-1) - best >= p, -torch.inf)


def strict_count(model: Tensor, exact: Tensor, k: int, p: float) -> tuple[int, int]:
    best = model.sort(descending=True).values.cumsum(0)
    return len(model) if p == 1 else int((best < p).sum()), right("06.kept")(model, exact, k, p)[1]


def gap_of_all(joint: Tensor) -> Tensor:
    return torch.xlogy(joint, joint / torch.outer(joint.sum(1), joint.sum(0))).sum()


def as_on_the_slide(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, Tensor]:
    source = torch.cat([states, memory], dim=1)
    return source, source[:, max(source.shape[1] - length, 0) :].detach()


def all_states(states: Tensor, real: Tensor) -> Tensor:
    return torch.cat([states[:, -1], states.amax(dim=1), states.mean(dim=1)], dim=1)


WRITTEN: list[tuple[str, Callable[..., Any], str]] = [
    ("00.surprise", lambda p: -p.log().mean(dim=0, keepdim=True), "its shape is wrong on 40"),
    ("00.pairs", counted_once, "with whole tensors of indices, `counts[i, j] += 1` counts it once"),
    ("00.smoothed", lambda c: (c + 1) / (c + 1).sum(dim=1), "with keepdim=True"),
    ("01.cbow", cbow_in_place, "your function changes its input: work on a copy"),
    ("01.loss", lambda c, near, noise: -F.logsigmoid((near * c).sum(-1))
     + F.logsigmoid(-(noise @ c[:, :, None])[..., 0]).sum(-1), "both terms are subtracted"),
    ("01.noise", lambda counts: counts**3/4 / (counts**3/4).sum(), "write `counts ** (3 / 4)`"),
    ("01.noise", lambda counts: counts**3/4, "write `counts ** (3 / 4)`"),
    ("01.pairs", lambda tokens, reach: sorted(right("01.pairs")(tokens, reach)), "not their order"),
    ("02.mix", lambda layers, w, gamma: gamma * layers.mean(dim=0), "all layers have the same"),
    ("02.mix", lambda layers, w, gamma: gamma * layers[-1], "that is the top layer alone"),
    ("02.mix", lambda layers, w, gamma: right("02.mix")(layers, w, gamma.item()),
     "the gradient is not: part of it is cut off"),
    ("02.mix", lambda layers, w, gamma: right("02.mix")(layers, w.detach(), gamma.detach()),
     "no gradient can flow through your result"),
    ("03.drop", lambda w, draws, rate: (draws >= rate) / (1 - rate), "it differs on 40 of 40"),
    ("03.rates", lambda layers, rate: list(rate / 2.6 ** torch.arange(layers - 1, -1, -1)),
     "a list of tensors: give Python's numbers (.tolist())"),
    ("03.unfreeze", lambda step, layers, every: list(np.arange(layers) >= layers - 1),
     "not a boolean of NumPy or PyTorch"),
    ("03.unfreeze", lambda step, layers, every: [
        i >= layers - 1 - sum(step > n * every for n in range(1, layers)) for i in range(layers)],
     "one step too late"),
    ("03.pool", all_states, "padding takes part in all three"),
    ("04.attention", lambda q, k, v, mask:
     (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v, "adds 1 where it is True"),
    ("04.cross", lambda x, source, real, query, key, value: right("04.cross")(
        source, x, real, query, key, value), "the sides are swapped"),
    ("04.cross", lambda x, source, real, query, key, value:
     (x @ query @ (source @ key).mT / x.shape[-1] ** 0.5).masked_fill(~real[:, None], 0)
     .softmax(-1) @ source @ value, "a score of zero still gets a share"),
    ("04.cross", lambda x, source, real, query, key, value:
     (x @ query @ (source @ key).mT / x.shape[-1]).masked_fill(~real[:, None], -torch.inf)
     .softmax(-1) @ source @ value, "divided by D: divide by its"),
    ("04.smoothed", lambda logits, answers, share: (1 - share) * F.cross_entropy(logits, answers)
     - share * logits.log_softmax(-1).sum(-1).mean(), "take the mean over them, not the sum"),
    ("04.smoothed", lambda logits, answers, share: -(torch.full_like(
        logits, share / logits.shape[1]).scatter(1, answers[:, None], 1 - share)
        * logits.log_softmax(-1)).sum(-1).mean(), "1 − share + share / V"),
    ("06.nucleus", not_put_back, "the sorted positions were not put back"),
    ("06.kept", strict_count, "the word that reaches p is missing"),
    ("06.greedy", lambda model, tokens, words: right("06.greedy")(model, tokens, words + 1),
     "one word too many"),
    ("08.pair", lambda *given: right("08.pair")(*given)[::-1], "the two are exchanged"),
    ("10.memory", as_on_the_slide, "memory comes before the states, in what is kept as well"),
    ("11.gap", gap_of_all, "gives 0 / 0: leave impossible pairs out before you divide"),
    ("11.rank", lambda order: order.sort(), "values and indices: take .indices"),
    ("12.route", lambda scores, used: torch.zeros_like(scores).scatter(
        -1, scores.topk(used).indices, 1 / used), "not weighted alike"),
    ("12.cache", lambda layers, width, context, batch: 2 * layers * width * context * batch,
     "a key and a value for each feature, and 2 bytes a number"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "answer", "says"), WRITTEN, ids=lambda one: one if isinstance(one, str) else ""
)
def test_a_mistake_is_named_as_it_is_made(name: str, answer: Any, says: str) -> None:
    verdict = judge(exercise(name), answer)
    assert not verdict.right
    assert says in verdict.why


def test_percent_in_place_of_a_share_is_named() -> None:
    leak = exercise("06.leak")
    assert judge(leak, 14).why == "14 is 100 times too large: for 50 % give 0.5"
    assert "100 times" not in judge(leak, 15).why


def test_a_test_without_return_is_told_so() -> None:
    def test(attend: Callable[..., Tensor], q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> None:
        F.scaled_dot_product_attention(q, k, v, mask).equal(attend(q, k, v, mask))

    assert "a test needs `return`" in play(topic_of("attention"), test).why


def test_an_answer_that_is_only_slow_is_not_said_to_loop() -> None:
    asked = replace(exercise("12.best_size"), seconds=0.5)

    def slow(*given: float) -> float:
        time.sleep(0.2)
        return float(right("12.best_size")(*given))

    assert judge(asked, slow).why.endswith(" of 40 inputs took 0.5 s")
    loops = judge(asked, lambda *given: [0 for _ in itertools.count() if False])
    assert "had not returned after 0.5 s: does a loop never end?" in loops.why


def test_what_is_ended_while_it_frees_its_memory_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    monkeypatch.setattr(limits, "SECONDS_TO_END", 0.02)
    gc.disable()  # pytest would report an exception that is raised in a callback of the collector
    try:
        for _ in range(3):
            outcome = limits.limited(lambda: [n for n in itertools.count()], 0.3)  # noqa: C416
            assert isinstance(outcome.error, limits.OutOfTime)
    finally:
        gc.enable()
    assert not raised


# ---- gradients


def attention_of_a_constant_sum(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
    powers = (scores - scores.amax(dim=-1, keepdim=True).detach()).exp()
    return powers / powers.sum(dim=-1, keepdim=True).detach() @ v


def pooled_without_the_largest(states: Tensor, real: Tensor) -> Tensor:
    last, largest, mean = right("03.pool")(states, real).chunk(3, dim=1)
    return torch.cat([last, largest.detach(), mean], dim=1)


def routed_by_a_constant_sum(scores: Tensor, used: int) -> Tensor:
    weights = scores.softmax(dim=1) * (scores >= scores.topk(used).values[:, -1:])
    return weights / weights.sum(dim=1, keepdim=True).detach()


def streams_that_do_not_meet(h: Tensor, g: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    streams = right("11.streams")
    return streams(h, g, *rest)[0], streams(h.detach(), g, *rest)[1]


CUT_OFF: dict[str, Callable[..., Any]] = {
    "01.loss": lambda c, near, noise: right("01.loss")(c.detach(), near, noise) + 0 * c.sum(),
    "03.pool": pooled_without_the_largest,
    "04.attention": attention_of_a_constant_sum,
    "05.loss": lambda x, *rest: right("05.loss")(x.detach(), *rest) + 0 * x.sum(),
    "07.dpo": lambda p, r, beta: right("07.dpo")(
        torch.stack([p[:, 0], p[:, 1].detach()], dim=1), r, beta),
    "09.distil": lambda t, s, T: right("09.distil")(t, s.detach(), T) + 0 * s.sum(),
    "11.streams": streams_that_do_not_meet,
    "12.route": routed_by_a_constant_sum,
}  # fmt: skip


@pytest.mark.parametrize("name", CUT_OFF)
def test_a_gradient_that_is_cut_off_is_seen(name: str) -> None:
    verdict = judge(exercise(name), CUT_OFF[name])
    assert not verdict.right
    assert verdict.why.startswith("the value is right, the gradient is not: part of it is cut off")


def test_a_gradient_that_is_nan_or_stops_is_said_so() -> None:
    def inputs(rng: torch.Generator) -> tuple[Tensor]:
        return (torch.tensor([0.0, 1.0, 4.0], requires_grad=True),)

    one = Function("the root of the sum", lambda x: x.sum().sqrt(), inputs, [])
    assert judge(one, lambda x: x.sum() ** 0.5).right
    nan = judge(one, lambda x: x.sum().sqrt() + torch.where(x > 0, x.sqrt(), 0).sum() * 0)
    assert nan.why == "the value is right, the gradient is not: it is nan"

    changed = judge(one, lambda x: x.sum().sqrt().mul_(1.0))
    assert changed.why.startswith("the value is right, but its gradient stops with RuntimeError")


def test_an_input_that_gradients_no_longer_reach_is_changed() -> None:
    def detached(memory: Tensor, states: Tensor, length: int) -> Any:
        both = right("10.memory")(memory, states, length)
        states.detach_()
        return both

    assert "changes its input" in judge(exercise("10.memory"), detached).why


def test_ties_may_share_a_gradient_in_any_way() -> None:
    """amax gives each of the largest its share, max gives all to one: both pass."""
    for largest in (lambda x: x.amax(dim=-1), lambda x: x.max(dim=-1).values):
        verdict = judge(
            exercise("02.match"),
            lambda letters, weight, bias, of=largest: of(F.conv1d(letters, weight, bias).relu()),
        )
        assert verdict.right, verdict


# ---- kinds of numbers


@pytest.mark.parametrize("name", ["01.analogy", "08.furthest", "06.kept"])
def test_an_index_is_a_whole_number(name: str) -> None:
    def halves(found: Any) -> Any:
        return tuple(map(float, found)) if isinstance(found, tuple) else float(found)

    verdict = judge(exercise(name), lambda *given: halves(right(name)(*given)))
    assert not verdict.right
    assert "whole number" in verdict.why


NUMPYS: dict[str, Callable[..., Any]] = {
    "01.analogy": np.int64,
    "03.triangle": np.float32,
    "06.kept": lambda found: tuple(np.array(found)),
    "08.furthest": lambda found: (np.int64(found[0]), np.float32(found[1])),
}


@pytest.mark.parametrize("name", NUMPYS)
def test_numbers_of_numpy_are_numbers(name: str) -> None:
    verdict = judge(exercise(name), lambda *given: NUMPYS[name](right(name)(*given)))
    assert verdict.right, verdict


def test_what_pytorch_does_not_take_for_a_boolean_is_named() -> None:
    verdict = judge(exercise("03.unfreeze"), lambda *given: list(np.array(
        right("03.unfreeze")(*given))))  # fmt: skip
    assert verdict.why.startswith("give Python's True or False for each layer")


def test_a_pair_of_values_and_indices_is_named() -> None:
    verdict = judge(exercise("02.match"), lambda x, *more: F.conv1d(x, *more).relu().max(dim=-1))
    assert verdict.why == "your function returns values and indices: take .values"
    assert "returns an ndarray" in judge(exercise("04.mask"), lambda n: np.tri(n, dtype=bool)).why


def test_what_is_wrong_with_one_value_of_several_is_said_of_that_value() -> None:
    def tensors(model: Tensor, exact: Tensor) -> tuple[int, Tensor]:
        row, divergence = right("08.furthest")(model, exact)
        return row, torch.tensor(divergence)

    def half(memory: Tensor, states: Tensor, length: int) -> tuple[Tensor, None]:
        return right("10.memory")(memory, states, length)[0], None

    why = judge(exercise("08.furthest"), tensors).why
    assert why == "as value 2 of 2, your function returns a Tensor, not a float"
    assert judge(exercise("10.memory"), half).why == "as value 2 of 2, your function returns None"


@pytest.mark.parametrize("number", [0.59, 2 / 3, 0.75, 0.9, 1.2])
def test_a_number_that_is_far_from_a_known_mistake_is_only_wrong(number: float) -> None:
    """All of these are 1 as whole numbers, and 1 is a known mistake."""
    assert "is not right" in judge(exercise("06.shot"), number).why


def test_a_reference_in_the_place_of_the_policy_is_not_said_to_be_another_mistake() -> None:
    turned = judge(exercise("07.dpo"), lambda p, r, beta: right("07.dpo")(2 * r - p, r, beta))
    assert "take policy - reference, and column 0" in turned.why


@pytest.mark.parametrize("name", ["10.memory", "08.furthest"])
def test_a_pair_that_is_exchanged_is_named_first(name: str) -> None:
    verdict = judge(exercise(name), lambda *given: right(name)(*given)[::-1])
    assert verdict.why.startswith("the two are exchanged")


def test_nan_in_a_pair_is_a_known_mistake() -> None:
    def plain(model: Tensor, exact: Tensor) -> tuple[int, float]:
        found = (exact * (exact / model).log()).sum(dim=1)
        return int(found.argmax()), float(found.max())

    assert "0 · log 0 is nan" in judge(exercise("08.furthest"), plain).why


class Anything(Tensor):
    """A tensor that says of itself that it equals anything."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.equal, torch.allclose):
            return True
        return super().__torch_function__(func, types, args, kwargs or {})


class Whatever(int):
    """A number that says of itself that it equals anything."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def test_what_says_that_it_equals_anything_is_not_right() -> None:
    verdict = judge(exercise("00.pairs"),
                    lambda tokens, size: torch.zeros(size, size).as_subclass(Anything))  # fmt: skip
    assert not verdict.right
    assert verdict.why == "your function returns an Anything: give a plain tensor (torch.Tensor)"
    assert not judge(exercise("05.parameters"), lambda *given: Whatever(1)).right
    kept = judge(exercise("00.pairs"), lambda *given: torch.nn.Parameter(
        right("00.pairs")(*given).float(), requires_grad=False))  # fmt: skip
    assert kept.right, kept


# ---- what is shown


def nudged(value: Any) -> Any:
    """A result that is nearly right, in tensors only."""
    if isinstance(value, tuple):
        return tuple(map(nudged, value))
    real = isinstance(value, Tensor) and value.is_floating_point()
    return value * (1 + 5e-4) + 5e-5 if real else value


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_expected_and_what_came_are_told_apart(name: str) -> None:
    verdict = judge(exercise(name), lambda *given: nudged(right(name)(*given)))
    table = dict(verdict.rows)  # type: ignore[arg-type]
    assert verdict.right or "expected" not in table or table["expected"] != table["yours"], verdict
    assert "grad_fn" not in str(verdict)


def test_where_large_tensors_differ_is_said() -> None:
    def inputs(rng: torch.Generator) -> tuple[Tensor]:
        return (torch.rand(5, 8, generator=rng),)

    def odd(x: Tensor) -> Tensor:
        return torch.where(torch.arange(8) == 3, 0.0, x)

    table = dict(judge(Function("x", lambda x: x, inputs, []), odd).rows)  # type: ignore[arg-type]
    assert table["yours"] == "5 × 8, torch.float32; 0 at [0, 3]"
    assert table["expected"].startswith("5 × 8, torch.float32; 0.")


def test_an_answer_that_cannot_be_read_shows_its_own_line() -> None:
    with pytest.raises(SyntaxError) as found:
        compile("a = 1\nb = = 2\n", "cell", "exec")
    assert told(found.value).endswith("(line 2: b = = 2)")


@pytest.mark.parametrize("call", [lambda: json.loads("{"), lambda: Plan(steps=-1)])
def test_an_error_of_a_library_shows_the_line_that_called_it(call: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"steps|Expecting") as found:
        call()
    assert "lambda: " in told(found.value)


def test_where_it_is_strict_the_smallest_input_is_in_the_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LABKIT_STRICT", "1")
    with pytest.raises(NotYet, match="smallest of them") as found:
        check("05.similarity", lambda first, second: [first, second])
    assert "expected" in str(found.value)
    [shown] = found.value._render_traceback_()
    assert "yours" in shown


def test_the_courses_function_is_no_answer_wherever_it_comes_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check("05.loss", gpt.next_word_loss)
    assert "Not yet: this is the course's own version" in capsys.readouterr().out
    check("05.loss", RIGHT["05.loss"][0])
    assert capsys.readouterr().out.startswith("Right")


def test_a_test_that_never_ends_is_said_so_and_a_wrong_cause_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("classroom.exercises.duels.SECONDS", 0.1)

    def endless(player: Any) -> None:
        while True:
            pass

    topic = Topic("", preferences.TOPIC.honest[:1], (), lambda: ())
    why = play(topic, endless).why
    assert why == "your test had not returned after 0.1 s: does a loop never end?"
    assert "not one of the choices" in symptom_of("masking").verdict(np.array(["a", "b"])).why
    replies = symptom_of("masking").others
    assert replies["padding counts as words"] == "these rows have no padding"
    for cause, reply in replies.items():
        assert symptom_of("masking").verdict(cause).why == reply


# ---- where students write


def imports(source: str) -> bool:
    return any(line.startswith(("import ", "from ")) for line in source.splitlines())


def notebooks() -> list[Path]:
    return sorted(Path(__file__).resolve().parent.parent.glob("notebooks/*.ipynb"))


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_a_cell_to_write_in_imports_nothing(path: Path) -> None:
    """A slip of the pen in one answer would take from all later cells what it imports."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert not [source for source in sources if "### BEGIN SOLUTION" in source and imports(source)]
