"""The minute: how well a student's file learns the course's language in a given time.

The file runs in a sandbox and gets the training text only. The held-out text stays with the judge:
it is shown one word at a time, and each word is predicted before it is shown. What comes back is
judged here: it has to be log probabilities that add up to 1, that do not change when later words
do, and that are no better than possible.
"""

import json
import math
import os
import re
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from classroom.grading.sandbox import MB, Child, Limits, Stopped, fingerprint, refusals
from labkit.keeping.files import read_text
from labkit.keeping.paths import PACKAGE, data_path
from labkit.world import World, load_world

if TYPE_CHECKING:
    from classroom.charts.style import Chart

ROW = 64
"""The number of words of a document that are predicted."""
GRACE = 5.0
"""Seconds by which training may exceed its time, since clocks and processors are not exact."""
TO_ANSWER = 300.0
"""The time limit for all predictions in seconds, where there is no time of a baseline."""
SLOWER = 2
"""The time limit for the predictions of a file, as a multiple of the baseline's time."""
LEAST_TO_ANSWER = 5.0
"""Seconds that predictions may always take: very short times vary by more than that factor."""
MEMORY = 4000 * MB
LARGEST = 10**6  # bytes of a file
ALIKE = 1e-3
"""The tolerance within which log probabilities count as the same."""
CERTAIN = 4.0
"""A loss this many standard errors below the lowest possible one is not luck."""
RECIPE = Path(__file__).with_name("recipe.py")
BASELINE = "nanoGPT's recipe"
STOPS = b"stops with "
"""The beginning of an answer that is an error of the file's function."""
OUT_OF_BOUNDS = ("labkit.world", "classroom")


@dataclass(frozen=True)
class Task:
    """A text to learn from, and what is held out."""

    world: World
    train: np.ndarray
    rows: np.ndarray
    """Held-out documents [N, ROW + 1]: 0, then the words, then 0 to the end of the row."""
    real: np.ndarray
    """True [N, ROW] where a word is predicted."""
    lowest: np.ndarray
    """-log p of each predicted word by the language itself [N, ROW]."""


@dataclass(frozen=True)
class Result:
    """How far above the lowest possible loss a file came, or why it was refused."""

    name: str
    refused: str = ""
    above: float = math.inf
    """Nats per word."""
    error: float = 0.0
    seconds: float = 0.0
    answering: float = 0.0
    """The seconds that all its predictions took."""


class CheatError(Exception):
    """Raised with the reason when the judge refuses a file."""


def draw(language: str, words: int, held_out: int, seed: int | None = None) -> Task:
    """Draw a task by a seed that nobody knows beforehand."""
    world = load_world(language)
    seed = int.from_bytes(os.urandom(4), "little") if seed is None else seed
    train = world.sample(words=words, seed=seed, split="train")
    texts = [text.numbers for text in world.sample(words=held_out, seed=seed, split="held_out")]
    rows = np.zeros((len(texts), ROW + 1), dtype=np.int64)
    real, lowest = np.zeros((len(texts), ROW), dtype=bool), np.zeros((len(texts), ROW))
    for i, (text, logs) in enumerate(zip(texts, world.log_probabilities(texts), strict=True)):
        end = min(len(text), ROW)
        rows[i, 1 : end + 1], real[i, :end], lowest[i, :end] = text[:end], True, -logs[:end]
    return Task(world, np.concatenate([text.numbers for text in train]), rows, real, lowest)


# ---- in the sandbox -----------------------------------------------------------------------------


