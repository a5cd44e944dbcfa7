"""Schematics: drawn by code, in the style of the charts, for light and dark pages alike.

    picture = Schematic(300, "GPT reads from below: words, blocks, the next word.")
    picture.box(20, 240, 120, 34, "the", kind="word")
    picture.arrow(80, 240, 80, 200)
    picture.figure

A box has a colour for its kind of thing, the same in every picture of the course. Whatever a colour
says is also said by a word or a shape, and every picture has a sentence that describes it.
"""

from typing import Any

from matplotlib.patches import FancyBboxPatch

from classroom.charts.style import INK, Chart, chart

# Fill, edge: Okabe and Ito's hues. Letters in a box are dark on its fill, on any page.
KINDS = {
    "word": ("#d0eaf8", "#2a86bd"),  # what is read or written: tokens, embeddings
    "attention": ("#f8e4bb", "#b87c00"),  # what mixes positions
    "mlp": ("#c2e8dc", "#00795a"),  # what works on each position alone
    "new": ("#f6d3bd", "#c04f00"),  # what is trained from scratch: a task's head
    "state": ("#e2e2e2", "#767676"),  # hidden states, memory
}
LETTERS = "#1b1f24"
PIXELS = 96
"""The pixels of a picture in one inch."""
WIDTH = 760
"""The width of every picture in pixels."""


class Schematic:
    """A drawing of boxes, arrows and words; positions are pixels from the upper left corner."""

    def __init__(self, height: int, says: str) -> None:
        self.figure, self.axes = chart(WIDTH / PIXELS, height / PIXELS, says=says)
        self.figure.set_layout_engine("none")
        self.axes.set_position((0, 0, 1, 1))
        self.axes.set(xlim=(0, WIDTH), ylim=(height, 0))
        self.axes.set_axis_off()

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        text: str,
        *,
        kind: str,
        dashed: bool = False,
        size: int = 13,
    ) -> None:
        """A rounded box with its words in the middle; dashed: not trained, or not there."""
        fill, edge = KINDS[kind]
        self.axes.add_patch(
            FancyBboxPatch(
                (x + 5, y + 5), width - 10, height - 10, boxstyle="round,pad=5", facecolor=fill,
                edgecolor=edge, linewidth=1.2, linestyle=(0, (4, 3)) if dashed else "solid",
            )
        )  # fmt: skip
        if text:
            middle = (x + width / 2, y + height / 2)
            self.axes.text(
                *middle, text, size=_points(size), color=LETTERS, ha="center", va="center"
            )

    def text(
        self, x: float, y: float, text: str, *, size: int = 13, anchor: str = "center",
        bold: bool = False,
    ) -> None:  # fmt: skip
        """A line of text; its baseline is at y."""
        weight = "bold" if bold else "normal"
        self.axes.text(x, y, text, size=_points(size), ha=anchor, weight=weight, color=INK)

    def line(self, x1: float, y1: float, x2: float, y2: float) -> None:
        """A straight line."""
        self.axes.plot([x1, x2], [y1, y2], color=INK, linewidth=1.2, marker="")

    def arrow(self, x1: float, y1: float, x2: float, y2: float, *, dashed: bool = False) -> None:
        """A straight arrow."""
        style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.2, "shrinkA": 0, "shrinkB": 0,
                 "linestyle": "dashed" if dashed else "solid"}  # fmt: skip
        self.axes.annotate("", (x2, y2), (x1, y1), arrowprops=style)


def _points(pixels: float) -> float:
    return pixels * 72 / PIXELS


