"""The lowest loss that any model can reach on given documents, for every way of training on text.

    next         p(word | all before)                           GPT, AWD-LSTM
    previous     p(word | all after)                            the other half of ELMo
    both         the two together                               ELMo
    cloze        p(word | all other words), one word hidden     one blank
    masked       p(hidden word | seen words), one by one        BERT
    permutation  p(hidden words | seen words), in any order     XLNet

With `reach` only so many words are known: a segment without memory.  With `channel` some of the
chosen words are replaced or kept, as in BERT's own training.

The mean is in nats per prediction. Its standard error (a ratio estimate) treats documents as
independent, which they are; the words of one document are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from labkit.checks import check_choice, check_seed, check_share, check_whole
from labkit.world.exact import STARTS, Language, Text
from labkit.world.hidden import Noisy, Request

OBJECTIVES = ("next", "previous", "both", "cloze", "masked", "permutation")
Channel = tuple[float, float, float]
BERT: Channel = (0.8, 0.1, 0.1)


@dataclass(frozen=True)
class Floor:
    """The mean in nats per prediction, its standard error, and the losses of every document."""

    mean: float
    standard_error: float
    losses: list[np.ndarray]

    @property
    def count(self) -> int:
        """How many predictions the mean is over."""
        return sum(map(len, self.losses))

    @property
    def total(self) -> float:
        """The sum in nats; divided by a number of tokens, the floor per token of any tokenizer."""
        return self.mean * self.count

    def __str__(self) -> str:
        return f"{self.mean:.4f} ± {self.standard_error:.4f} nats over {self.count:,} predictions"


def mean_of(losses: list[np.ndarray]) -> Floor:
    """The mean over all predictions, with its standard error over documents."""
    sums = np.array([loss.sum() for loss in losses])
    counts = np.array([len(loss) for loss in losses])
    mean = float(sums.sum() / counts.sum())
    documents = len(losses)
    spread = ((sums - mean * counts) ** 2).sum() * documents / max(documents - 1, 1)
    error = float(np.sqrt(spread) / counts.sum()) if documents > 1 else float("nan")
    return Floor(mean, error, losses)


def floor(
    language: Language,
    objective: str,
    documents: Sequence[Text],
    *,
    reach: int | None = None,
    rate: float = 0.15,
    channel: Channel = (1.0, 0.0, 0.0),
    seed: int = 0,
    start: str = "document",
) -> Floor:
    """The lowest mean loss on these documents; `rate` and `seed` choose what is hidden."""
    check_choice("objective", objective, *OBJECTIVES)
    check_choice("start", start, *STARTS)
    if objective != "masked" and tuple(channel) != (1.0, 0.0, 0.0):
        raise ValueError(f'the floor of "{objective}" takes no channel: only "masked" does')
    if not documents:
        raise ValueError("there are no documents: give at least one")
    texts = [language.numbers(document) for document in documents]
    if not all(map(len, texts)):
        raise ValueError("a document has no words: leave it out")
    if objective in ("next", "previous", "both"):
        sides = []
        if objective != "previous":
            sides.append(language.log_probabilities(texts, reach=reach, start=start))
        if objective != "next":
            sides.append(language.log_probabilities(texts, direction="backward", reach=reach))
        return _possible([-np.concatenate(logs) for logs in zip(*sides, strict=True)])
    if reach is not None and objective != "cloze":
        raise ValueError(
            f'the floor of "{objective}" takes no reach: give shorter texts with start="anywhere"'
        )
    if reach is not None:
        check_whole("reach", reach)
    chosen = choose(texts, rate, seed)
    if objective == "cloze":
        return _possible(cloze(language, texts, chosen, reach, start))
    if objective == "masked":
        return _possible(masked(language, texts, chosen, rate, channel, seed, start))
    joints = language.joints(list(zip(texts, chosen, strict=True)), start=start)
    # Only the sum of the losses is independent of the order of prediction, so it is spread evenly.
    pairs = zip(joints, chosen, strict=True)
    return _possible([np.full(len(h), -log / len(h)) for log, h in pairs])


def _possible(losses: list[np.ndarray]) -> Floor:
    """The mean of the losses; a document that is not of the language is refused."""
    for number, loss in enumerate(losses):
        if not np.isfinite(loss).all():
            raise ValueError(
                f"document {number} is not of this language, so it has no floor: leave it out, "
                "or check its sentences with is_sentence"
            )
    return mean_of(losses)


def choose(texts: list[np.ndarray], rate: float, seed: int) -> list[list[int]]:
    """Choose every word with the given chance (never the end mark; at least one a document)."""
    check_seed(seed)
    check_share("rate", rate)
    if not rate:
        raise ValueError("the rate is 0: it must be more than 0 and at most 1")
    random = np.random.default_rng([seed, 1])
    out = []
    for text in texts:
        draw = random.random(len(text)) + 2.0 * (text == 0)
        hidden = np.nonzero(draw < rate)[0]
        out.append(hidden.tolist() or [int(draw.argmin())])
    return out


def cloze(
    language: Language,
    texts: list[np.ndarray],
    chosen: list[list[int]],
    reach: int | None,
    start: str,
) -> list[np.ndarray]:
    """−log p(word | the words around it), for every chosen word alone."""
    losses: list[list[float]] = [[] for _ in texts]
    requests: dict[str, list] = {}
    for i, t in [(i, t) for i, hidden in enumerate(chosen) for t in hidden]:
        a = 0 if reach is None else max(0, t - reach)
        z = len(texts[i]) if reach is None else t + reach + 1
        begins = start if reach is None or t - reach <= 0 else "anywhere"
        requests.setdefault(begins, []).append((i, t, (texts[i][a:z], [t - a], {})))
    for begins, group in requests.items():
        distributions = language.distributions([request for _, _, request in group], begins)
        for (i, t, _), distribution in zip(group, distributions, strict=True):
            losses[i].append(-np.log(distribution[0, texts[i][t]]))
    return [np.array(loss) for loss in losses]


def masked(
    language: Language,
    texts: list[np.ndarray],
    chosen: list[list[int]],
    rate: float,
    channel: Channel,
    seed: int,
    start: str,
) -> list[np.ndarray]:
    """−log p(chosen word | what is shown), one by one.

    Of the chosen words a share is hidden, a share replaced by a random word, a share kept.  Which
    are replaced is not known to the model, so every word shown may be wrong: a word that is not
    asked for is itself, or was chosen and replaced (Devlin et al. 2019, section 3.1 and appendix
    A.1). It is the best possible only up to one simplification: the other asked words count as
    chosen, and all words that are not asked for as possibly replaced.  Random words are
    `replacements`: none that a document remembers, so that a remembered word is never wrong.
    """
    # No comparison with NaN is true.
    if len(channel) != 3 or not (min(channel) >= 0 and abs(sum(channel) - 1) <= 1e-9):
        raise ValueError(
            f"the channel is {channel}: the shares hidden, replaced and kept must add up to 1"
        )
    hide, replace, keep = channel
    random = np.random.default_rng([seed, 2])
    others = np.nonzero(language.replacements)[0]
    requests = []
    for text, positions in zip(texts, chosen, strict=True):
        noisy: Noisy = {}
        if replace:
            for t in range(len(text)):
                noisy[t] = (int(text[t]), 1 - rate + rate * keep, rate * replace / len(others))
        for t in positions:
            draw = random.random()
            noisy.pop(t, None)
            if draw >= hide:
                shown = int(random.choice(others)) if draw < hide + replace else int(text[t])
                noisy[t] = (shown, keep, replace / len(others))
        if text[-1] == 0:
            noisy.pop(len(text) - 1, None)
        requests.append(Request(text, positions, noisy))
    distributions = language.distributions(requests, start)
    return [
        -np.log(distribution[np.arange(len(positions)), text[positions]])
        for distribution, text, positions in zip(distributions, texts, chosen, strict=True)
    ]
