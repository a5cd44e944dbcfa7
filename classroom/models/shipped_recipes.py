"""How the models that ship with the course are trained and measured: `RECIPES`."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from classroom.claims import village
from classroom.models.knowing import known_words
from classroom.models.recipes import (
    CourseText,
    Shuffled,
    course_text,
    random_words,
    untrained_awd_lstm,
    untrained_elmo,
    untrained_transformer_xl,
    untrained_xlnet,
)
from classroom.models.shipped import trained
from classroom.models.training import (
    Ending,
    Measured,
    Recipe,
    Run,
    Shipped,
    bert_run,
    carry_out,
    gpt_run,
    windows_of,
)
from classroom.tasks import instructions, realtext, scores, tagging, translating
from labkit import fast
from labkit.alignment import Reinforce, Rollouts, ceiling, gold, policies, reference_of
from labkit.alignment import measured as exactly
from labkit.alignment.preferences import AnswerTokens
from labkit.blocks import LanguageModel, Model
from labkit.chance import Chance
from labkit.corpus import Batch, Streams, from_documents, pad_rows, tokenize
from labkit.objectives import (
    BothDirections,
    Labels,
    NextToken,
    Permutation,
    Targets,
    Translation,
)
from labkit.text.tokenizers import Tokenizer
from labkit.trainer import evaluate

# ---- languages whose probabilities are known


def _text(language: str, words: int = 1_000) -> CourseText:
    """This many words to learn from, and always the same held-out documents."""
    return course_text(language, words=words, held_out=20_000, seed=0)


def _gpt_of_language(language: str, words: int, recipe: Recipe) -> Run:
    text = _text(language, words)
    return gpt_run(recipe, text.train, text.tokenizer)


def _measure_next(
    language: str, length: int, model: LanguageModel, tokenizer: Tokenizer
) -> Measured:
    """The loss on the first words of held-out documents."""
    text = _text(language)
    found = evaluate(model, NextToken(), text.tests(length))
    return Measured("nats per word", found.loss, text.floor("next", length))


def _elmo_village(recipe: Recipe) -> Run:
    model = untrained_elmo(_text("village"), width=recipe.width, layers=recipe.layers)
    texts = village.sentences("train", 2_000_000)
    batches = village.rows(texts, batch=recipe.batch, seed=recipe.seed)
    return Run(model, village.tokenizer(), BothDirections(), batches)


def _measure_elmo_village(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    texts = village.sentences("held_out", 20_000)
    found = evaluate(model, BothDirections(), village.rows(texts, batch=500).once())
    return Measured("nats per word, both directions", found.loss, village.sentence_floor(texts))


def _bert_village(recipe: Recipe) -> Run:
    texts = village.sentences("train", 2_000_000)
    model = village.encoder(recipe.seed, width=recipe.width, layers=recipe.layers)
    batches = village.rows(texts, batch=recipe.batch, seed=recipe.seed)
    return Run(model, village.tokenizer(), village.masked(), batches)


def _measure_bert_village(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked = village.blanks(2_000)
    found = village.cloze(model, asked)
    return Measured("nats per hidden word", sum(found) / len(found), float(asked.both.mean()))


# The course's language: windows of documents, since its sentences depend on those before. Large
# batches matter most: on an H100, in four minutes beside other work, AWD-LSTM ended 0.107 nats
# above the floor (12,700 steps), ELMo 0.148 (3,300), a BERT with learned positions 0.187 (3,500).
# On two cores of an EPYC AWD-LSTM ended 0.197 above the floor with batches of 32 (24,000 steps, a
# rate of 1e-2, 65 minutes), and 0.123 with those of the recipe (77 minutes); in float32 it was
# 0.121, so it was not the precision. Of its own eight million words it was 0.097 above the floor:
# it knew some by heart. The ending, in longer segments of more words, brought it to 0.092. BERT
# needed rotary positions, and an ending in which fewer words are hidden.
# ELMo, in the size for which there is room, ended 0.122 above the floor after 180 million words as
# they were drawn (11,000 steps with batches of 256, two processes, 128 minutes), and 0.104 from the
# probabilities of the words (15,000 steps with batches of 64, 78 minutes). The ending, in windows
# that lie within one document, as those that it is measured on, brought it to 0.097,
# and to 0.099 with its matrices rounded.
COURSE_WORDS = 8_000_000
"""How many words each of these models can learn from."""
MORE_WORDS = 60_000_000
"""How many ELMo can learn from, and AWD-LSTM in its ending, which knew some of eight million by
heart."""
KNOWN_WORDS = 5_000_000
"""How many ELMo learns from, not as they were drawn but with the probability of each."""
ENDING_WORDS = 3_750_000
"""How many more it learns from in its ending, in windows that lie within one document."""


def _awd_course(recipe: Recipe) -> Run:
    text = _text("language", COURSE_WORDS)
    model = untrained_awd_lstm(
        text.vocabulary, recipe.width, inner=2 * recipe.width, layers=recipe.layers,
        seed=recipe.seed,
    )  # fmt: skip
    batches = Streams(text.train, batch=recipe.batch, length=recipe.length, seed=recipe.seed)
    objective, more = NextToken(carry=True), None
    if recipe.ending is not None:
        tokens = _text("language", MORE_WORDS).train
        length = recipe.ending.length or recipe.length
        more = objective, Streams(tokens, batch=recipe.batch, length=length, seed=recipe.seed)
    return Run(model, text.tokenizer, objective, batches, ending=more)


def _elmo_course(recipe: Recipe) -> Run:
    text = _text("language", KNOWN_WORDS)
    model = untrained_elmo(
        text, seed=recipe.seed, width=recipe.width, inner=recipe.inner, layers=recipe.layers,
        kernels=((1, 8), (2, 16), (3, 48)),
    )  # fmt: skip
    windows = windows_of(recipe, text.train)
    rows = torch.cat([batch.tokens for batch in windows.once()])
    others = [list(document.words) for document in
              text.language.sample(words=ENDING_WORDS, seed=1, split="train")]  # fmt: skip
    inside = torch.tensor([text.numbers(words) for words in _windows_within(others, recipe.length)])
    ending = known_words(text, inside), Shuffled(Batch.of(inside), recipe.batch, recipe.seed)
    return Run(model, text.tokenizer, known_words(text, rows), windows, ending=ending)


def _windows_within(documents: Iterable[list[str]], length: int) -> list[list[str]]:
    """Windows of documents that hold neither a beginning nor an end."""
    return [words[start : start + length] for words in documents
            for start in range(1, len(words) - length, length)]  # fmt: skip


def _measure_elmo_course(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    """Both directions have the same floor: the first word of a window, or its last, is given."""
    text = _text("language")
    windows = _windows_within(text.documents, 64)
    batch = Batch.of(*pad_rows([text.numbers(words) for words in windows]))
    with torch.no_grad():
        found = evaluate(model, BothDirections(), [batch])
    ahead = text.language.log_probabilities(windows, start="anywhere")
    back = text.language.log_probabilities(windows, direction="backward")
    logs = [log[1:] for log in ahead] + [log[:-1] for log in back]
    return Measured(
        "nats per word, both directions", found.loss, -float(np.concatenate(logs).mean())
    )


def _bert_course(recipe: Recipe) -> Run:
    text = _text("language", COURSE_WORDS)
    frequencies = random_words(text.world, text.tokenizer)
    return bert_run(recipe, text.train, text.tokenizer, frequencies)


def _measure_bert_course(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    """One hidden word of each window at a time, at sixteen positions."""
    text, mask = _text("language"), tokenizer.vocabulary.mask
    assert mask is not None
    length = model.backbone.config.context - 2
    random = np.random.default_rng(0)
    asked = [(words, int(position)) for words in _windows_within(text.documents, length)
             for position in random.integers(length, size=16)]  # fmt: skip
    requests: Any = [(text.language.numbers(words), [position], {}) for words, position in asked]
    best = text.language.distributions(requests, "anywhere")
    lowest = [-np.log(one[0, words[position]])
              for one, (words, [position], _) in zip(best, requests, strict=True)]  # fmt: skip
    rows = text.framed(words for words, _ in asked)
    each, positions = torch.arange(len(rows)), torch.tensor([1 + position for _, position in asked])
    targets = rows[each, positions]
    rows[each, positions] = mask
    head: Any = model.head
    with torch.no_grad():
        states = torch.cat([model.backbone(part).hidden for part in rows.split(64)])
        found = head.losses_N(states[each, positions], targets)
    return Measured(
        "nats per hidden word, one at a time", float(found.mean()), float(np.mean(lowest))
    )


PAIRS = 60_000
"""Sentences that the translator and the tagger learn from."""


def _translation(recipe: Recipe) -> Run:
    pairs = translating.pairs("train", PAIRS)
    batches = translating.pair_batches(pairs, batch=recipe.batch, seed=recipe.seed)
    model = translating.transformer(recipe.seed, width=recipe.width, layers=recipe.layers)
    return Run(model, translating.tokenizer(), Translation(begin=translating.begin()), batches)


def _measure_translation(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked = translating.pairs("held_out", 1_000)
    found = evaluate(
        model,
        Translation(begin=translating.begin()),
        translating.pair_batches(asked, batch=250).once(),
    )
    return Measured("nats per word", found.metrics["words"], translating.floor(asked))


def _tagger(recipe: Recipe) -> Run:
    sentences = [pair.source for pair in translating.pairs("train", PAIRS)]
    batches = tagging.tagged(sentences, batch=recipe.batch, seed=recipe.seed)
    model = tagging.tagger("Transformer", recipe.seed, width=recipe.width)
    return Run(model, translating.tokenizer(), Labels(position="each"), batches)


def _measure_tagger(model: Model, tokenizer: Tokenizer) -> Measured:
    sentences = [pair.source for pair in translating.pairs("held_out", 1_000)]
    asked = tagging.tagged(sentences, batch=250, seed=1)
    found = evaluate(model, Labels(position="each"), asked.once())
    return Measured("nats per tag", found.metrics["label"], tagging.tag_floor(asked, sentences))


def _journey(words: int) -> CourseText:
    return course_text("journey", words=words, held_out=12_000, seed=0)


def _xl_journey(recipe: Recipe) -> Run:
    text = _journey(1_000_000)
    model = untrained_transformer_xl(
        text.vocabulary, recipe.width, recipe.length, 32, layers=recipe.layers, seed=recipe.seed
    )
    batches = Streams(text.train, batch=recipe.batch, length=recipe.length, seed=recipe.seed)
    return Run(model, text.tokenizer, NextToken(carry=True), batches)


def _measure_xl_journey(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    text = _journey(1_000)
    stream = Streams(text.held_out, batch=1, length=16).once()
    found = evaluate(model, NextToken(carry=True), stream)
    floor = text.floor("next", max(map(len, text.documents)))
    return Measured("nats per word", found.loss, floor)


def _xlnet_journey(recipe: Recipe) -> Run:
    text = _journey(1_000_000)
    model = untrained_xlnet(text.vocabulary, recipe.width, layers=recipe.layers, seed=recipe.seed)
    objective = Permutation(vocabulary=text.tokenizer.vocabulary)
    return Run(model, text.tokenizer, objective, windows_of(recipe, text.train, framed=True))


def windows_in_any_order(text: CourseText, length: int) -> tuple[Targets, float]:
    """What XLNet's objective asks for in windows of held-out documents, and its exact floor."""
    windows = _windows_within(text.documents, length)
    rows = text.framed(windows)
    batch = Batch.of(rows, torch.ones_like(rows, dtype=torch.bool))
    objective = Permutation(vocabulary=text.tokenizer.vocabulary)
    targets = objective.targets(batch, Chance(0, 0, batch.rows))
    assert targets.order is not None
    asked = [row.nonzero()[:, 0].sub(1).tolist() for row in targets.order.predicted]
    numbers = map(text.language.numbers, windows)
    logs = text.language.joints(list(zip(numbers, asked, strict=True)), start="anywhere")
    return targets, -sum(logs) / sum(map(len, asked))