def two_word_models() -> Chart:
    """CBOW and skip-gram, side by side: Mikolov et al. 2013a, figure 1, redrawn."""
    picture = Schematic(
        292,
        "Left: CBOW takes the mean of the vectors of four neighbours and tells the word in the "
        "middle from noise. Right: skip-gram takes the vector of the word in the middle and tells "
        "each of its four neighbours from noise.",
    )
    near = ("by", "a", "bus", "in")
    picture.text(180, 22, "CBOW: the middle from its neighbours", bold=True, size=14)
    for i, word in enumerate(near):
        picture.box(16 + 86 * i, 236, 74, 30, word, kind="word")
        picture.arrow(53 + 86 * i, 236, 182 + 10 * (i - 1.5), 172)
    picture.box(96, 134, 172, 36, "mean of their vectors v", kind="state")
    picture.arrow(182, 134, 182, 104)
    picture.box(96, 60, 172, 42, "red?  yes\nnoise?  no", kind="new", size=12)
    picture.text(280, 86, "5 noise words", anchor="left", size=12)
    picture.text(580, 22, "skip-gram: each neighbour from the middle", bold=True, size=14)
    picture.box(538, 236, 84, 30, "red", kind="word")
    picture.arrow(580, 236, 580, 172)
    picture.box(508, 134, 144, 36, "its vector v", kind="state")
    for i, word in enumerate(near):
        x = 412 + 86 * i
        picture.arrow(580 + 10 * (i - 1.5), 134, x + 37, 104)
        picture.box(x, 60, 76, 42, f"{word}?  yes\nnoise?  no", kind="new", size=12)
    picture.text(380, 286, "… was hit by a  red  bus in town")
    return picture.figure


def block() -> Chart:
    """A block, with the norms after the sums (Vaswani et al. 2017) and before the parts (GPT-2)."""
    picture = Schematic(
        392,
        "Two blocks, read from below. Left, as in the paper: x goes through attention, a skip "
        "connection adds x to the result, and a norm follows; then the same with a feed-forward "
        "network. Right, as in GPT-2: each norm stands before its part, and nothing stands on "
        "the path of the sums.",
    )
    columns = (
        (190, "norm after the sum (2017)", ("attention", "+", "norm", "feed-forward", "+", "norm")),
        (570, "norm before the part (GPT-2)", ("norm", "attention", "+", "norm", "feed-forward",
                                               "+")),
    )  # fmt: skip
    kinds = {"attention": "attention", "feed-forward": "mlp", "norm": "state"}
    for x, title, parts in columns:
        picture.text(x, 22, title, bold=True, size=14)
        picture.box(x - 60, 350, 120, 30, "x", kind="word")
        y, split = 350, 350
        for part in parts:
            above = y - 50
            if part == "+":
                picture.arrow(x, y, x, above + 28)
                picture.text(x, above + 24, "+", size=20, bold=True)
                # The skip connection: past the parts since the last sum.
                middle = split - 10
                picture.line(x, middle, x + 100, middle)
                picture.line(x + 100, middle, x + 100, above + 17)
                picture.arrow(x + 100, above + 17, x + 10, above + 17)
                y = split = above + 6
            else:
                picture.arrow(x, y, x, above + 30)
                picture.box(x - 60, above, 120, 30, part, kind=kinds[part])
                y = above
                if part == "norm" and parts[0] != "norm":
                    split = above
        picture.arrow(x, y, x, 32)
    picture.text(106 + 190, 306, "skip", size=12, anchor="left")
    picture.text(106 + 570, 306, "skip", size=12, anchor="left")
    return picture.figure


