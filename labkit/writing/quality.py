"""How good are the texts that a model writes? In a known language three numbers say it exactly.

* Sense: the share of the texts that are possible in the language.
* Likelihood: -log p of their words under the language, in nats a word; for texts of the language
  itself, this is the floor.
* Variety: the entropy of the distributions that the words were drawn from, in nats a word.  The
  language's own entropy is the floor again; a filter that keeps few words lowers it, and greedy
  writing has none.

Temperature and nucleus trade sense for variety (Holtzman et al. 2020, section 5).  `judge` takes
any texts, `judge_model` lets a model write some.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from labkit.checks import check_whole
from labkit.sampling import Sampling, steps
from labkit.text.tokenizers import Tokenizer
from labkit.world import END, World
from labkit.world.floors import Floor, mean_of

Words = Sequence[str]
NONE = Floor(float("nan"), float("nan"), [])


class Quality(NamedTuple):
    """How good some texts are, in a language whose probabilities are known."""

    texts: int
    possible: float
    """The share of texts that are possible in the language."""
    surprise: Floor
    """-log p(word) under the language, over the texts that are possible: nats a word."""
    distinct: float
    """The share of different texts."""
    entropy: Floor | None = None
    """Of the distribution that each word was drawn from; None where that is not known."""

    def __str__(self) -> str:
        entropy = "" if self.entropy is None else f", entropy {self.entropy.mean:.2f} nats a word"
        return (
            f"{self.possible:.0%} of {self.texts} texts possible, {self.surprise.mean:.2f} ± "
            f"{self.surprise.standard_error:.2f} nats a word, {self.distinct:.0%} distinct{entropy}"
        )


def judge(world: World, texts: Sequence[Words], *, prompt: Words = ()) -> Quality:
    """Judge texts that begin a document, or that continue a prompt that does.

    A text is possible when some document of the language begins with it.
    """
    if not texts or not all(len(text) for text in texts):
        raise ValueError("there is no text, or an empty one: give texts of at least one word")
    whole = world.log_probabilities([[*prompt, *text] for text in texts])
    if len(prompt) and not np.isfinite(whole[0][: len(prompt)]).all():
        raise ValueError(
            f"the language cannot say the prompt {' '.join(prompt)!r}: begin with words that can "
            "open a document, or leave the prompt out"
        )
    losses = [-log_p[len(prompt) :] for log_p in whole]
    possible = [loss for loss in losses if np.isfinite(loss).all()]
    return Quality(
        len(texts),
        len(possible) / len(texts),
        mean_of(possible) if possible else NONE,
        len({tuple(text) for text in texts}) / len(texts),
    )


def judge_model(
    model: Any,
    tokenizer: Tokenizer,
    world: World,
    settings: Sampling,
    *,
    prompt: Words = (),
    samples: int = 200,
    seed: int = 0,
) -> Quality:
    """Let a model write, and judge it: a text ends at its first full stop, or with its document.

    A text that has not ended within `settings.length` is not a sentence and counts as impossible.
    """
    check_whole("samples", samples, least=1)
    end, stop = tokenizer.vocabulary.sep, tokenizer.encode(".")
    if end is None or tokenizer.pieces(stop) != ["."]:
        raise ValueError(
            "the tokenizer has no word that ends a document, or none for a full stop: give one "
            "whose words are tokens, as `Tokenizer.words` makes them"
        )
    how = replace(settings, stop=(end, *stop))
    start = [end, *tokenizer.encode(" ".join(prompt))]
    texts, entropies = [], []
    for tokens, entropy in _written(model, [start] * samples, how, seed):
        words = [END if token == end else tokenizer.pieces([token])[0] for token in tokens]
        # The empty word, which no language has, makes a text without an end impossible.
        texts.append(words if tokens[-1] in how.stop else [*words, ""])
        entropies.append(np.array(entropy))
    return judge(world, texts, prompt=prompt)._replace(entropy=mean_of(entropies))


def _written(
    model: Any, prompts: Sequence[Sequence[int]], how: Sampling, seed: int
) -> list[tuple[list[int], list[float]]]:
    """What is written after each prompt, and the entropy of each word's distribution."""
    rows: list[tuple[list[int], list[float]]] = [([], []) for _ in prompts]
    for step in steps(model, prompts, how, seed=seed):
        share_BV = list(step.stages.values())[-1]
        entropy_B = -torch.special.xlogy(share_BV, share_BV).sum(dim=-1)
        drawn = zip(step.tokens_B.tolist(), entropy_B.tolist(), strict=True)
        for (tokens, entropies), (token, entropy) in zip(rows, drawn, strict=True):
            if not tokens or tokens[-1] not in how.stop:
                tokens.append(token)
                entropies.append(entropy)
        if all(tokens[-1] in how.stop for tokens, _ in rows):
            break
    return rows