def learn(
    pipe: Connection, enforced: Sequence[str], path: Path, size: int, seconds: float, threads: int
) -> None:
    """Run a file's `train`, then answer with log probabilities until the pipe closes."""
    import torch

    import labkit.models.gpt  # noqa: F401 - this slow import must not count

    torch.set_num_threads(threads)
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)]).step()
    for name in list(sys.modules):
        if name.startswith(OUT_OF_BOUNDS):
            del sys.modules[name]

    def received() -> torch.Tensor:
        return torch.from_numpy(np.frombuffer(pipe.recv_bytes(), dtype=np.int64).copy())

    clock = fingerprint([time])
    pipe.send_bytes(b'{"ready": 1}')
    tokens = received()
    try:
        defined = runpy.run_path(str(path))
        if "train" not in defined:
            raise NameError("it defines no train(...)")
        model = defined["train"](tokens, size, seconds)
        said: dict[str, object] = {"trained": 1, "clock": fingerprint([time]) == clock}
    except BaseException as error:
        said = {"error": f"{type(error).__name__}: {error}"[:500]}
    pipe.send_bytes(json.dumps(said | {"refusals": refusals()[:3]}).encode())
    while True:
        asked = received()
        position, rows = int(asked[0]), asked[1:].view(-1, ROW)
        try:
            with torch.no_grad():
                found = model(rows)[:, position].detach().to(torch.float32).contiguous()
            answer = found.numpy().tobytes()
        except Exception as error:
            answer = STOPS + f"{type(error).__name__}: {error}"[:500].encode(errors="replace")
        pipe.send_bytes(answer)


# ---- the judge ----------------------------------------------------------------------------------


def run(
    path: Path, task: Task, seconds: float, threads: int = 1, to_answer: float = TO_ANSWER
) -> Result:
    """Train what a file defines and judge it; its predictions may take `to_answer` seconds."""
    limits = Limits(
        seconds + GRACE + to_answer + 240, MEMORY,
        [data_path("village").parent, PACKAGE.parent / "notebooks"], OUT_OF_BOUNDS,
    )  # fmt: skip
    words = (Path(path.name), len(task.world.vocabulary), seconds, threads)
    try:
        source = read_text(path, LARGEST).encode()
    except (OSError, ValueError) as why:
        return Result(path.stem, refused=str(why))
    try:
        with Child(learn, *words, limits=limits, files={path.name: source}) as child:
            child.said(60)
            begun = time.monotonic()
            child.send(task.train.astype(np.int64).tobytes())
            _trained(child, seconds)
            trained = time.monotonic()
            losses = np.concatenate(list(_losses(child, task, to_answer)), axis=1)
            answering = time.monotonic() - trained
    except (CheatError, Stopped, OSError) as why:
        return Result(path.stem, refused=str(why))
    above, error = score(losses, task)
    if above < -CERTAIN * error:
        below = f"its loss is {-above:.3f} below the lowest possible one"
        return Result(path.stem, refused=f"{below}: it knew the held-out text")
    return Result(path.stem, "", above, error, trained - begun, answering)


def _trained(child: Child, seconds: float) -> None:
    """Wait until it has trained, for as long as it may."""
    try:
        told = child.said(seconds + GRACE)
    except Stopped as why:
        if "nothing came" in str(why):
            raise CheatError(f"it trained for more than {seconds:g} s") from None
        raise
    if reached := told.get("refusals"):
        first = reached[0] if isinstance(reached, list) else reached
        raise CheatError(f"it reaches for what is out of bounds: {first}")
    if told.get("error"):
        raise CheatError(f"it stops with {told['error']}")
    if not told.get("clock"):
        raise CheatError("it changes the clock")


def _losses(child: Child, task: Task, to_answer: float) -> Iterator[np.ndarray]:
    """-log p of the held-out words, [N, 1] for each position in turn.

    Each message has the words up to a position and random ones after it, so nothing is gained by
    looking ahead or by remembering earlier messages. The time for all answers is limited:
    otherwise a file could continue to train while it predicts.
    """
    rng = np.random.default_rng()
    deadline = time.monotonic() + to_answer
    twice = int(rng.integers(1, ROW - 1))
    for position in range(ROW):
        log_p = _asked(child, position, task, rng, deadline)
        if np.abs(np.logaddexp.reduce(log_p, axis=-1)).max() > ALIKE:
            raise CheatError("its probabilities do not add up to 1")
        if position == twice:
            again = _asked(child, position, task, rng, deadline)
            if np.abs(again - log_p).max() > ALIKE * 10:
                raise CheatError("it looks ahead: its predictions change when later words do")
        yield -np.take_along_axis(log_p, task.rows[:, position + 1, None], axis=-1)