def encoder_decoder() -> Chart:
    """The Transformer (Vaswani et al. 2017, figure 1): two towers and what goes between them."""
    picture = Schematic(
        430,
        "Left: the encoder reads the source; each word attends to all words of the source. Right: "
        "the decoder reads what is written so far through a causal mask, looks at the encoder's "
        "states by cross-attention, and predicts the next word.",
    )
    x, wide = 60, 250
    picture.text(x + wide / 2, 24, "encoder: one state for each word of the source", bold=True)
    picture.box(x, 266, wide, 36, "self-attention: every word sees all", kind="attention")
    picture.box(x, 150, wide, 36, "feed-forward: each word alone", kind="mlp")
    picture.box(x, 64, wide, 34, "states of the source", kind="state")
    for i, word in enumerate(("the", "queen", "fed", "the", "cat")):
        left = x + i * 51
        picture.box(left, 372, 47, 28, word, kind="word", size=11)
        picture.arrow(left + 23, 372, left + 23, 304)
        picture.arrow(left + 23, 266, left + 23, 188)
        picture.arrow(left + 23, 150, left + 23, 100)
    picture.text(x - 8, 212, "N ×", anchor="right")
    x = 440
    picture.text(x + wide / 2, 24, "decoder: the target, word by word", bold=True)
    picture.box(x, 266, wide, 36, "self-attention: only to the left", kind="attention")
    picture.box(x, 208, wide, 36, "cross-attention: to the source", kind="attention")
    picture.box(x, 150, wide, 36, "feed-forward: each word alone", kind="mlp")
    picture.box(x, 106, wide, 28, "softmax over the vocabulary", kind="state", size=12)
    given, wanted = ("(begin)", "ra", "regin", "ra"), ("ra", "regin", "ra", "miral")
    for i, (word, after) in enumerate(zip(given, wanted, strict=True)):
        left = x + i * 63
        picture.box(left, 372, 59, 28, word, kind="word", size=11)
        picture.box(left, 52, 59, 28, after, kind="word", size=11)
        for low, high in ((372, 304), (266, 246), (208, 188), (150, 136), (106, 82)):
            picture.arrow(left + 29, low, left + 29, high)
    picture.text(375, 342, "words + positions", size=12)
    picture.text(x + wide + 8, 212, "× N", anchor="left")
    picture.arrow(312, 81, 438, 226)
    picture.text(358, 206, "keys, values", size=12)
    picture.text(
        380,
        420,
        "teacher forcing: in training the decoder reads the right words, one position later",
        size=12,
    )
    return picture.figure


def both_directions() -> Chart:
    """ELMo's two language models, and the mix of their layers at one word."""
    picture = Schematic(
        384,
        "ELMo reads a sentence with LSTMs from the left and with others from the right, in two "
        "layers each. From the left each word predicts the next one, from the right the one "
        "before. The vector of one word is a weighted sum of its layers.",
    )
    words = ("saw", "a", "match", "near")
    sides = (
        ("from the left: predict the next", (*words[1:], "…")),
        ("from the right: predict the one before", ("…", *words[:-1])),
    )
    for side, (title, asked) in enumerate(sides):
        start = 14 + 292 * side
        picture.text(start + 134, 20, title, bold=True)
        for i, word in enumerate(words):
            x = start + 68 * i
            picture.box(x, 332, 60, 28, word, kind="word", size=12)
            picture.box(x, 270, 60, 30, "letters", kind="mlp", size=12)
            picture.box(x, 190, 60, 34, "LSTM 1", kind="attention", size=12)
            picture.box(x, 110, 60, 34, "LSTM 2", kind="attention", size=12)
            picture.box(x, 38, 60, 28, asked[i], kind="word", size=12, dashed=True)
            for low, high in ((332, 302), (270, 226), (190, 146), (110, 68)):
                picture.arrow(x + 30, low, x + 30, high)
            if i < 3:
                ends = (x + 60, x + 68) if side == 0 else (x + 68, x + 60)
                for y in (207, 127):
                    picture.arrow(ends[0], y, ends[1], y)
    picture.text(678, 20, "ELMo of “match”", bold=True)
    for i, (y, name) in enumerate(((127, "layer 2"), (207, "layer 1"), (285, "layer 0"))):
        picture.box(612, y - 17, 64, 34, name, kind="state", size=12)
        picture.arrow(677, y, 704, 206 + 8 * (i - 1))
    picture.box(706, 186, 46, 42, "mix", kind="new", size=12)
    picture.text(14, 379, "orange: learned by the task; layer 0 is the same in every sentence",
                 anchor="left", size=12)  # fmt: skip
    return picture.figure


