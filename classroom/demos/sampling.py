"""Sampling, to play with: the distribution of the next word, before and after each filter.

Each draw is a function of the seed and the position in the text, so a step that is undone and taken
again gives the same word.  Read `sampling_view`, the pure function, and then `sampling_demo`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from classroom.demos.base import Demo, slider, text_box, whole_slider
from classroom.demos.beams import found_by_beam, within
from classroom.demos.guesses import word_tokens
from classroom.demos.likelihood import Text, likelihoods, spoken
from classroom.demos.pieces import Chip, Chips, Heading, Lot, Note, Piece, Problem, Share, Table
from classroom.demos.reading import (
    check_fits,
    in_vocabulary,
    label,
    next_distribution,
    unknown_note,
    written,
)
from classroom.demos.rendering import View
from labkit.blocks import evaluating
from labkit.chance import Chance
from labkit.sampling import Sampling, Step, sample, steps
from labkit.text.tokenizers import Tokenizer
from labkit.world import World

SHOWN = 12


def text_of(prompt: str, new: Sequence[int], tokenizer: Tokenizer) -> Text:
    """The prompt as tokens, after the token that parts documents, and what was written since."""
    opens = tokenizer.vocabulary.sep
    begin = [] if opens is None else [opens]
    return Text(begin, tokenizer.encode(written(prompt)), list(new))


def next_step(model: Any, tokens: list[int], settings: Sampling, seed: int) -> Step:
    """The distribution of the next word after each filter, and the word that is drawn."""
    read = within(tokens, model)
    one = replace(settings, length=1, minimum=min(settings.minimum, 1))
    with evaluating(model):
        return next(steps(model, [read], one, seed=seed_of(seed, len(tokens) - len(read))))


def ahead(settings: Sampling, new: int) -> Sampling:
    """The settings for the rest of a text of which so many words are new."""
    return replace(settings, minimum=max(settings.minimum - new, 0))


def seed_of(seed: int, dropped: int) -> int:
    """The seed of a step; where the beginning is cut off, it moves on instead of the position."""
    return seed + 1_000_003 * dropped


def sampling_view(
    prompt: str,
    new: Sequence[int],
    settings: Sampling,
    model: Any,
    tokenizer: Tokenizer,
    *,
    seed: int = 0,
    world: World | None = None,
    start: str = "document",
    beams: int = 0,
) -> View:
    """The text so far, the distribution of its next word, and how likely all of it is."""
    check_fits(model, tokenizer)
    settings = ahead(settings, len(new))
    prompt, unknown = in_vocabulary(prompt, tokenizer)
    text = text_of(prompt, new, tokenizer)
    if not text.tokens:
        return View.of("sampling", Problem("The text is empty: write a prompt."))
    said = log_probabilities(model, text.tokens)
    pieces: list[Piece] = [
        *unknown_note(unknown),
        Heading("The text"),
        Chips(tuple(chips_of(text, said, tokenizer))),
    ]
    room = len(within(text.tokens, model))
    if room < len(text.tokens):
        pieces.append(Note(f"The model reads the last {room} of {len(text.tokens)} tokens.", "cut"))
    if new and new[-1] == tokenizer.vocabulary.sep:
        pieces.append(Note("The text has ended: undo a step, or change the prompt.", "ended"))
    else:
        step = next_step(model, text.tokens, settings, seed)
        words = spoken([*text.prompt, *text.new], tokenizer)
        exact_V = None if world is None else exact_next(world, words, start, tokenizer)
        pieces += [Heading("The next word"), distributions(step, tokenizer, world, exact_V)]
        if settings.temperature:
            pieces.append(lot(step, drawn_number(model, text.tokens, seed), tokenizer))
        if exact_V is not None:
            pieces.append(in_nats(exact_V, step.stages["model"][0].double()))
        pieces += [Note(line, "formula") for line in formulas(step, settings, tokenizer)]
        if beams:
            pieces += [Heading(f"What a beam of {beams} finds"),
                       found_by_beam(model, text.tokens, settings, beams, tokenizer)]  # fmt: skip
    pieces.append(Heading("Log probability of the text, in nats"))
    pieces += likelihoods(text, said, tokenizer, world, start)
    return View.of("sampling", *pieces)


def exact_next(
    world: World, words: Sequence[str], start: str, tokenizer: Tokenizer
) -> torch.Tensor | None:
    """The language's distribution of the next token [V].

    None where it cannot begin like this, or can go on with a word that is not one token.
    """
    found = next_distribution(world, words, start)
    if found is None:
        return None
    tokens_W = torch.from_numpy(word_tokens(world, tokenizer))
    exact_V = torch.zeros(len(tokenizer), dtype=torch.float64)
    known_W = tokens_W >= 0
    if found[~known_W.numpy()].sum() > 1e-9:  # a word that is several tokens
        return None
    return exact_V.index_add(0, tokens_W[known_W], torch.from_numpy(found)[known_W])


def drawn_number(model: Any, tokens: list[int], seed: int) -> float:
    """The number in [0, 1) that decides the next word: the one that `next_step` draws with."""
    read = within(tokens, model)
    one = torch.zeros(1, dtype=torch.long)
    chance = Chance(seed_of(seed, len(tokens) - len(read)), 0, one)
    return float(chance.uniform("word", len(read) + 1)[0, -1])


def lot(step: Step, number: float, tokenizer: Tokenizer) -> Lot:
    """The last distribution as a bar in the order of the vocabulary, and where the number falls."""
    last = list(step.stages.values())[-1][0]
    drawn = int(step.tokens_B[0])
    kept = [token for token in range(len(last)) if last[token] >= 5e-4 or token == drawn]
    parts = tuple((label(tokenizer, token), float(last[token])) for token in kept)
    before = float(last[:drawn].double().sum())
    return Lot(parts, number, kept.index(drawn), before)


def in_nats(exact_V: torch.Tensor, model_V: torch.Tensor) -> Table:
    """How uncertain the language and the model are, and how far the model is off."""
    likely = exact_V > 0
    divergence = (exact_V[likely] * (exact_V[likely].log() - model_V[likely].log())).sum()
    numbers = (entropy(exact_V), entropy(model_V), float(divergence))
    head = ("entropy, exact", "entropy, model", "KL(exact ‖ model)")
    return Table(head, (tuple(f"{number:.4f}" for number in numbers),), "nats")


def entropy(p_V: torch.Tensor) -> float:
    """The mean surprise, in nats."""
    # Adding zero makes 0 of the -0 that a certain word has.
    return float(-p_V[p_V > 0].mul(p_V[p_V > 0].log()).sum()) + 0.0


@torch.no_grad()
def log_probabilities(model: Any, tokens: list[int]) -> list[float | None]:
    """log p of each token given those before; None for the first, and for what is out of reach."""
    read = within(tokens, model)
    where = next(model.parameters()).device
    with evaluating(model):
        scores_TV = model(torch.tensor([read], device=where))[0].float().cpu()
    targets = torch.tensor(read[1:])
    found = scores_TV[:-1].log_softmax(dim=-1).gather(-1, targets[:, None])[:, 0].tolist()
    return [None] * (len(tokens) - len(found)) + found


def chips_of(text: Text, said: list[float | None], tokenizer: Tokenizer) -> list[Chip]:
    """The tokens; below each new one, its probability by the model."""
    old = len(text.begin) + len(text.prompt)
    found = []
    for position, token in enumerate(text.tokens):
        log_p = said[position]
        caption = f"{math.exp(log_p):.3f}" if position >= old and log_p is not None else ""
        kind = "special" if position < len(text.begin) else "plain" if position < old else "new"
        found.append(Chip(label(tokenizer, token), kind, caption))
    return found


def distributions(
    step: Step, tokenizer: Tokenizer, world: World | None, exact_V: torch.Tensor | None
) -> Table:
    """The likeliest words by the model, with their probabilities after each filter.

    With a language, its own probability comes first.
    """
    stages = {name: stage_BV[0] for name, stage_BV in step.stages.items()}
    drawn = int(step.tokens_B[0])
    best = stages["model"].argsort(descending=True, stable=True)[:SHOWN].tolist()
    shown = best if drawn in best else [*best, drawn]
    rows: list[tuple[str | Share, ...]] = []
    for token in shown:
        exact = [] if world is None else [Share(None if exact_V is None else float(exact_V[token]))]
        name = f"{'→ ' if token == drawn else ''}{label(tokenizer, token)}"
        rows.append((name, *exact, *(Share(float(stage[token])) for stage in stages.values())))
    head = ("→ drawn", *([] if world is None else ["exact"]), *stages)
    return Table(head, tuple(rows), "distributions", shown.index(drawn), "write", tuple(shown))


def formulas(step: Step, settings: Sampling, tokenizer: Tokenizer) -> list[str]:
    """What each filter does to the best word, in numbers."""
    stages = {name: stage_BV[0].double() for name, stage_BV in step.stages.items()}
    best = int(stages["model"].argmax())
    word = label(tokenizer, best)
    lines = [f"model: p({word}) = exp(z) / Σ exp(z′) = {float(stages['model'][best]):.4f}"]
    names = list(stages)
    for name, earlier in zip(names[1:], names, strict=False):
        before, after = stages[earlier], stages[name]
        p, q = float(before[best]), float(after[best])
        if name == "temperature" and settings.temperature == 0:
            lines.append("temperature 0: the best word alone, with probability 1")
        elif name == "temperature":
            power = 1 / settings.temperature
            whole = float((before**power).sum())
            lines.append(
                f"temperature: p^(1/{settings.temperature:g}) / Σ p′^(1/{settings.temperature:g}) "
                f"= {small(p**power)} / {small(whole)} = {q:.4f}"
            )
        elif name == "minimum":
            left = f"words to come before the text may end: {settings.minimum}"
            lines.append(f"minimum: {left}; p = {p:.4f} becomes {q:.4f}")
        elif name == "repetition":
            by = f"{settings.repetition:g}"
            lines.append(
                f"repetition: of words in the text so far, z becomes z / {by} if z > 0 and z × "
                f"{by} if not: p = {p:.4f} becomes {q:.4f}"
            )
        else:
            kept = after > 0
            words = "1 word holds" if kept.sum() == 1 else f"{int(kept.sum())} words hold"
            share = f"{float(before[kept].sum()):.4f}"
            best_k = "the best word" if settings.top_k == 1 else f"the {settings.top_k} best words"
            until = "while they hold at most" if settings.top_p_within else "until they hold"
            rule = {"top-k": best_k, "nucleus": f"the best words {until} {settings.top_p:g}"}
            lines.append(
                f"{name}: {rule[name]}: {words} {share}, so p = {p:.4f} / {share} = {q:.4f}"
            )
    return lines


def small(number: float) -> str:
    """Four digits, of which the first is not 0 where a power has made the number small."""
    return f"{number:.4f}" if number >= 0.001 else f"{number:.3e}"


# ---- the widget --------------------------------------------------------------------------------


class SamplingDemo(Demo):
    """Write word by word; `new` holds the tokens that were written."""

    def __init__(
        self,
        prompt: str,
        model: Any,
        tokenizer: Tokenizer,
        settings: Sampling,
        world: World | None,
        start: str,
    ) -> None:
        # A text ends where a document does.
        stop = () if tokenizer.vocabulary.sep is None else (tokenizer.vocabulary.sep,)
        settings = replace(settings, stop=stop, minimum=settings.minimum if stop else 0)
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.world, self.start = world, start
        self.new: list[int] = []
        self.past: list[list[int]] = []
        hot, top_k = settings.temperature, settings.top_k or 0
        most = min(max(50, top_k), model.backbone.config.vocabulary)
        controls = {
            "prompt": text_box("prompt", prompt),
            "temperature": slider("temperature", hot, 0.0, max(3.0, hot), 0.05),
            "top-k": whole_slider("top-k (0: all)", top_k, 0, most),
            "top-p": slider("top-p", settings.top_p, 0.0, 1.0, 0.01),
            "seed": whole_slider("seed", 0, 0, 1000),
            "beams": whole_slider("beam (0: none)", 0, 0, 8),
        }
        controls["prompt"].observe(lambda _: self.forget(), names="value")
        buttons = {"step": self.step, "run": self.run, "undo": self.undo}
        super().__init__(
            "sampling", self.look, controls, buttons, act=self.write, forget=self.forget
        )

    def recorded(self) -> dict[str, Any]:
        """The state, for a page that computes with the model itself."""
        names = ("prompt", "temperature", "top-k", "top-p", "seed")
        return {"name": self.name, "play": {name: self.values[name] for name in names}}

    @property
    def chosen(self) -> Sampling:
        """What the sliders say."""
        values = self.values
        return replace(
            self.settings,
            temperature=values["temperature"],
            top_k=values["top-k"] or None,
            top_p=values["top-p"],
        )

    def look(self, **values: Any) -> View:
        """The view of the state."""
        return sampling_view(
            values["prompt"], self.new, self.chosen, self.model, self.tokenizer,
            seed=values["seed"], world=self.world, start=self.start, beams=values["beams"],
        )  # fmt: skip

    @property
    def ended(self) -> bool:
        """Whether the text is at its end, or there is nothing to go on from."""
        tokens = self.text.tokens
        return not tokens or (bool(self.new) and self.new[-1] == self.tokenizer.vocabulary.sep)

    @property
    def text(self) -> Text:
        """What the model has before it."""
        prompt, _ = in_vocabulary(self.values["prompt"], self.tokenizer)
        return text_of(prompt, self.new, self.tokenizer)

    def step(self) -> None:
        """Write one word."""
        if not self.ended:
            self._write(self._stepwise(1))

    def write(self, token: int) -> None:
        """Write a word that was chosen, whatever was drawn."""
        if not self.ended:
            self._write([token])

    def run(self) -> None:
        """Write until the text ends or has grown by the length of the settings."""
        if self.ended:
            return
        tokens, length = self.text.tokens, self.chosen.length
        out_of_positions = len(within(tokens, self.model, length)) < len(tokens)
        if out_of_positions or self.model.backbone.memory_length:
            # The beginning is dropped word by word; and a step reads the whole text, where a model
            # with a short memory would forget its beginning.
            self._write(self._stepwise(length))
            return
        asked = ahead(self.chosen, len(self.new))
        with evaluating(self.model):
            [[made]] = sample(self.model, [tokens], asked, seed=self.values["seed"])
        self._write(made.tokens)

    def _stepwise(self, length: int) -> list[int]:
        made: list[int] = []
        for _ in range(length):
            tokens = [*self.text.tokens, *made]
            settings = ahead(self.chosen, len(self.new) + len(made))
            drawn = next_step(self.model, tokens, settings, self.values["seed"])
            made.append(int(drawn.tokens_B[0]))
            if made[-1] == self.tokenizer.vocabulary.sep:
                break
        return made

    def undo(self) -> None:
        """Take back the last step or run."""
        if self.past:
            self.new = self.past.pop()
            self.refresh()

    def forget(self) -> None:
        """Another prompt: nothing has been written yet."""
        self.new, self.past = [], []

    def _write(self, made: list[int]) -> None:
        self.past.append(self.new)
        self.new = [*self.new, *made]
        self.refresh()


def sampling_demo(
    model: Any,
    tokenizer: Tokenizer,
    prompt: str = "",
    *,
    settings: Sampling | None = None,
    world: World | None = None,
    start: str = "document",
) -> SamplingDemo:
    """Write with a language model, a word at a time, and see what each filter leaves.

    With a `world`, the exact probability of the text under the language is shown beside the
    model's.
    """
    return SamplingDemo(prompt, model, tokenizer, settings or Sampling(), world, start)
