"""Sampling, to play with: the law of the next word, before and after each filter.

Each draw is a function of the seed and the place in the text, so a step that is undone and taken
again gives the same word.  Read `sampling_view`, the pure function, and then `sampling_demo`.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from classroom.demos.base import Demo, slider, text_box, whole_slider
from classroom.demos.beams import found_by_beam, within
from classroom.demos.drawing import Chip, Share, View, chips, heading, note, page, problem, table
from classroom.demos.likelihood import Text, likelihoods
from classroom.demos.reading import evaluating, label, written
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
    """The law of the next word after each filter, and the word that is drawn."""
    read = within(tokens, model)
    one = replace(settings, length=1, minimum=0)
    with evaluating(model):
        # Where the beginning has been cut, the place stands still: the seed moves on instead.
        dropped = len(tokens) - len(read)
        return next(steps(model, [read], one, seed=seed + 1_000_003 * dropped))


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
    """The text so far, the law of its next word through each filter, and how likely it all is."""
    text = text_of(prompt, new, tokenizer)
    if not text.tokens:
        return page("sampling", problem("There is nothing to go on from: write a prompt."))
    said = log_probabilities(model, text.tokens)
    pieces = [heading("The text"), chips(chips_of(text, said, tokenizer))]
    if len(within(text.tokens, model)) < len(text.tokens):
        room = len(within(text.tokens, model))
        pieces.append(note(f"The model reads the last {room} of {len(text.tokens)} tokens.", "cut"))
    if new and new[-1] == tokenizer.vocabulary.sep:
        pieces.append(note("The text has ended: undo a step, or change the prompt.", "ended"))
    else:
        step = next_step(model, text.tokens, settings, seed)
        pieces += [heading("The next word"), law_table(step, tokenizer)]
        pieces += [note(line, "formula") for line in formulas(step, settings, tokenizer)]
        if beams:
            pieces += [heading(f"What a beam of {beams} finds"),
                       found_by_beam(model, text.tokens, settings, beams, tokenizer)]  # fmt: skip
    pieces += [heading("How likely is the text (log p, in nats)")]
    pieces.append(likelihoods(text, said, tokenizer, world, start))
    return page("sampling", *pieces)


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
    """The tokens; under each new one, how likely the model held it."""
    old = len(text.begin) + len(text.prompt)
    found = []
    for place, token in enumerate(text.tokens):
        log_p = said[place]
        caption = f"{math.exp(log_p):.3f}" if place >= old and log_p is not None else ""
        kind = "special" if place < len(text.begin) else "plain" if place < old else "asked"
        found.append(Chip(label(tokenizer, token), kind, caption))
    return found


def law_table(step: Step, tokenizer: Tokenizer) -> View:
    """The likeliest words by the model, with their probabilities after each filter."""
    laws = {name: law_BV[0] for name, law_BV in step.stages.items()}
    drawn = int(step.tokens_B[0])
    best = laws["model"].argsort(descending=True, stable=True)[:SHOWN].tolist()
    shown = best if drawn in best else [*best, drawn]
    rows: list[list[str | Share]] = [
        [
            f"{'→ ' if token == drawn else ''}{label(tokenizer, token)}",
            *(Share(float(law[token])) for law in laws.values()),
        ]
        for token in shown
    ]
    return table(["→ drawn", *laws], rows, name="laws", marked=shown.index(drawn))


def formulas(step: Step, settings: Sampling, tokenizer: Tokenizer) -> list[str]:
    """What each filter does to the best word, in numbers."""
    laws = {name: law_BV[0].double() for name, law_BV in step.stages.items()}
    best = int(laws["model"].argmax())
    word = label(tokenizer, best)
    lines = [f"model: p({word}) = exp(z) / Σ exp(z′) = {float(laws['model'][best]):.4f}"]
    names = list(laws)
    for name, earlier in zip(names[1:], names, strict=False):
        before, after = laws[earlier], laws[name]
        p, q = float(before[best]), float(after[best])
        if name == "temperature" and settings.temperature == 0:
            lines.append("temperature 0: the best word alone, with probability 1")
        elif name == "temperature":
            power = 1 / settings.temperature
            whole = float((before**power).sum())
            lines.append(
                f"temperature: p^(1/{settings.temperature:g}) / Σ p′^(1/{settings.temperature:g}) "
                f"= {p**power:.4f} / {whole:.4f} = {q:.4f}"
            )
        else:
            kept = after > 0
            rule = {"top-k": f"the {settings.top_k} best words",
                    "nucleus": f"the best words until they hold {settings.top_p:g}"}  # fmt: skip
            lines.append(
                f"{name}: {rule.get(name, 'some words')}: {int(kept.sum())} words hold "
                f"{float(before[kept].sum()):.4f}, so p = {p:.4f} / {float(before[kept].sum()):.4f}"
                f" = {q:.4f}"
            )
    return lines


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
        self.model, self.tokenizer, self.settings = model, tokenizer, settings
        self.world, self.start = world, start
        self.new: list[int] = []
        self.past: list[list[int]] = []
        controls = {
            "prompt": text_box("prompt", prompt),
            "temperature": slider("temperature", settings.temperature, 0.0, 3.0, 0.05),
            "top-k": whole_slider("top-k (0: all)", settings.top_k or 0, 0, min(50, self.words)),
            "top-p": slider("top-p", settings.top_p, 0.0, 1.0, 0.01),
            "seed": whole_slider("seed", 0, 0, 1000),
            "beams": whole_slider("beam (0: none)", 0, 0, 8),
        }
        controls["prompt"].observe(lambda _: self.forget(), names="value")
        buttons = {"step": self.step, "run": self.run, "undo": self.undo}
        super().__init__("sampling", self.look, controls, buttons)

    @property
    def words(self) -> int:
        """How many words the model may choose from."""
        return int(self.model.backbone.config.vocabulary)

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
        return text_of(self.values["prompt"], self.new, self.tokenizer)

    def step(self) -> None:
        """Write one word."""
        if not self.ended:
            drawn = next_step(self.model, self.text.tokens, self.chosen, self.values["seed"])
            self._write([int(drawn.tokens_B[0])])

    def run(self) -> None:
        """Write until the text ends or has grown by the length of the settings."""
        if self.ended:
            return
        tokens, stop = self.text.tokens, self.tokenizer.vocabulary.sep
        length = self.chosen.length
        if len(within(tokens, self.model, length)) < len(tokens):
            # Out of positions: the beginning is dropped word by word.
            self._write(self._stepwise(length))
            return
        asked = replace(self.chosen, stop=() if stop is None else (stop,))
        with evaluating(self.model):
            [[made]] = sample(self.model, [tokens], asked, seed=self.values["seed"])
        self._write(made.tokens)

    def _stepwise(self, length: int) -> list[int]:
        made: list[int] = []
        for _ in range(length):
            tokens = [*self.text.tokens, *made]
            drawn = next_step(self.model, tokens, self.chosen, self.values["seed"])
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
    """Write with a language model, a word at a time, and see what each filter leaves of its law.

    With a `world`, the exact probability of the text under the language stands beside the model's.
    """
    return SamplingDemo(prompt, model, tokenizer, settings or Sampling(), world, start)