def three_stages() -> Chart:
    """ULMFiT: Howard and Ruder 2018, figure 1, redrawn."""
    picture = Schematic(
        322,
        "ULMFiT in three stages. First a language model reads general text. Then the same model "
        "reads the text of the target, more slowly in its lower layers. Then a new head classifies "
        "with few labels, and the layers are unfrozen from the top down.",
    )
    stages = (
        ("1 general language model", "much text, no labels", "next word"),
        ("2 target language model", "the target's text, no labels", "next word"),
        ("3 classifier", "few labels", "good or bad?"),
    )
    for stage, (title, text, asked) in enumerate(stages, start=1):
        x = 250 * stage - 234
        picture.text(x + 105, 22, title, bold=True)
        picture.box(x, 36, 210, 28, asked, kind="word", size=12, dashed=True)
        head = "softmax over words" if stage < 3 else "new head on pooled states"
        picture.box(x, 86, 210, 32, head, kind="state" if stage < 3 else "new", size=12)
        for layer, y in ((2, 142), (1, 186)):
            rate = "" if stage == 1 else f", rate ÷ 2.6{'' if layer == 2 else '²'}"
            picture.box(x, y, 210, 32, f"LSTM {layer}{rate}", kind="attention", size=12)
        words = "embeddings" if stage == 1 else "embeddings, rate ÷ 2.6³"
        picture.box(x, 230, 210, 32, words, kind="mlp", size=12)
        picture.box(x, 282, 210, 30, text, kind="word", size=12)
        for low, high in ((282, 264), (230, 220), (186, 176), (142, 120), (86, 66)):
            picture.arrow(x + 105, low, x + 105, high)
        if stage < 3:
            picture.arrow(x + 212, 180, x + 248, 180)
    return picture.figure


def decoder_to_gpt() -> Chart:
    """What is left of the translator of notebook 04 when there is nothing to translate."""
    picture = Schematic(
        330,
        "Left: the encoder and decoder of notebook 04. Right: GPT, which is the decoder without "
        "cross-attention. Each position reads the words up to its own and predicts the next one.",
    )
    # the translator
    picture.text(165, 22, "Transformer (notebook 04)", bold=True, size=14)
    picture.box(20, 120, 120, 34, "self-attention", kind="attention", dashed=True)
    picture.box(20, 70, 120, 34, "feed-forward", kind="mlp", dashed=True)
    picture.text(80, 58, "encoder × N", size=12)
    picture.box(20, 190, 120, 30, "source word", kind="word", dashed=True)
    picture.arrow(80, 190, 80, 156)
    picture.arrow(80, 120, 80, 106)
    picture.box(190, 150, 130, 34, "masked attention", kind="attention")
    picture.box(190, 104, 130, 34, "cross-attention", kind="attention", dashed=True)
    picture.box(190, 58, 130, 34, "feed-forward", kind="mlp")
    picture.text(255, 46, "decoder × N", size=12)
    picture.box(190, 200, 130, 30, "word", kind="word")
    picture.arrow(255, 200, 255, 186)
    picture.arrow(255, 150, 255, 140)
    picture.arrow(255, 104, 255, 94)
    picture.arrow(142, 87, 188, 121, dashed=True)
    picture.text(165, 258, "dashed: gone in GPT", size=12)
    # GPT
    picture.text(560, 22, "GPT", bold=True, size=14)
    words, after = ["the", "film", "was", "good"], ["film", "was", "good", "."]
    for i, (word, target) in enumerate(zip(words, after, strict=True)):
        x = 400 + 84 * i
        picture.box(x, 280, 70, 30, word, kind="word")
        picture.arrow(x + 35, 280, x + 35, 252)
        for j in range(i):
            picture.arrow(400 + 84 * j + 35, 280, x + 30, 252)
        picture.arrow(x + 35, 150, x + 35, 128)
        picture.box(x, 50, 70, 30, target, kind="word")
        picture.arrow(x + 35, 98, x + 35, 81)
    picture.box(400, 216, 322, 34, "masked attention: only to the left", kind="attention")
    picture.box(400, 152, 322, 34, "feed-forward: each position alone", kind="mlp")
    picture.arrow(561, 216, 561, 188)
    picture.text(732, 206, "× N", anchor="left", size=12)
    picture.box(400, 98, 322, 28, "softmax over the vocabulary", kind="state")
    picture.text(561, 42, "what each position is asked for: the next word", size=12)
    return picture.figure


