"""Exercises of notebook 08: what is hidden, what becomes of it, the loss, pairs, word pieces."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from classroom.exercises.checking import Exercise, Function, Number, between, whole

MASK = 4
"""[MASK] in the inputs of these exercises; 0 is padding, 1 [CLS], 2 [SEP], 3 [UNK]."""

# ---- the course's own versions ----------------------------------------------------------------


def choose(tokens: Tensor, draws: Tensor, special: list[int], rate: float) -> Tensor:
    """True [B, T] where a word is to be predicted: each ordinary word with probability rate."""
    ordinary = ~torch.isin(tokens, torch.tensor(special))
    return (draws < rate) & ordinary


def corrupt(tokens: Tensor, predicted: Tensor, draws: Tensor, words: Tensor, mask: int) -> Tensor:
    """What BERT sees: of the predicted words 80 % [MASK], 10 % a random word, 10 % as they are."""
    seen = torch.where(predicted & (draws < 0.8), mask, tokens)
    return torch.where(predicted & (draws >= 0.8) & (draws < 0.9), words, seen)


def masked_loss(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    """The mean of -log p(original word) over all predicted positions."""
    return F.cross_entropy(logits[predicted], tokens[predicted])


def pair_row(first: list[str], second: list[str]) -> tuple[list[str], list[int]]:
    """[CLS] first [SEP] second [SEP], and the segment of each of these tokens."""
    tokens = ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
    return tokens, [0] * (len(first) + 2) + [1] * (len(second) + 1)


def word_pieces(word: str, vocabulary: set[str]) -> list[str]:
    """The longest known beginning, then the longest known continuations; ["[UNK]"] if none fits."""
    pieces: list[str] = []
    start = 0
    while start < len(word):
        sharps = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if sharps + word[start:end] in vocabulary), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(sharps + word[start:end])
        start = end
    return pieces


def furthest(model: Tensor, exact: Tensor) -> tuple[int, float]:
    """The row [V] in which KL(exact || model) is largest, and that divergence."""
    return _largest(_divergences(model, exact))


def _divergences(model: Tensor, exact: Tensor) -> Tensor:
    return torch.where(exact > 0, exact * (exact / model).log(), 0.0).sum(dim=1)


# ---- inputs -----------------------------------------------------------------------------------


def _rows(rng: torch.Generator) -> Tensor:
    """[CLS] words [SEP], padded behind or before: [B, T]."""
    rows, length = between(1, 4, rng), between(5, 9, rng)
    tokens = torch.randint(5, 20, (rows, length), generator=rng)
    tokens[:, 0], tokens[:, -1] = 1, 2
    if between(0, 2, rng):
        tokens[0, -1], tokens[0, -2] = 0, 2
    else:
        tokens[0, 0], tokens[0, 1] = 0, 1
    return tokens


def _to_choose(rng: torch.Generator) -> tuple[Tensor, Tensor, list[int], float]:
    tokens = _rows(rng)
    draws = torch.rand(tokens.shape, generator=rng)
    special = [0, 1, 2, MASK] + [int(tokens[0, 2])] * between(0, 2, rng)
    return tokens, draws, special, (0.15, 0.4, 0.6)[between(0, 3, rng)]


def _to_corrupt(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
    tokens = _rows(rng)
    predicted = (torch.rand(tokens.shape, generator=rng) < 0.7) & (tokens > MASK)
    words = torch.randint(5, 20, tokens.shape, generator=rng)
    # [MASK] is 4 in the notebook. Here it may be another, so that an answer has to use `mask`.
    mask = (MASK, 20)[between(0, 2, rng)]
    return tokens, predicted, torch.rand(tokens.shape, generator=rng), words, mask


def _to_predict(rng: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    tokens = _rows(rng)
    logits = torch.randn(*tokens.shape, 20, generator=rng).requires_grad_()
    predicted = (torch.rand(tokens.shape, generator=rng) < 0.5) & (tokens > MASK)
    predicted[-1, 2] = True
    return logits, tokens, predicted


def _texts(rng: torch.Generator) -> tuple[list[str], list[str]]:
    words = ["she", "saw", "a", "wave", "near", "the", "boat"]
    drawn = [words[i] for i in torch.randint(len(words), (8,), generator=rng).tolist()]
    return drawn[: between(1, 4, rng)], drawn[4 : 4 + between(1, 4, rng)]


PIECES = frozenset({"un", "unplay", "play", "garden", "flight", "f", "##less", "##l", "##er",
                    "##ers", "##s", "##able", "##play", "##a", "##ble", "##e"})  # fmt: skip


def _words(rng: torch.Generator) -> tuple[str, set[str]]:
    if between(0, 4, rng) == 0:  # the longest beginning leads nowhere, and a shorter one would
        ends = ("", "able", "er", "ers")
        return "unplay" + ends[between(0, 4, rng)], {*PIECES, "unp"} - {"unplay"}
    first = ("un", "unplay", "play", "garden", "flight")[between(0, 5, rng)]
    more = ("play", "able", "ers", "s", "less", "er", "e", "un", "x")
    return first + "".join(more[between(0, 9, rng)] for _ in range(between(0, 4, rng))), set(PIECES)


def _rows_of_two(rng: torch.Generator) -> tuple[Tensor, Tensor]:
    rows, words = between(2, 6, rng), between(4, 8, rng)
    model = torch.randn(rows, words, generator=rng).softmax(dim=1)
    exact = torch.rand(rows, words, generator=rng) * (torch.rand(rows, words, generator=rng) < 0.6)
    exact[:, 0] += 0.1
    return model, exact / exact.sum(dim=1, keepdim=True)


# ---- mistakes ---------------------------------------------------------------------------------


def _row_means(logits: Tensor, tokens: Tensor, predicted: Tensor) -> Tensor:
    rows = [masked_loss(logits[i], tokens[i], predicted[i])
            for i in range(len(tokens)) if predicted[i].any()]  # fmt: skip
    return torch.stack(rows).mean()


def _cut(word: str, vocabulary: set[str], *, shortest: bool) -> list[str]:
    """The pieces up to where nothing fits any more, which is marked by [UNK]."""
    pieces, start = list[str](), 0
    while start < len(word):
        sharps = "##" if start else ""
        ends = range(start + 1, len(word) + 1)
        fits = [end for end in ends if sharps + word[start:end] in vocabulary]
        if not fits:
            return [*pieces, "[UNK]"]
        end = fits[0] if shortest else fits[-1]
        pieces.append(sharps + word[start:end])
        start = end
    return pieces


def _shortest(word: str, vocabulary: set[str]) -> list[str]:
    pieces = _cut(word, vocabulary, shortest=True)
    return ["[UNK]"] if "[UNK]" in pieces else pieces


def _going_back(word: str, vocabulary: set[str], sharps: str = "") -> list[str]:
    for end in range(len(word), 0, -1):
        if sharps + word[:end] in vocabulary:
            rest = _going_back(word[end:], vocabulary, "##") if word[end:] else []
            if rest != ["[UNK]"]:
                return [sharps + word[:end], *rest]
    return ["[UNK]"]


def _largest(divergence: Tensor) -> tuple[int, float]:
    """The row with the largest divergence, and that divergence."""
    return int(divergence.argmax()), float(divergence.max())


EXERCISES: dict[str, Exercise] = {
    "08.choose": Function(
        "a boolean [B, T]: each ordinary word with probability rate, and no special token",
        choose,
        _to_choose,
        (
            ("that hides special tokens, too: [CLS], [SEP] and padding are never predicted",
             lambda tokens, draws, special, rate: draws < rate),
            ("padding is a special token, too: it must not be predicted",
             lambda tokens, draws, special, rate:
             choose(tokens, draws, [s for s in special if s], rate)),
            ("the comparison is reversed: use draws < rate",
             lambda tokens, draws, special, rate:
             (draws >= rate) & ~torch.isin(tokens, torch.tensor(special))),
            ("True means that a word is predicted; that marks all others",
             lambda *given: ~choose(*given)),
        ),
        learned="what BERT predicts",
    ),
    "08.corrupt": Function(
        "the tokens [B, T] that BERT sees: of the predicted ones, [MASK] where draws < 0.8, "
        "a random word where draws < 0.9, and itself elsewhere",
        corrupt,
        _to_corrupt,
        (
            ("all predicted words became [MASK]: a tenth becomes a random word, a tenth stays",
             lambda tokens, predicted, draws, words, mask:
             torch.where(predicted, mask, tokens)),
            ("words that are not predicted were changed, too: only the predicted ones are",
             lambda tokens, predicted, draws, words, mask:
             corrupt(tokens, torch.ones_like(predicted), draws, words, mask)),
            ("80 % became a random word and 10 % [MASK]: it is the other way round",
             lambda tokens, predicted, draws, words, mask: torch.where(
                 predicted & (draws >= 0.8) & (draws < 0.9), mask,
                 torch.where(predicted & (draws < 0.8), words, tokens))),
            ("20 % became random words: half of those stay as they are",
             lambda tokens, predicted, draws, words, mask: torch.where(
                 predicted & (draws >= 0.8), words,
                 corrupt(tokens, predicted, draws, words, mask))),
            ("the tenth that should stay became [MASK]: those words are predicted as they are",
             lambda tokens, predicted, draws, words, mask: torch.where(
                 predicted & (draws >= 0.9), mask,
                 corrupt(tokens, predicted, draws, words, mask))),
        ),
        learned="80/10/10",
        hint="One draw decides between three fates: below 0.8, from 0.8 to 0.9, and above.",
    ),
    "08.loss": Function(
        "the mean of −log p(original word) over all predicted positions",
        masked_loss,
        _to_predict,
        (
            ("that is the mean over all positions: only the predicted ones count",
             lambda logits, tokens, predicted:
             F.cross_entropy(logits.flatten(0, 1), tokens.flatten())),
            ("that shifts by one, as GPT does: BERT predicts the word at the position itself",
             lambda logits, tokens, predicted: masked_loss(
                 logits[:, :-1], tokens[:, 1:], predicted[:, 1:])),
            ("that is the mean of the rows' means: each predicted word counts alike", _row_means),
            ("the softmax is taken twice: cross_entropy expects logits, not probabilities",
             lambda logits, tokens, predicted:
             F.cross_entropy(logits.softmax(dim=-1)[predicted], tokens[predicted])),
            ("that is the sum: divide by the number of predicted words",
             lambda logits, tokens, predicted:
             masked_loss(logits, tokens, predicted) * predicted.sum()),
            ("all positions count but the predicted ones: it is the other way round",
             lambda logits, tokens, predicted: masked_loss(logits, tokens, ~predicted)),
        ),
        learned="the masked language model",
        hint="`logits[predicted]` and `tokens[predicted]` are the predicted positions alone.",
    ),
    "08.pair": Function(
        "two lists: the tokens [CLS] first [SEP] second [SEP], and the segment 0 or 1 of each",
        pair_row,
        _texts,
        (
            ("the last [SEP] is missing: it ends the second text",
             lambda *given: tuple(part[:-1] for part in pair_row(*given))),
            ("[CLS] is missing: its state answers the question about the two texts",
             lambda *given: tuple(part[1:] for part in pair_row(*given))),
            ("the first [SEP] belongs to the first text: its segment is 0",
             lambda first, second: (pair_row(first, second)[0],
                                    [0] * (len(first) + 1) + [1] * (len(second) + 2))),
            ("segments are counted from 0",
             lambda *given: (pair_row(*given)[0], [s + 1 for s in pair_row(*given)[1]])),
            ("both texts have the segment 0: the second one has 1",
             lambda first, second: (pair_row(first, second)[0],
                                    [0] * (len(first) + len(second) + 3))),
        ),
        learned="BERT's input",
        hint="`[CLS]` and the first `[SEP]` belong to segment 0, the last `[SEP]` to segment 1.",
    ),
    "08.pieces": Function(
        'the longest known beginning, then the longest known "##…" again and again; ["[UNK]"] '
        "where nothing fits",
        word_pieces,
        _words,
        (
            ("the shortest known piece was taken: try the longest first", _shortest),
            ('pieces inside a word begin with "##"',
             lambda *given: [piece.removeprefix("##") for piece in word_pieces(*given)]),
            ('a piece inside a word must be known with its "##"',
             lambda word, vocabulary:
             word_pieces(word, vocabulary | {f"##{piece}" for piece in vocabulary})),
            ("where nothing fits, the whole word becomes [UNK], not only its rest",
             lambda *given: _cut(*given, shortest=False)),
            ("a word that cannot be split has no pieces at all here: return ['[UNK]']",
             lambda *given: [piece for piece in word_pieces(*given) if piece != "[UNK]"]),
            ("that backtracks: the longest piece is kept even if the rest then fails", _going_back),
        ),
        minutes=15,
        learned="WordPiece",
        hint="Try the longest end first. All pieces but the first carry `##`.",
    ),
    "08.random": Number(
        "how many of 1,000 words become a random word",
        "8dd0981f49ef225a",
        {
            "85c4c6d20c2f0396": "that is 10 % of all words; it is 10 % of the predicted ones",
            "a2dbb835a64dccd5": "these are all predicted words: a tenth of them becomes random",
            "2d8cdf38b360b139": "these become [MASK]",
            "ee3bafd430ad3961": "half of these stay as they are",
        },
        learned="1.5 % of the words are wrong",
        hint="15 % are predicted, and a tenth of these get a random word.",
    ),
    "08.tables": Number(
        "how many numbers are in the three tables of embeddings",
        "a149ea155d7e085b",
        {
            "12c12b4f1036f9ef": "the segments have vectors, too",
            "7871cef47dbdd28e": "positions and segments have vectors, too",
            "a9515d55214173b8": "tables are added, not multiplied: each position has one vector",
            "3904dca62b6c6b7f": "each vector has 768 numbers; 512 is the number of positions",
        },
        learned="what embeddings cost",
        hint="Words, positions and segments each have a table of width 768.",
        exact=True,
    ),
    "08.furthest": Function(
        "(the row with the largest KL(exact || model), that divergence), from two tensors [N, V]",
        furthest,
        _rows_of_two,
        (
            ("that is in bits: the natural logarithm gives nats", lambda *given: (
                furthest(*given)[0], furthest(*given)[1] / math.log(2))),
            ("that is the cross-entropy: subtract the entropy of the language",
             lambda model, exact: _largest(-(exact * model.log()).sum(dim=1))),
            ("that is KL(model || exact), which is infinite here: weight by the exact one",
             lambda model, exact: _largest((model * (model / exact).log()).sum(dim=1))),
            ("that is the row in which the model is best: take the largest",
             lambda model, exact: (int(_divergences(model, exact).argmin()),
                                   float(_divergences(model, exact).min()))),
            ("the mean over the vocabulary was taken: the divergence is a sum",
             lambda model, exact: _largest(_divergences(model, exact) / exact.shape[1])),
            ("0 · log 0 is nan on a computer: a word whose exact probability is 0 adds nothing",
             lambda model, exact: _largest((exact * (exact / model).log()).sum(dim=1))),
        ),
        properties=(
            ("the row is a whole number, as int(…) gives it", lambda found, *_: whole(found[0])),
        ),
        learned="how wrong a model is",
        hint="KL is the sum of exact · log(exact / model). Where exact is 0 the term is 0.",
    ),
}  # fmt: skip