def _measure_xlnet_journey(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    targets, floor = windows_in_any_order(_journey(1_000), 30)
    with torch.no_grad():
        found = float(Permutation(vocabulary=tokenizer.vocabulary).loss(model, targets).loss)
    return Measured("nats per predicted word", found, floor)


# ---- addresses of presidents


def _addresses() -> list[str]:
    """The addresses to learn from; refuses to begin without them."""
    texts = realtext.texts(held_out=False)
    if not texts:
        raise ValueError("without the addresses there is nothing to train on")
    return texts


def _gpt_addresses(recipe: Recipe) -> Run:
    texts = _addresses()
    tokenizer = Tokenizer.bpe(texts, 4_000)
    return gpt_run(recipe, tokenize(from_documents(texts), tokenizer), tokenizer)


def _measure_gpt_addresses(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    window = model.backbone.config.context - 1
    found = {
        str(one.number): realtext.nats_per_byte(model, tokenizer, one.text, window=window)
        for one in scores.measured_addresses()
    }
    return _by_text("nats per byte", found)


def _by_text(unit: str, found: dict[str, float]) -> Measured:
    """The mean loss on the addresses, which weigh alike, and the loss on each."""
    mean = sum(found.values()) / len(found)
    by_text = {number: round(loss, 3) for number, loss in found.items()}
    return Measured(unit, mean, None, by_text, realtext.repeated())


def _bert_addresses(recipe: Recipe) -> Run:
    texts = _addresses()
    tokenizer = Tokenizer.word_pieces(texts, 4_000)
    return bert_run(recipe, tokenize(from_documents(texts), tokenizer), tokenizer)


def _measure_bert_addresses(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    length = model.backbone.config.context
    found = {
        number: sum(realtext.blank_losses(model, tokenizer, asked, length=length)) / scores.BLANKS
        for number, asked in scores.blanks(tokenizer).items()
    }
    return _by_text("nats per hidden piece, one at a time", found)


# ---- a model that answers (notebook 07)


def _base(recipe: Recipe) -> Run:
    words = instructions.tokenizer()
    return gpt_run(recipe, tokenize(from_documents(instructions.plain("train")), words), words)


def _measure_base(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    tests = instructions.plain("held_out", 1_000)
    found = evaluate(model, NextToken(), instructions.base_tests(tests))
    return Measured("nats per word", found.loss, instructions.plain_floor(tests))


def _tuned(recipe: Recipe) -> Run:
    model, words = trained("gpt-base")
    rows = instructions.Rows(instructions.conversations("train"), recipe.batch, recipe.seed)
    return Run(model, words, AnswerTokens(), rows)


def _measure_tuned(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    rows, floor = instructions.answer_tests(1_000)
    return Measured("nats per token of an answer", evaluate(model, AnswerTokens(), [rows]).loss,
                    floor)  # fmt: skip


def _rewarded(recipe: Recipe) -> Run:
    model, words = trained("gpt-tuned")
    asked = instructions.questions()
    rollouts = Rollouts(
        model=model, reference=reference_of(model), prompts=[one.prompt for one in asked],
        reward=gold(asked), settings=instructions.answering(), batch=recipe.batch, group=8,
        seed=recipe.seed,
    )  # fmt: skip
    return Run(model, words, Reinforce(beta=instructions.BETA, group=8), rollouts)


def _measure_rewarded(model: LanguageModel, tokenizer: Tokenizer) -> Measured:
    asked, beta = instructions.questions(), instructions.BETA
    reference = policies(trained("gpt-tuned")[0], asked)
    found = exactly(policies(model, asked), reference, asked, beta)
    best = ceiling(reference, asked, beta)
    return Measured("reward that is left to the ceiling", best - found.value, None)


# ---- all recipes


RECIPES = {
    "gpt-village": Shipped(
        Recipe(
            "4 million words of the village", steps=3_000, batch=16, length=128, width=128,
            layers=2, rate=1e-2,
        ),
        partial(_gpt_of_language, "village", 4_000_000),
        partial(_measure_next, "village", 128),
    ),
    "elmo-village": Shipped(
        Recipe(
            "the sentences of 2 million words of the village, one a row", steps=3_000, batch=64,
            length=village.LONGEST, width=64, layers=2, rate=1.2e-2,
        ),
        _elmo_village,
        _measure_elmo_village,
    ),
    "bert-village": Shipped(
        Recipe(
            "the sentences of 2 million words of the village, one a row", steps=6_000, batch=64,
            length=village.LONGEST, width=64, layers=2, rate=1e-2,
        ),
        _bert_village,
        _measure_bert_village,
    ),
    "gpt-course": Shipped(
        Recipe(
            "8 million words of the course's language", steps=8_000, batch=16, length=256,
            width=128, layers=2, rate=1e-2, precision="bfloat16",
            shorter=((32, 800), (64, 500), (128, 500)),
        ),
        partial(_gpt_of_language, "language", COURSE_WORDS),
        partial(_measure_next, "language", 256),
    ),
    "awd-course": Shipped(
        Recipe(
            "8 million words of the course's language in segments that follow each other; in the "
            "ending 60 million",
            steps=20_000, batch=128, length=64, width=128, layers=2, rate=1.5e-2,
            precision="bfloat16", ending=Ending(8_000, rate=0.5, length=128), grain=10,
        ),
        _awd_course,
        partial(_measure_next, "language", 256),
    ),
    "elmo-course": Shipped(
        Recipe(
            "5 million words of the course's language, in windows of 64, and the probability of "
            "each word that may stand there; in the ending 3.75 million others, in windows within "
            "one document",
            steps=15_000, batch=64, length=64, width=96, layers=2, rate=1.2e-2,
            precision="bfloat16", inner=128, ending=Ending(5_000, rate=0.5), grain=16,
        ),
        _elmo_course,
        _measure_elmo_course,
    ),
    "bert-course": Shipped(
        Recipe(
            "8 million words of the course's language, in windows of 128", steps=15_000, batch=64,
            length=128, width=128, layers=3, rate=6e-3, precision="bfloat16", hidden=0.4,
            ending=Ending(2_500, hidden=0.15), betas=(0.9, 0.999), rotary=True, heads=8,
            inner=256, grain=16,
        ),
        _bert_course,
        _measure_bert_course,
    ),
    "translation": Shipped(
        Recipe(
            f"{PAIRS:,} sentences with a drawn translation", steps=4_000, batch=64, length=20,
            width=64, layers=2, rate=1e-2,
        ),
        _translation,
        _measure_translation,
    ),
    "tagger": Shipped(
        Recipe(
            f"{PAIRS:,} sentences with a tag for each word", steps=3_000, batch=64, length=12,
            width=64, layers=2, rate=1e-2,
        ),
        _tagger,
        _measure_tagger,
    ),
    "xl-journey": Shipped(
        Recipe(
            "1 million words of the journey, in segments that follow each other", steps=2_500,
            batch=32, length=16, width=64, layers=2, rate=1e-2,
        ),
        _xl_journey,
        _measure_xl_journey,
    ),
    "xlnet-journey": Shipped(
        Recipe(
            "1 million words of the journey, in windows of 32", steps=4_000, batch=32,
            length=32, width=64, layers=2, rate=1e-2,
        ),
        _xlnet_journey,
        _measure_xlnet_journey,
    ),
    "gpt-addresses": Shipped(
        Recipe(
            "213 of 237 addresses of presidents (the numbers 5, 15, … are held out), in 4,000 "
            "pieces of bytes", steps=1_500, batch=8, length=512, width=256, layers=4, rate=5e-3,
            dropout=0.15, attention_dropout=0.0, shorter=((256, 3_000),), moved=True, rotary=True,
            grain=8,
        ),
        _gpt_addresses,
        _measure_gpt_addresses,
        scores.others_of_addresses,
        realtext.READERS,
    ),
    "bert-addresses": Shipped(
        Recipe(
            "213 of 237 addresses of presidents (the numbers 5, 15, … are held out), in 4,000 "
            "word pieces", steps=24_000, batch=16, length=128, width=128, layers=4, rate=4e-3,
            precision="bfloat16", shorter=((16, 900), (32, 300), (64, 300)), hidden=0.25,
            moved=True,
        ),
        _bert_addresses,
        _measure_bert_addresses,
        scores.others_of_blanks,
        realtext.READERS,
        scores.per_byte_of_blanks,
    ),
    "gpt-base": Shipped(
        Recipe(
            "18,000 documents of facts, lists of questions and quizzes", steps=1_500, batch=16,
            length=96, width=64, layers=2, rate=1e-2,
        ),
        _base,
        _measure_base,
    ),
    "gpt-tuned": Shipped(
        Recipe(
            "22,000 conversations, after what gpt-base has read", steps=1_200, batch=64,
            length=96, width=64, layers=2, rate=6e-3,
        ),
        _tuned,
        _measure_tuned,
    ),
    "gpt-rewarded": Shipped(
        Recipe(
            "its own answers to four questions, after gpt-tuned (REINFORCE, leave one out)",
            steps=500, batch=8, length=96, width=64, layers=2, rate=2e-3,
        ),
        _rewarded,
        _measure_rewarded,
    ),
}  # fmt: skip


# ---- training by a recipe


def train(
    name: str,
    folder: Path,
    say: Callable[[str], None] = print,
    checkpoints: Path | None = None,
) -> dict[str, Any]:
    """Train a model by its recipe, write it with its card, and return the card.

    With a folder of checkpoints, a run that was interrupted continues where it stopped, also in
    the part that reads shorter windows.
    """
    return carry_out(name, f"python -m labkit train {name}", _known(name), folder, say, checkpoints)


def measured(name: str) -> Measured:
    """Measure a model that ships, as its card says."""
    model, tokenizer = trained(name)
    with fast.enable():
        return _known(name).measure(model, tokenizer)


def _known(name: str) -> Shipped:
    if name not in RECIPES:
        raise ValueError(f"there is no recipe for {name!r}: choose {', '.join(RECIPES)}")
    return RECIPES[name]
