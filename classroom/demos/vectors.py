"""Word vectors, to play with: who is near whom, and a is to b as c is to what."""

from functools import partial
from typing import Any

from torch import Tensor

from classroom.demos.base import Demo, text_box
from classroom.demos.pieces import Heading, Piece, Problem, Share, Table
from classroom.demos.reading import label, written
from classroom.demos.rendering import View, short
from labkit.models.word_vectors import Near, analogy, neighbours
from labkit.text.tokenizers import Tokenizer

SHOWN = 8
KEPT = 40
"""How many words a page without a kernel can ask about."""


def vectors_view(word: str, question: str, vectors_VD: Tensor, tokenizer: Tokenizer) -> View:
    """The neighbours of a word, and the answers to "a b c": a is to b as c is to …"""
    asked = question.split()
    pieces: list[Piece] = [Heading(f"Nearest to {short(word.strip()) or '…'}")]
    number, special = token_of(word, tokenizer), tokenizer.vocabulary.special
    if number is None:
        said = f"“{word[:40]}” is not one word of the vocabulary."
        pieces.append(Problem(said if word.strip() else "Write a word."))
    else:
        found = neighbours(vectors_VD, vectors_VD[number], SHOWN, leave_out=(number, *special))
        pieces.append(near_table(found, tokenizer, "neighbours"))
    numbers = [token_of(one, tokenizer) for one in asked]
    known = [n for n in numbers if n is not None]
    if len(asked) != 3 or len(known) != 3:
        unknown = [w[:40] for w, n in zip(asked, numbers, strict=True) if n is None][:5]
        said = f" Not in the vocabulary: {', '.join(unknown)}." if unknown else ""
        pieces.append(Problem(f"Enter three words, such as: man king woman.{said}"))
    else:
        a, b, c = asked
        pieces.append(Heading(f"{a} is to {b} as {c} is to …"))
        found = analogy(vectors_VD, known[0], known[1], known[2], SHOWN + len(special))
        pieces.append(near_table(found, tokenizer, "analogy"))
    return View.of("vectors", *pieces)


def token_of(word: str, tokenizer: Tokenizer) -> int | None:
    """The token of a word that is one token."""
    special = tokenizer.vocabulary.special
    for one in (word.strip(), word.strip().lower()):
        tokens = tokenizer.encode(written(one))
        if len(tokens) == 1 and tokens[0] not in special:
            return tokens[0]
    return None


def near_table(found: Near, tokenizer: Tokenizer, name: str) -> Table:
    """The nearest words with their cosines, without special tokens."""
    rows = [
        (label(tokenizer, token), Share(cosine))
        for token, cosine in zip(found.words.tolist(), found.cosines.tolist(), strict=True)
        if token not in tokenizer.vocabulary.special
    ]
    return Table(("word", "cosine"), tuple(rows[:SHOWN]), name)


def vectors_demo(model: Any, tokenizer: Tokenizer, word: str, question: str = "") -> Demo:
    """Query a table of word vectors: a tensor [V, D], or a model that has one."""
    vectors_VD = model if isinstance(model, Tensor) else model.backbone.token.weight.detach()
    draw = partial(vectors_view, vectors_VD=vectors_VD, tokenizer=tokenizer)
    controls = {
        "word": text_box("word", word, rows=1),
        "question": text_box("a b c", question, rows=1),
    }
    names = [label(tokenizer, token) for token in range(len(tokenizer))]
    words = [name for name in names if name.isalpha() and token_of(name, tokenizer) is not None]
    some = words[:: max(1, len(words) // KEPT)]
    return Demo("vectors", draw, controls, kept={"word": [word, *sorted({*some} - {word})]})
