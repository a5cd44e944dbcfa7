"""Mistakes in the encoder-decoder, in what it is trained on and in how it is judged."""

from collections.abc import Callable
from typing import Any

import test_transformer
import test_translating
from mutants import OURS, Mutant, edited, put

from classroom.tasks import translating
from labkit.models import transformer
from labkit.models.transformer import DecoderBlock, Transformer
from labkit.objectives import Translation
from labkit.writing import translator


def unshifted(answers_BT: Any, begin: int) -> Any:
    return answers_BT


def rolled(answers_BT: Any, begin: int) -> Any:
    return answers_BT.roll(1, dims=1)


MUTANTS = [
    Mutant(
        "the decoder reads the word it predicts", OURS, put(transformer.teacher_forced, unshifted)
    ),
    Mutant(
        "the decoder begins with the last answer",
        "torch.roll instead of a shift",
        put(transformer.teacher_forced, rolled),
    ),
    Mutant(
        "the decoder looks at the padding of the source",
        "nn.Transformer without memory_key_padding_mask",
        edited(DecoderBlock, "forward", "source_BKD, mask=source_mask", "source_BKD, mask=None"),
    ),
    Mutant(
        "the encoder looks at the padding",
        "nn.Transformer without src_key_padding_mask",
        edited(Transformer, "encode", "block(layers[-1], mask=mask)", "block(layers[-1])"),
    ),
    Mutant(
        "the objective forgets the padding of the source",
        OURS,
        edited(Translation, "forward", "source_mask=mask", "source_mask=None"),
    ),
    Mutant(
        "the padding of the target is predicted",
        "cross_entropy without ignore_index",
        edited(Translation, "targets", "(words, labels)", "(labels >= -1, labels.abs())"),
    ),
    Mutant(
        "the right word keeps its whole weight when targets are smoothed",
        OURS,
        edited(Translation, "terms", "1 - self.smoothing", "1.0"),
    ),
    Mutant(
        "a search goes on with no memory of what is written",
        OURS,
        edited(translator._WithSource, "forward", "memory=memory)", "memory=())"),
    ),
    Mutant(
        "sentences of the test are trained on",
        OURS,
        edited(translating, "pairs", "== (split !=", ">= (split !="),
    ),
    Mutant(
        "the alignment is read off the decoder's self-attention",
        OURS,
        edited(translating, "cross_attention", "found[1::2]", "found[::2]"),
    ),
    Mutant(
        "the alignment is read one word late",
        "where attention belongs to the word just read",
        edited(translating, "aligned", "[:words, :sources]", "[1 : words + 1, :sources]"),
    ),
    Mutant(
        "words without a source count in the alignment",
        OURS,
        edited(translating, "aligned", "if true.sum() > 0.5", "if true.sum() >= 0"),
    ),
    Mutant(
        "BLEU's output and references are swapped",
        "sacrebleu's and NLTK's orders of arguments",
        edited(translating, "bleu", "(texts, [references],", "(references, [texts],"),
    ),
    Mutant(
        "BLEU is given one reference for each character",
        "sacrebleu with references instead of [references]",
        edited(translating, "bleu", '[" ".join(words) for', '["".join(words) for'),
    ),
    Mutant(
        "errors of the search and of the model are swapped",
        OURS,
        edited(translating, "errors", "max(others) > own", "max(others) < own"),
    ),
]

CHECKS: dict[str, Callable[[], None]] = {
    "teacher forcing": test_transformer.test_teacher_forcing_never_shows_the_answer_that_is_asked,
    "source padding": test_transformer.test_padding_of_the_source_and_other_rows_change_nothing,
    "translation: padding": test_translating.test_a_word_of_the_padding_changes_nothing,
    "translation: smoothing": lambda: (
        test_translating.test_the_loss_is_smoothed_cross_entropy_after_the_right_words(0.1)
    ),
    "beam by enumeration": test_translating.test_a_wide_beam_finds_what_enumeration_finds,
    "splits": test_translating.test_no_sentence_is_in_both_splits,
    "cross-attention": lambda: test_translating.check_cross_attention(
        translating.transformer(0, width=16, layers=1).eval()
    ),
    "alignment": (
        test_translating.test_aligned_asks_for_the_largest_weight_where_a_word_has_a_source
    ),
    "BLEU": test_translating.test_bleu_is_that_of_the_written_words_against_the_references,
    "errors": test_translating.test_an_error_is_the_search_s_or_the_model_s,
}
