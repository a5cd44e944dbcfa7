"""How many words back a reader must remember to predict each word as well as possible."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch

from classroom.charts.style import chart
from classroom.models.recipes import CourseText
from classroom.models.scaling_runs import word_losses
from labkit.blocks import LanguageModel

SPANS = (4, 16, 64)


class Reach(NamedTuple):
    """How well the best possible readers predict each word of some texts, one after another."""

    everything: np.ndarray
    """The log-probability of the word for a reader who remembers the whole text so far."""
    within: dict[int, np.ndarray]
    """The same for readers who remember only 4 or 16 words."""
    needed: np.ndarray
    """The smallest of `SPANS` that predicts as well as the whole text, within a tenth of a nat;
    the length of a text where none does."""


def reach_of_words(text: CourseText, length: int) -> Reach:
    """Compute the reach of the first words of each held-out document."""
    world, documents = text.language, [words[:length] for words in text.documents]
    *short, long = SPANS

    def log_p(reach: int | None) -> np.ndarray:
        return np.concatenate(world.log_probabilities(documents, reach=reach))

    with ThreadPoolExecutor() as pool:  # two thirds of the time on two cores
        everything, *found = pool.map(log_p, (None, *short))
    within = dict(zip(short, found, strict=True))
    needed = np.full(len(everything), length)
    for span in reversed(short):
        needed[abs(everything - within[span]) < 0.1] = span
    # Long windows are read only for the words that the short ones do not settle.
    ends = [(words, t) for words in documents for t in range(len(words))]
    left = np.nonzero(needed == length)[0]
    early = np.array([ends[i][1] <= long for i in left], bool)
    needed[left[early]] = long
    left = left[~early]
    windows = [ends[i][0][ends[i][1] - long : ends[i][1] + 1] for i in left]
    logs = world.log_probabilities(windows, start="anywhere")
    last = np.array([log[-1] for log in logs])
    needed[left[abs(everything[left] - last) < 0.1]] = long
    return Reach(everything, within, needed)


def losses_of_words(model: LanguageModel, text: CourseText, length: int) -> np.ndarray:
    """The loss of a model at each of the same words."""
    tests = text.tests(length, batch=8)
    return torch.cat([word_losses(model, one)[one.real[:, 1:]] for one in tests]).numpy()


def chart_by_reach(reach: Reach, losses: Mapping[str, np.ndarray]) -> Any:
    """The mean loss of each reader, for words of each reach."""
    needed, groups = reach.needed, np.unique(reach.needed)
    names = [f"up to {n}" if n in SPANS else "more" for n in groups]
    labels = [
        f"{name}\n{(needed == n).mean():.0%} of all words"
        for name, n in zip(names, groups, strict=True)
    ]
    means = {name: [loss[needed == n].mean() for n in groups] for name, loss in losses.items()}
    said = "; ".join(
        f"{name} {', '.join(f'{mean:.2f}' for mean in means[name])}, all words {loss.mean():.2f}"
        for name, loss in losses.items()
    )
    figure, axes = chart(says=f"Nats where one must remember {', '.join(names)} words: {said}.")
    for name, heights in means.items():
        axes.plot(labels, heights, label=name)
    axes.set(xlabel="how many words must be remembered", ylabel="nats per word", ylim=(0, None))
    axes.legend()
    return figure
