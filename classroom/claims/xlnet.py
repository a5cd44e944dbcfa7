"""What is claimed of XLNet: words that are hidden together say something about each other.

Measured in the small language of `data/journey`, which has names such as New York: a whole name is
hidden, and its words are predicted independently (BERT's objective) or one after the other
(XLNet's).  Both objectives train the same network, as in the ablation of the paper (Yang et al.
2019, section 3.4), so only the objective differs.  Read `name_losses`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.claims import journey
from classroom.claims.journey import journeys
from classroom.ledger import Measured, claim
from classroom.models.recipes import CourseText, plan, random_words, train_once, untrained_xlnet
from labkit.blocks import LanguageModel
from labkit.masking import before, up_to
from labkit.objectives import MaskedToken, Objective, Permutation

LENGTH = 32
"""Of a row: [CLS], thirty words, [SEP]."""


SIZES = {**journey.SIZES, "smoke": replace(journey.SIZES["smoke"], steps=300)}


# ---- names -------------------------------------------------------------------------------------


class Names(NamedTuple):
    """Windows of text with a name of two words in them, one for each document."""

    words: list[list[str]]
    place: int
    """Where the first word of the name stands in each window."""

    @property
    def hidden(self) -> list[int]:
        """The positions of both words."""
        return [self.place, self.place + 1]


def pairs(world: Any) -> set[tuple[str, str]]:
    """The names of cities that have two words."""
    fillers = world.grammar.lists["city"]
    found = [tuple(token.word for token in one.tokens) for one in fillers]
    return {(name[0], name[1]) for name in found if len(name) == 2}


def names(world: Any, documents: Iterable[Sequence[str]]) -> Names:
    """The first name of each document that has enough words around it."""
    length = LENGTH - 2
    known, place, found = pairs(world), length // 2, []
    for document in documents:
        words = list(document)
        for start in range(1, len(words) - length):
            if tuple(words[start + place : start + place + 2]) in known:
                found.append(words[start : start + length])
                break
    return Names(found, place)


def lowest(world: Any, what: Names) -> dict[str, list[float]]:
    """The lowest loss of a whole name, its words independently and one after the other: exact."""
    found: dict[str, list[float]] = {"one by one": [], "in order": []}
    for words in what.words:
        together = world.joint(words, what.hidden, start="anywhere")
        found["in order"].append(-together)
        gap = world.gap(words, what.hidden, start="anywhere")
        found["one by one"].append(gap - together)
    return found


def gaps_of_names(world: Any, documents: Iterable[Any]) -> list[float]:
    """What guessing both words of a name independently loses, for a name of each document."""
    found = lowest(world, names(world, [document.words for document in documents]))
    pairs = zip(found["one by one"], found["in order"], strict=True)
    return [alone - together for alone, together in pairs]


# ---- models ------------------------------------------------------------------------------------


def reader(text: CourseText, profile: str, seed: int, asked: Objective) -> LanguageModel:
    """A small XLNet that has read the text under an objective, XLNet's own or BERT's."""
    size = SIZES[profile]
    model = untrained_xlnet(text.vocabulary, size.width, seed=seed)
    batches = text.windows(size.batch, LENGTH, seed=seed, framed=True)
    # A norm after each sum bears, and with this little training needs, a higher rate.
    train_once(model, asked, batches, plan(size.steps, seed=seed, rate=2e-2))
    return model


def objectives(text: CourseText, rate: float = 0.15) -> dict[str, Objective]:
    """XLNet: the last sixth of a random order.  BERT: 15 % of the words, each for itself."""
    words = text.tokenizer.vocabulary
    return {
        "XLNet": Permutation(vocabulary=words),
        "BERT": MaskedToken(
            vocabulary=words, rate=rate, frequencies=random_words(text.world, text.tokenizer)
        ),
    }


@torch.no_grad()
def bert_losses(text: CourseText, model: LanguageModel, what: Names, order: bool) -> Tensor:
    """The loss of each word of each name [B, 2]; in order, the second word sees the first."""
    whole, first = text.framed(what.words), what.place + 1
    mask = text.tokenizer.vocabulary.mask
    assert mask is not None
    shown = whole.clone()
    shown[:, first : first + 2] = mask
    head: Any = model.head
    found = []
    for place in (first, first + 1):
        if order and place > first:
            shown[:, first] = whole[:, first]
        hidden = model.backbone(shown).hidden[:, place]
        found.append(head.losses_N(hidden, whole[:, place]))
    return torch.stack(found, dim=1)


@torch.no_grad()
def xlnet_losses(text: CourseText, model: LanguageModel, what: Names, order: bool) -> Tensor:
    """The same with two streams: the name comes last, and in order or both words at once."""
    whole, first = text.framed(what.words), what.place + 1
    rank = torch.full_like(whole, -1)
    rank[:, first], rank[:, first + 1] = 0, int(order)
    asked = torch.tensor([first, first + 1]).expand(len(whole), 2)
    masks = {"mask": up_to(rank), "query_mask": before(rank)}
    backbone: Any = model.backbone
    hidden = backbone.two_streams(whole, asked, **masks).query.hidden
    logits = model.head(hidden)
    return F.cross_entropy(logits.transpose(1, 2), whole[:, first : first + 2], reduction="none")


# ---- new-york ----------------------------------------------------------------------------------


def name_losses(profile: str, seed: int) -> Measured:
    """Whole names, hidden from both models: their words independently, and one after the other."""
    text = journeys(profile, seed)
    what = names(text.world, text.documents)
    floor = lowest(text.world, what)
    asks = {"BERT": bert_losses, "XLNet": xlnet_losses}
    arms = {f"possible, {how}": floor[how] for how in floor}
    best = {}
    for name, objective in objectives(text).items():
        model = reader(text, profile, seed, objective)
        for how in floor:
            arm = f"{name}, {how}"
            arms[arm] = asks[name](text, model, what, how == "in order").sum(dim=1).tolist()
            best[arm] = float(np.mean(floor[how]))
    note = f"{len(what.words)} names of two words, one of each document"
    return Measured(arms, best, note, shared=False)


NEW_YORK = claim("new-york", name_losses)
PERMUTATION = claim("permutation", name_losses)

CLAIMS = (NEW_YORK, PERMUTATION)
