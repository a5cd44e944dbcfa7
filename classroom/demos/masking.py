"""Masking, to play with: what a model sees of a text, what it must predict, who may look at whom.

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
from classroom.demos.drawing import Chip, View, beside, chips, heading, note, page, problem
from classroom.demos.guesses import guesses
from classroom.demos.reading import label, labels, longest_for, read, written
from classroom.demos.squares import grid
from classroom.demos.statistics import DRAWS, answers_no, statistics
from labkit.chance import Chance
from labkit.corpus import Batch, Pairs, from_documents, tokenize
from labkit.masking import before, causal, ordinary, up_to
from labkit.objectives import MaskedToken, NextToken, Objective, Permutation, Questions
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

UNITS = {"masked tokens": "token", "whole words": "word", "spans": "span"}
PAIRS = {"next sentence": "next", "sentence order": "order"}
OBJECTIVES = ("next word", *UNITS, "permutation", *PAIRS)


@dataclass(frozen=True, kw_only=True)
class Masking:
    """What is asked, and how much is hidden."""

    objective: str = "masked tokens"
    rate: float = 0.15
    """The share of the words that is predicted."""
    mask: float = 0.8
    """Of these, the share that becomes [MASK]."""
    random: float = 0.1
    """The share that becomes a random word; the rest stays as it is."""
    draw: int = 0

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
    if setting.objective not in OBJECTIVES:
        raise ValueError(
            f"the objective is {setting.objective!r}: choose one of {', '.join(OBJECTIVES)}"
        )
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
        return read(text, tokenizer, longest)
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
    """What the model sees of a text, what it must predict, and who may look at whom."""
    objective = objective_of(setting, tokenizer)
    longest = longest_for(model)
    try:
        batch = batch_of(text, others, tokenizer, setting, longest)
    except ValueError as error:
        return page("masking", problem(str(error)))
    if batch is None or not bool(ordinary(batch.tokens, batch.real, tokenizer.vocabulary).any()):
        return page("masking", problem("There is nothing to hide: write some words."))
    questions = objective.ask(batch, chance_of(setting))
    shown = chips_of(batch, questions, setting, tokenizer)
    pieces = [
        heading("What the model sees"),
        chips(shown),
        heading("What it must predict"),
        answers(batch, questions, setting, tokenizer, shown),
        beside(*(grid(mask, labels(tokenizer, batch.tokens[0].tolist()), title=title)
                 for title, mask in looks(batch, questions, setting).items())),
    ]  # fmt: skip
    read_all = len(tokenizer.encode(written(text)))
    if setting.objective not in PAIRS and read_all > longest:
        said = f"The text has {read_all:,} tokens; shown are the first {batch.tokens.shape[1]}."
        pieces.insert(0, note(said, "cut"))
    pieces.append(heading(f"Over {DRAWS:,} draws"))
    if setting.objective in PAIRS:
        pieces.append(statistics(objective, batch, tokenizer))
        pieces.append(answers_no(*pairs_of(text, others, tokenizer, setting, longest)))
    else:
        pieces.append(over_draws(text, replace(setting, draw=0), tokenizer, longest))
    if model is not None:
        pieces.append(heading("What the model guesses, and what is exact"))
        pieces.append(guesses(batch, questions, objective, tokenizer, model, world, start))
    return page("masking", *pieces)


@lru_cache(maxsize=64)
def over_draws(text: str, setting: Masking, tokenizer: Tokenizer, longest: int) -> View:
    """The statistics of a text, which hold still while the one that is shown is drawn again."""
    batch = read(text, tokenizer, longest)
    assert batch is not None
    return statistics(objective_of(setting, tokenizer), batch, tokenizer)


def chips_of(
    batch: Batch, questions: Questions, setting: Masking, tokenizer: Tokenizer
) -> list[Chip]:
    """The row as the model reads it, each token with what became of it."""
    asked = set(predicted(batch, questions))
    real = ordinary(batch.tokens, batch.real, tokenizer.vocabulary)[0].tolist()
    rank = None if questions.order is None else questions.order.rank[0].tolist()
    seen = batch.tokens[0].clone()
    seen[: questions.seen.tokens.shape[1]] = questions.seen.tokens[0]
    found = []
    for place, token in enumerate(seen.tolist()):
        kind, caption = "plain" if real[place] else "special", ""
        if place in asked:
            kind, caption = fate(token, int(batch.tokens[0, place]), setting, tokenizer)
        if rank is not None and rank[place] >= 0:
            caption = f"{rank[place] + 1}{' · asked' if place in asked else ''}"
        if batch.segments is not None:
            caption = f"{'AB'[int(batch.segments[0, place])]}{' · ' if caption else ''}{caption}"
        found.append(Chip(label(tokenizer, token), kind, caption))
    return found


def fate(token: int, original: int, setting: Masking, tokenizer: Tokenizer) -> tuple[str, str]:
    """What became of a word that is predicted."""
    if setting.objective in ("next word", "permutation"):
        return "asked", "asked"
    if token == tokenizer.vocabulary.mask:
        return "mask", "masked"
    return ("kept", "kept") if token == original else ("random", "random")


def predicted(batch: Batch, questions: Questions) -> list[int]:
    """The places of the row that are asked for, in their order."""
    [asked] = questions.asked.values()
    places_N = asked.places_N
    if questions.places is not None:
        places_N = questions.places[0, places_N]
    # A language model is asked at one word for the next one.
    return sorted((places_N + (1 if questions.left else 0)).tolist())


def answers(
    batch: Batch, questions: Questions, setting: Masking, tokenizer: Tokenizer, shown: list[Chip]
) -> View:
    """The words that are asked for, with their places; for a pair, the answer as well."""
    tokens = labels(tokenizer, batch.tokens[0].tolist())
    places = predicted(batch, questions)
    told = "; ".join(f"{place}: {tokens[place]} ({shown[place].caption})" for place in places)
    words = int(ordinary(batch.tokens, batch.real, tokenizer.vocabulary).sum())
    said = f"{len(places)} of {len(tokens)} tokens, of which {words} are words"
    lines = [note(f"{said}. {told or 'None this time.'}", "answers")]
    if batch.labels is not None:
        yes = {
            "next": ("B follows A", "B is from elsewhere"),
            "order": ("A and B stand in their order", "A and B have changed places"),
        }[PAIRS[setting.objective]]
        lines.append(note(f"The pair: {yes[int(batch.labels[0])]}.", "pair"))
    return View("".join(line.html for line in lines), "\n".join(line.text for line in lines))


def looks(batch: Batch, questions: Questions, setting: Masking) -> dict[str, Tensor]:
    """The masks of one layer, each with its name."""
    length = batch.tokens.shape[1]
    if setting.objective == "next word":
        return {"Who may look at whom": causal(length)}
    if questions.order is not None:
        rank = questions.order.rank
        return {
            "Content stream": up_to(rank)[0, 0],
            "Query stream": before(rank)[0, 0],
        }
    return {"Who may look at whom": torch.ones(length, length, dtype=torch.bool)}


# ---- the widget --------------------------------------------------------------------------------


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
    with a `world`, the language's exact probabilities stand beside them.
    """
    known = [one for one in ([text] if text else []) + list(texts) if one.strip()]
    if not known:
        raise ValueError("there is no text: give text='a sentence.' or texts=[…] of a corpus")
    tokenizer = Tokenizer.words(known) if tokenizer is None else tokenizer
    setting = setting or Masking()
    demo: Demo

    def draw(text: str, **values: Any) -> View:
        others = [one for one in known if one != text][:8]
        asked = Masking(**values)
        return masking_view(
            text, asked, tokenizer, others=others, model=model, world=world, start=start
        )

    def another() -> None:
        here = known.index(demo.values["text"]) if demo.values["text"] in known else -1
        demo.change(text=known[(here + 1) % len(known)])

    buttons = {"draw again": lambda: demo.change(draw=demo.values["draw"] + 1)}
    if len(known) > 1:
        buttons["another text"] = another
    demo = Demo("masking", draw, controls_of(known[0], setting), buttons)
    return demo


def controls_of(text: str, setting: Masking) -> dict[str, Any]:
    """One control for each part of the state."""
    mask = slider("of it [MASK]", setting.mask, 0.0, 1.0, 0.05)
    random = slider("of it random", setting.random, 0.0, 1.0, 0.05)
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