def block_costs() -> Chart:
    """What each part of a Transformer holds and computes for one token."""
    picture = Schematic(
        270,
        "A block of a Transformer with the entries of each matrix and the operations for one token "
        "in the forward pass: queries, keys and values 3 d squared entries; scores and sums no "
        "entries, 4 T d operations; output d squared; feed-forward 8 d squared.",
    )
    rows = (
        ("queries, keys, values", "attention", "3 d²", "6 d²"),
        ("scores of T keys, sum of T values", "attention", "none", "4 T d"),
        ("output of attention", "attention", "d²", "2 d²"),
        ("feed-forward: up to 4 d, and down", "mlp", "8 d²", "16 d²"),
    )
    picture.text(190, 28, "one block", bold=True)
    picture.text(440, 28, "entries", bold=True)
    picture.text(560, 28, "operations per token", bold=True)
    for i, (name, kind, entries, work) in enumerate(rows):
        y = 44 + 40 * i
        picture.box(50, y, 280, 34, name, kind=kind)
        picture.text(440, y + 22, entries)
        picture.text(560, y + 22, work)
        if i:
            picture.arrow(190, y - 6, 190, y)
    picture.text(660, 110, "× L layers", size=14)
    picture.text(190, 228, "in all layers", bold=True)
    picture.text(440, 228, "12 L d²", bold=True)
    picture.text(560, 228, "24 L d² + 4 L T d", bold=True)
    picture.text(190, 256, "the head, a row for each of V words")
    picture.text(440, 256, "V d")
    picture.text(560, 256, "2 V d")
    return picture.figure


def mixture_of_experts() -> Chart:
    """Shazeer et al. 2017, section 2: a router sends each token to a few feed-forwards."""
    picture = Schematic(
        290,
        "A mixture of eight experts. A router scores all of them for a token; the best two, "
        "numbers 3 and 6, compute, and their answers are added with weights 0.7 and 0.3.",
    )
    picture.box(330, 246, 100, 32, "token", kind="word")
    picture.box(40, 196, 130, 32, "router: scores", kind="new")
    picture.arrow(330, 262, 172, 220)
    used = {2: "0.7", 5: "0.3"}
    for i in range(8):
        x, works = 40 + 86 * i, i in used
        picture.box(x, 124, 76, 34, f"expert {i + 1}", kind="mlp" if works else "state",
                    dashed=not works, size=12)  # fmt: skip
        if works:
            picture.arrow(380, 246, x + 38, 160)
            picture.arrow(x + 38, 124, 380, 66)
            picture.text(x + 38 + (20 if x < 380 else -20), 104, f"× {used[i]}")
    picture.arrow(170, 200, 240, 162)
    picture.arrow(172, 212, 505, 160)
    picture.text(40, 246, "chooses two, weighs them", anchor="left", size=12)
    picture.box(364, 34, 32, 32, "+", kind="state", size=16)
    picture.text(410, 54, "the answer of the layer", anchor="left", size=12)
    picture.text(560, 232, "dashed boxes: not computed for this token", size=12)
    return picture.figure