def _asked(
    child: Child, position: int, task: Task, rng: np.random.Generator, deadline: float
) -> np.ndarray:
    """The log probabilities [N, V] of the next words; whatever comes back is only numbers."""
    rows, size = task.rows[:, :-1].copy(), len(task.world.vocabulary)
    behind = rows[:, position + 1 :]
    behind[:] = rng.integers(1, size, behind.shape)
    child.send(np.append(position, rows).astype(np.int64).tobytes())
    shape = (len(rows), size)
    left = deadline - time.monotonic()
    try:
        answer = child.receive(max(left, 0.1))
        if answer.startswith(STOPS):
            raise CheatError(f"predicting, it {answer[:600].decode(errors='replace')}")
        found = np.frombuffer(answer, dtype=np.float32)
    except Stopped as why:
        if "nothing came" in str(why):
            raise CheatError("its predictions take too long: train in train(...) only") from None
        raise
    except ValueError:
        found = np.empty(0, dtype=np.float32)
    if found.size != math.prod(shape) or np.isnan(found).any() or found.max() > ALIKE:
        raise CheatError(f"it has to return log probabilities of the shape {list(shape)}")
    # A probability of 0 costs much, not everything.
    return np.maximum(found.reshape(shape).astype(np.float64), -30.0)


def score(losses: np.ndarray, task: Task) -> tuple[float, float]:
    """The mean difference from the lowest possible loss, and its standard error over documents."""
    count = task.real.sum(axis=1)
    excess = ((losses - task.lowest) * task.real).sum(axis=1)
    mean = float(excess.sum() / count.sum())
    error = math.sqrt(float(((excess - mean * count) ** 2).sum())) / float(count.sum())
    return mean, error


# ---- a class ------------------------------------------------------------------------------------


def race(
    paths: Iterable[Path],
    task: Task,
    seconds: float,
    say: Callable[[str], None],
    threads: int,
    keep: Callable[[Sequence[Result]], None] = lambda results: None,
) -> list[Result]:
    """Run nanoGPT's recipe and then each file in turn; return the results, the best first.

    `keep` is called after each of them with the results so far.
    """
    baseline = replace(run(RECIPE, task, seconds, threads), name=BASELINE)
    known = max(LEAST_TO_ANSWER, SLOWER * baseline.answering)
    to_answer = TO_ANSWER if baseline.refused else known
    results = [baseline]
    keep(results)
    say(line(baseline))
    for path in paths:
        found = run(path, task, seconds, threads, to_answer)
        if found.name == BASELINE:  # a file with that name does not become the baseline
            found = replace(found, name=path.name)
        results = sorted([*results, found], key=lambda one: one.above)
        keep(results)
        say(line(found))
    return results


def line(result: Result) -> str:
    """A result in a line."""
    if result.refused:
        return f"{result.name:<24} refused: {result.refused}"
    return f"{result.name:<24} {result.above:.3f} ± {result.error:.3f} nats above the floor"


def table(results: Sequence[Result]) -> str:
    """The board as a table in Markdown."""
    baseline = next(one.above for one in results if one.name == BASELINE)
    rows = [
        "| | file | nats above the floor | against nanoGPT's recipe | |",
        "|---|---|---|---|---|",
    ]
    for place, one in enumerate(results, start=1):
        name = "".join(sign if sign.isalnum() or sign in " .-_'" else "_" for sign in one.name)
        said = re.sub(r"[|<>\[\]!`]", " ", " ".join(one.refused.split()))
        against = f"{one.above - baseline:+.3f}" if math.isfinite(baseline) else "–"
        cells = ("–", "–") if one.refused else (f"{one.above:.3f} ± {one.error:.3f}", against)
        rows.append(f"| {'' if one.refused else place} | {name} | {' | '.join(cells)} | {said} |")
    return "\n".join(rows) + "\n"


def picture(results: Sequence[Result]) -> "Chart":
    """The board as bars, the best at the top, nanoGPT's recipe in another colour."""
    from classroom.charts.style import INK, SERIES, chart

    shown = [one for one in reversed(results) if not one.refused]
    figure, axes = chart(7, 1.2 + 0.35 * len(shown), says="Nats above the floor: " + "; ".join(
        f"{one.name} {one.above:.3f}" for one in reversed(shown)))  # fmt: skip
    colours = [INK if one.name == BASELINE else SERIES[0] for one in shown]
    # A dollar sign would begin a formula.
    names = [one.name.replace("$", r"\$") for one in shown]
    axes.barh(names, [one.above for one in shown], xerr=[one.error for one in shown], color=colours)
    axes.set_xlabel("nats per word above the lowest possible loss")
    return figure
