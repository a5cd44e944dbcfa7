"""Masking, to play with: what a model sees of a text, what it must predict, who may attend to whom.

The objectives of the course themselves decide what is hidden, so what is shown here is what a
model is trained on.  Read `masking_view`, the pure function, and then `masking_demo`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from classroom.demos.base import Demo, choice, slider, text_box, whole_slider
from classroom.demos.guesses import Reference, asked_positions, guesses
from classroom.demos.pieces import Beside, Chip, Chips, Heading, Note, Piece, Problem
from classroom.demos.reading import (
    as_batch,
    asked_in,
    check_fits,
    cut_or_unknown,
    in_vocabulary,
    label,
    labels,
    longest_for,
    nothing_to_hide,
    ordinary_in,
    written,
)
from classroom.demos.recording import Options
from classroom.demos.rendering import View
from classroom.demos.squares import grid
from classroom.demos.statistics import DRAWS, answers_no, statistics
from labkit.chance import Chance
from labkit.checks import check_choice, check_share
from labkit.corpus import Batch, Pairs, from_documents, tokenize
from labkit.masking import before, causal, up_to
from labkit.models.xlnet import XLNet
from labkit.objectives import MaskedToken, NextToken, Objective, Permutation, Predicted, Targets
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

UNITS = {"masked tokens": "token", "whole words": "word", "spans": "span"}
PAIRS = {"next sentence": "next", "sentence order": "order"}
OBJECTIVES = ("next word", *UNITS, "permutation", *PAIRS)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """The settings: what is predicted, and how much is hidden."""

    objective: str = "masked tokens"
    rate: float = 0.15
    """The share of the words that is predicted."""
    mask: float = 0.8
    """Of these, the share that becomes [MASK]."""
    random: float = 0.1
    """The share that becomes a random word; the rest stays as it is."""
    draw: int = 0
    clicked: tuple[int, ...] = ()
    """Positions that somebody clicked: a word that was asked is shown, any other one is hidden."""

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, *OBJECTIVES)
        for name in ("rate", "mask", "random"):
            check_share(name, getattr(self, name))

    @property
    def shares(self) -> tuple[float, float, float]:
        """The three fates: [MASK], a random word, the word itself."""
        return self.mask, self.random, max(0.0, 1 - self.mask - self.random)


def objective_of(setting: Masking, tokenizer: Tokenizer) -> Objective:
    """The objective of the course that a setting names."""
    if setting.objective == "next word":
        return NextToken()
    if setting.objective == "permutation":
        return Permutation(vocabulary=tokenizer.vocabulary, share=setting.rate)
    return MaskedToken(
        vocabulary=tokenizer.vocabulary,
        rate=setting.rate,
        shares=setting.shares,
        unit=UNITS.get(setting.objective, "token"),  # type: ignore[arg-type]
    )


def pairs_of(
    text: str, others: Sequence[str], tokenizer: Tokenizer, setting: Masking, longest: int
) -> tuple[Pairs, int]:
    """Pairs of sentences, and how many of them begin in the text itself; the others follow."""
    documents = from_documents([written(text), *others])
    tokens = tokenize(documents, tokenizer, end=False)
    own = int(tokens.arrays.document_ends[0]) - 1
    if not own:
        raise ValueError(
            "a pair needs two sentences: end one with a full stop and write another one after it"
        )
    question: Any = PAIRS[setting.objective]
    return Pairs(tokens, batch=1, length=longest, question=question, fill=False), own


def batch_of(
    text: str, others: Sequence[str], tokenizer: Tokenizer, setting: Masking, longest: int
) -> Batch | None:
    """One row: the text, or two sentences of it; None if there is nothing to read."""
    if setting.objective not in PAIRS or not tokenizer.encode(written(text)):
        return as_batch(text, tokenizer, longest)
    pairs, own = pairs_of(text, others, tokenizer, setting, longest)
    return pairs.rows_of(torch.tensor([setting.draw % own]), chance_of(setting))


def chance_of(setting: Masking) -> Chance:
    """Each draw has its own numbers, and the same ones each time."""
    return Chance(0, setting.draw, torch.zeros(1, dtype=torch.long))


def masking_view(
    text: str,
    setting: Masking,
    tokenizer: Tokenizer,
    *,
    others: Sequence[str] = (),
    model: Any = None,
    world: World | None = None,
    start: str = "sentence",
) -> View:
    """What the model sees of a text, what it must predict, and who may attend to whom."""
    objective = objective_of(setting, tokenizer)
    check_fits(model, tokenizer)
    longest = longest_for(model)
    text, unknown = in_vocabulary(text, tokenizer)
    try:
        batch = batch_of(text, others, tokenizer, setting, longest)
    except ValueError as error:
        return View.of("masking", Problem(str(error)))
    if batch is None or not bool(ordinary_in(batch, tokenizer).any()):
        return View.of("masking", nothing_to_hide(unknown))
    targets = objective.targets(batch, chance_of(setting))
    if isinstance(objective, MaskedToken):
        targets = with_clicks(targets, batch, setting, tokenizer)
    shown = chips_of(batch, targets, setting, tokenizer)
    names = labels(tokenizer, batch.tokens[0].tolist())
    read_all = 0 if setting.objective in PAIRS else len(tokenizer.encode(written(text)))
    pieces: list[Piece] = [
        *cut_or_unknown(unknown, read_all, batch, tokenizer),
        Heading("What the model sees"),
        Chips(tuple(shown), "hide" if isinstance(objective, MaskedToken) else ""),
        Heading("What it must predict"),
        *answers(batch, targets, setting, tokenizer, shown),
    ]
    if model is not None and not answers_such(model, objective):
        pieces.append(Note("The model does not answer such a question.", "unasked"))
        model = None
    if model is not None or world is not None:
        reference = None if world is None else Reference(world, start)
        pieces.append(Heading("What is likely there"))
        pieces += guesses(batch, targets, objective, tokenizer, model, reference)
    masks = attention_masks(batch, targets, setting)
    pieces.append(Beside(tuple(grid(mask, names, title=title) for title, mask in masks.items())))
    pieces.append(Heading(f"Over {DRAWS:,} draws"))
    if setting.objective in PAIRS:
        pieces.append(statistics(objective, batch, tokenizer))
        pieces.append(answers_no(*pairs_of(text, others, tokenizer, setting, longest)))
    else:
        pieces.append(over_draws(text, replace(setting, draw=0, clicked=()), tokenizer, longest))
    return View.of("masking", *pieces)


def answers_such(model: Any, objective: Objective) -> bool:
    """Whether a model was made for the questions of an objective."""
    if isinstance(objective, Permutation):
        return isinstance(model.backbone, XLNet)
    return bool(model.backbone.causal == isinstance(objective, NextToken))


def with_clicks(targets: Targets, batch: Batch, setting: Masking, tokenizer: Tokenizer) -> Targets:
    """The targets after some positions were clicked: hidden words are shown, others hidden."""
    mask, words = tokenizer.vocabulary.mask, ordinary_in(batch, tokenizer)
    clicked = torch.zeros_like(words)
    clicked[0, [n for n in setting.clicked if n < words.shape[1]]] = True
    clicked &= words
    if mask is None or not bool(clicked.any()):
        return targets
    [name] = targets.predicted
    before = asked_in(targets)
    tokens = targets.inputs.tokens.where(~clicked, batch.tokens.where(before, mask))
    again = Predicted.where(before ^ clicked, batch.tokens)
    return Targets.of(replace(targets.inputs, tokens=tokens), {name: again})


@lru_cache(maxsize=64)
def over_draws(text: str, setting: Masking, tokenizer: Tokenizer, longest: int) -> Piece:
    """The statistics of a text, which hold still while the one that is shown is drawn again."""
    batch = as_batch(text, tokenizer, longest)
    assert batch is not None
    return statistics(objective_of(setting, tokenizer), batch, tokenizer)


def chips_of(batch: Batch, targets: Targets, setting: Masking, tokenizer: Tokenizer) -> list[Chip]:
    """The row as the model reads it, each token with what became of it."""
    asked = set(asked_positions(targets))
    real = ordinary_in(batch, tokenizer)[0].tolist()
    rank = None if targets.order is None else targets.order.rank[0].tolist()
    seen = batch.tokens[0].clone()
    seen[: targets.inputs.tokens.shape[1]] = targets.inputs.tokens[0]
    found = []
    for position, token in enumerate(seen.tolist()):
        kind, caption = "plain" if real[position] else "special", ""
        if position in asked:
            kind, caption = fate(token, int(batch.tokens[0, position]), setting, tokenizer)
        if rank is not None and rank[position] >= 0:
            caption = f"{rank[position] + 1}{' · predicted' if position in asked else ''}"
        if batch.segments is not None:
            caption = f"{'AB'[int(batch.segments[0, position])]}{' · ' if caption else ''}{caption}"
        found.append(Chip(label(tokenizer, token), kind, caption))
    return found


def fate(token: int, original: int, setting: Masking, tokenizer: Tokenizer) -> tuple[str, str]:
    """What became of a word that is predicted."""
    if setting.objective in ("next word", "permutation"):
        return "asked", "predicted"
    if token == tokenizer.vocabulary.mask:
        return "mask", "masked"
    return ("kept", "kept") if token == original else ("random", "random")


def answers(
    batch: Batch, targets: Targets, setting: Masking, tokenizer: Tokenizer, shown: list[Chip]
) -> list[Note]:
    """The words that are asked for, with their positions; for a pair, the answer as well."""
    tokens = labels(tokenizer, batch.tokens[0].tolist())
    positions = sorted(asked_positions(targets))
    told = "; ".join(f"{n}: {tokens[n]} ({shown[n].caption})" for n in positions)
    words = int(ordinary_in(batch, tokenizer).sum())
    said = f"{len(positions)} of {len(tokens)} tokens, of which {words} are words"
    lines = [Note(f"{said}. {told or 'None this time.'}", "answers")]
    if batch.labels is not None:
        yes = {
            "next": ("B follows A", "B is from elsewhere"),
            "order": ("A and B stand in their order", "A and B have changed places"),
        }[PAIRS[setting.objective]]
        lines.append(Note(f"The pair: {yes[int(batch.labels[0])]}.", "pair"))
    return lines


def attention_masks(batch: Batch, targets: Targets, setting: Masking) -> dict[str, Tensor]:
    """The masks of one layer, each with its name."""
    length = batch.tokens.shape[1]
    if setting.objective == "next word":
        return {"Who may attend to whom": causal(length)}
    if targets.order is not None:
        rank = targets.order.rank
        return {"Content stream": up_to(rank)[0, 0], "Query stream": before(rank)[0, 0]}
    return {"Who may attend to whom": torch.ones(length, length, dtype=torch.bool)}


# ---- the widget --------------------------------------------------------------------------------


class Masker(Demo):
    """A page can play the demo itself where a model is asked about hidden words."""

    texts: Sequence[str] = ()

    def recorded(self) -> dict[str, Any]:
        """The state, for a page that computes; or else the views of some states."""
        if not self.texts or self.values["objective"] != "masked tokens":
            return super().recorded()
        names = ("text", "rate", "mask", "random", "draw")
        values = {name: self.values[name] for name in names}
        return {"name": self.name, "play": values, "texts": list(self.texts)}


def masking_demo(
    text: str | None = None,
    tokenizer: Tokenizer | None = None,
    *,
    texts: Sequence[str] = (),
    model: Any = None,
    world: World | None = None,
    start: str = "sentence",
    setting: Masking | None = None,
) -> Demo:
    """Hide words of a text, of yours or of the corpus `texts`, as each objective does.

    Without a tokenizer, one of words is trained on the texts.  A trained `model` shows its guesses;
    a `world` shows the language's exact probabilities, with a model or alone.
    """
    known = list(dict.fromkeys(one for one in [text or "", *texts] if one.strip()))
    if not known:
        raise ValueError("there is no text: give text='a sentence.' or texts=[…] of a corpus")
    tokenizer = Tokenizer.words(known) if tokenizer is None else tokenizer
    setting = setting or Masking()
    clicked: list[int] = []
    demo: Demo

    def draw(text: str, **values: Any) -> View:
        others = [one for one in known if one != text][:8]
        asked = Masking(**values, clicked=tuple(clicked))
        return masking_view(
            text, asked, tokenizer, others=others, model=model, world=world, start=start
        )

    def click(position: int) -> None:
        # A second click takes the first one back.
        clicked.remove(position) if position in clicked else clicked.append(position)
        demo.refresh()

    def another() -> None:
        here = known.index(demo.values["text"]) if demo.values["text"] in known else -1
        demo.change(text=known[(here + 1) % len(known)])

    buttons = {"draw again": lambda: demo.change(draw=(demo.values["draw"] + 1) % 10_001)}
    if len(known) > 1:
        buttons["another text"] = another
    controls = controls_of(known[0], setting)
    # Clicks belong to one draw of one text.
    for name in ("text", "objective", "draw", "rate", "mask", "random"):
        controls[name].observe(lambda _: clicked.clear(), names="value")
    kept: Options = {
        "rate": sorted({0.0, 0.15, 0.5, setting.rate}),
        "mask": [setting.mask],
        "random": [setting.random],
        "draw": sorted({0, 1, 2, setting.draw}),
    }
    demo = Masker("masking", draw, controls, buttons, act=click, forget=clicked.clear, kept=kept)
    demo.texts = known if model is not None and world is not None else []
    return demo


def controls_of(text: str, setting: Masking) -> dict[str, Any]:
    """One control for each part of the state."""
    mask = slider("of these, [MASK]", setting.mask, 0.0, 1.0, 0.05)
    random = slider("of these, random", setting.random, 0.0, 1.0, 0.05)
    give_way(mask, random)
    return {
        "text": text_box("text", text),
        "objective": choice("objective", OBJECTIVES, setting.objective),
        "rate": slider("share predicted", setting.rate, 0.0, 1.0, 0.05),
        "mask": mask,
        "random": random,
        "draw": whole_slider("draw", setting.draw, 0, 10_000),
    }


def give_way(mask: Any, random: Any) -> None:
    """What becomes [MASK] cannot become a random word too: one slider pushes the other."""

    def push(moved: Any, other: Any) -> None:
        other.value = min(other.value, round(1 - moved.value, 2))

    mask.observe(lambda _: push(mask, random), names="value")
    random.observe(lambda _: push(random, mask), names="value")