def four_inputs() -> Chart:
    """Radford et al. 2018, figure 1, redrawn: each task becomes one or more rows of tokens."""
    picture = Schematic(
        336,
        "Four tasks as rows of tokens. Classification: start, text, extract. Entailment: start, "
        "premise, delimiter, hypothesis, extract. Similarity: both orders, their two states added. "
        "Multiple choice: one row for each answer, softmax over the rows.",
    )

    def row(y: float, *texts: str) -> None:
        widths = {"start": 48, "extract": 58, "$": 26}
        x = 128.0
        for text in texts:
            width = widths.get(text, 112)
            picture.box(x, y, width, 26, text, kind="new" if text in widths else "word", size=12)
            x += width + 4
        picture.arrow(x, y + 13, x + 18, y + 13)
        picture.box(x + 20, y, 44, 26, "GPT", kind="attention", size=12)

    picture.text(12, 38, "classification", anchor="left", bold=True)
    row(20, "start", "text", "extract")
    picture.arrow(428, 33, 470, 33)
    picture.box(474, 20, 62, 26, "linear", kind="new", size=12)
    picture.text(12, 98, "entailment", anchor="left", bold=True)
    row(80, "start", "premise", "$", "hypothesis", "extract")
    picture.arrow(574, 93, 616, 93)
    picture.box(620, 80, 62, 26, "linear", kind="new", size=12)
    picture.text(12, 158, "similarity", anchor="left", bold=True)
    row(140, "start", "text 1", "$", "text 2", "extract")
    row(170, "start", "text 2", "$", "text 1", "extract")
    picture.arrow(574, 153, 594, 164)
    picture.arrow(574, 183, 594, 172)
    picture.text(602, 173, "+", size=16)
    picture.arrow(610, 168, 618, 168)
    picture.box(620, 155, 62, 26, "linear", kind="new", size=12)
    picture.text(12, 238, "multiple choice", anchor="left", bold=True)
    for k in range(3):
        y = 220 + 30 * k
        row(y, "start", "context", "$", f"answer {k + 1}", "extract")
        picture.arrow(574, y + 13, 588, y + 13)
        picture.box(590, y, 56, 26, "linear", kind="new", size=12)
        picture.arrow(648, y + 13, 668, 263)
    picture.box(670, 250, 72, 26, "softmax", kind="state", size=12)
    picture.text(
        12,
        326,
        "start, $, extract, linear (orange): new in fine-tuning; linear is one layer for each task",
        anchor="left",
        size=12,
    )
    return picture.figure


def bert_inputs() -> Chart:
    """Devlin et al. 2019, figure 2, redrawn, with what is predicted."""
    picture = Schematic(
        330,
        "Two sentences in one row: [CLS], she saw a wave, [SEP], she was happy, [SEP]. [MASK] "
        "hides the word saw. At each position the vectors of the piece, of the position and of the "
        "segment (0 or 1) are added up and go into the encoder, in which every position looks at "
        "all others. Above [CLS] it says whether the second sentence follows, above [MASK] which "
        "word was hidden.",
    )
    pieces = ("[CLS]", "she", "[MASK]", "a", "wave", "[SEP]", "she", "was", "happy", "[SEP]")
    left, step = 88, 66
    for i, piece in enumerate(pieces):
        x = left + step * i
        special = piece.startswith("[")
        picture.box(x + 2, 152, 62, 30, piece, kind="new" if special else "word", size=12)
        picture.text(x + 33, 199, "+", size=15)
        picture.box(x + 2, 206, 62, 30, str(i), kind="state", size=12)
        picture.text(x + 33, 253, "+", size=15)
        picture.box(x + 2, 260, 62, 30, "0" if i < 6 else "1", kind="state", size=12)
        picture.arrow(x + 33, 152, x + 33, 128)
    for y, name in ((172, "piece"), (226, "position"), (280, "segment")):
        picture.text(12, y, name, anchor="left", bold=True)
    picture.box(left, 84, 660, 42, "encoder: every position looks at all others", kind="attention")
    for i, asked in ((0, "does the second\npart follow?"), (2, "which word\nwas it?")):
        x = left + step * i + 33
        picture.arrow(x, 84, x, 62)
        picture.box(x - 31, 12, 124, 46, asked, kind="new", size=12)
    picture.text(
        12, 320, "orange: special pieces, and the two questions of pre-training", anchor="left",
        size=12,
    )  # fmt: skip
    return picture.figure


def family_tree() -> Chart:
    """What BERT took from whom, and what its family changed."""
    picture = Schematic(
        330,
        "A family tree. ULMFiT's fine-tuning, ELMo's two sides and GPT's Transformer lead to BERT. "
        "From BERT come RoBERTa (trained better), ALBERT (fewer weights), DistilBERT (half the "
        "layers); from BERT and Transformer-XL comes XLNet.",
    )
    parents = {"ULMFiT": "fine-tunes all of it", "ELMo": "both sides", "GPT": "a Transformer"}
    for i, (name, gave) in enumerate(parents.items()):
        x = 70 + 150 * i
        picture.box(x, 14, 130, 48, f"{name}\n{gave}", kind="word", size=12)
        picture.arrow(x + 65, 63, 285 + 30 * (i - 1), 104)
    picture.box(580, 106, 150, 48, "Transformer-XL\nmemory, distances", kind="word", size=12)
    picture.box(200, 106, 170, 48, "BERT (2018)\nhidden words", kind="attention")
    children = {
        "RoBERTa": "the same model,\ntrained better",
        "ALBERT": "one block for all layers,\nnarrow embeddings",
        "DistilBERT": "half of the layers,\ntaught by BERT",
        "XLNet": "any order,\nnotebook 11",
    }
    for i, (name, new) in enumerate(children.items()):
        x, last = 14 + 186 * i, i == 3
        kind, dashed = ("state", True) if last else ("new", False)
        picture.box(x, 216, 174, 70, f"{name}\n{new}", kind=kind, dashed=dashed, size=12)
        picture.arrow(250 + 24 * i, 155, x + 87, 214)
    picture.arrow(655, 155, 659, 214)
    picture.text(14, 316, "orange: this notebook; dashed: a later one", anchor="left", size=12)
    return picture.figure


def instructions_and_rewards() -> Chart:
    """Ouyang et al. 2022, figure 2, redrawn: from text to answers to answers that people prefer."""
    picture = Schematic(
        300,
        "Three stages. A base model reads text and is tuned to dialogues. People compare pairs of "
        "its answers, and a reward model learns what they prefer. The policy writes answers, the "
        "reward model scores them, and a policy gradient changes the policy; a frozen copy of the "
        "tuned model, the reference, keeps it from going too far.",
    )
    for x, title in ((110, "1 instruction tuning"), (360, "2 preferences"), (620, "3 rewards")):
        picture.text(x, 22, title, bold=True, size=14)
    picture.box(30, 44, 160, 36, "plain text", kind="word")
    picture.arrow(110, 82, 110, 100)
    picture.box(30, 102, 160, 40, "base model", kind="attention")
    picture.arrow(110, 144, 110, 208)
    picture.text(120, 182, "dialogues", anchor="left", size=12)
    picture.box(30, 210, 160, 40, "tuned model", kind="attention")
    picture.arrow(192, 230, 268, 130)
    picture.box(270, 102, 180, 40, "answer A, answer B", kind="word")
    picture.text(360, 80, "which one is better?", size=12)
    picture.arrow(360, 144, 360, 208)
    picture.box(270, 210, 180, 40, "reward model", kind="new")
    picture.box(540, 44, 160, 40, "policy", kind="attention")
    picture.arrow(620, 86, 620, 114)
    picture.box(540, 116, 160, 36, "answers", kind="word")
    picture.arrow(620, 154, 620, 208)
    picture.arrow(452, 230, 538, 230)
    picture.box(540, 210, 160, 40, "reward − β · KL", kind="new")
    line: dict[str, Any] = {"color": INK, "linewidth": 1.2, "marker": ""}
    picture.axes.plot([702, 736, 736], [230, 230, 64], **line)
    picture.arrow(736, 64, 702, 64)
    picture.axes.plot([110, 110, 620], [252, 274, 274], linestyle="dashed", **line)
    picture.arrow(620, 274, 620, 252, dashed=True)
    picture.text(360, 292, "reference: a frozen copy", size=12)
    return picture.figure


def memory_of_segments() -> Chart:
    """Dai et al. 2019, figure 2, redrawn: what a layer looks at, and what it keeps."""
    picture = Schematic(
        330,
        "Two segments of three words with two layers of hidden states. In the second segment each "
        "state looks at the states of the layer below in its own segment and, by dashed arrows, in "
        "the segment before, which is kept as memory without gradients.",
    )
    left, right, step, wide = 150, 460, 92, 78
    rows = {"words": 250, "layer 1": 160, "layer 2": 70}
    texts = (("emma", "has", "a"), ("puppy", ".", "it"))
    for name, y in rows.items():
        picture.text(14, y + 22, name, anchor="left", bold=True)
        for x0, words in zip((left, right), texts, strict=True):
            old = x0 == left
            for i, word in enumerate(words):
                kind = "word" if name == "words" else "state" if old else "attention"
                text = word if name == "words" else "kept" if old and name == "layer 1" else ""
                dashed = old and name != "words"
                picture.box(x0 + step * i, y, wide, 34, text, kind=kind, dashed=dashed, size=12)
    for below, above in ((250, 195), (160, 105)):
        for i in range(3):
            top = right + step * i + wide / 2
            for j in range(i + 1):
                picture.arrow(right + step * j + wide / 2, below, top - 6 * (i - j), above + 2)
    for y in (250, 160):
        picture.arrow(left + 2 * step + wide / 2, y, right + 20, y - 55, dashed=True)
        picture.arrow(left + step + wide / 2, y, right + 12, y - 58, dashed=True)
    picture.text(left + step + wide / 2, 36, "segment before: memory", bold=True)
    picture.text(right + step + wide / 2, 36, "this segment: trained", bold=True)
    picture.text(14, 316, "dashed arrows (only some are drawn): looked at, but no gradient flows "
                 "back; the words' vectors are kept, too", anchor="left", size=12)  # fmt: skip
    return picture.figure


def two_streams() -> Chart:
    """Yang et al. 2019, figure 1, redrawn for the order 3, 2, 4, 1: who asks whom for word 4."""
    picture = Schematic(
        330,
        "Both streams at position 4 in the order 3, 2, 4, 1. Left, content: h4 looks at h3, h2 and "
        "itself. Right, query: g4 looks at h3 and h2, and not at h4, whose word it predicts.",
    )
    for x0, name in ((30, "content stream: knows the word"), (410, "query stream: predicts it")):
        content = x0 == 30
        picture.text(x0 + 150, 28, name, bold=True)
        kind = "attention" if content else "new"
        picture.box(x0 + 237, 60, 66, 34, "new h4" if content else "new g4", kind=kind)
        picture.box(x0 + 100, 130, 116, 30, "attention", kind="attention")
        for i in range(4):
            x = x0 + 79 * i
            seen = i in (1, 2) or (i == 3 and content)
            picture.box(x, 220, 66, 34, f"h{i + 1}", kind="state", dashed=not seen)
            picture.text(x + 33, 274, f"word {i + 1}", size=12)
            if seen:
                picture.arrow(x + 33, 219, x0 + 158 + 12 * (i - 2), 162)
        picture.arrow(x0 + 217, 138, x0 + 236, 84)
        if not content:
            picture.box(x0 + 237, 162, 66, 34, "g4", kind="new")
            picture.arrow(x0 + 236, 179, x0 + 217, 156)
    told = "order 3, 2, 4, 1; dashed: not seen; g4 begins as one learned vector, whatever the word"
    picture.text(14, 316, told, anchor="left", size=12)
    return picture.figure
