"""Mistakes in text, corpus, weights and files, made on purpose, and the checks that find them.

They join the table of `mutants.py`; their checks are tests of the same files.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import test_checks
import test_corpus_batches
import test_corpus_text
import test_corpus_tokens
import test_files
import test_tokenizers
import torch
from mutants import OURS, Mutant, instead, put

from labkit import checks
from labkit.chance import shuffled
from labkit.corpus import batches, pairs, rows
from labkit.keeping import files, token_files
from labkit.text import documents, tokenizer_files, tokenizers, tokens
from labkit.weights import release_names, tensors

# ---- text --------------------------------------------------------------------------------------


def leaves_its_flag_on(self, text, special=False):
    # On the tokenizer, whose `encode` is put back: other tests use its library.
    self.left_on = special or getattr(self, "left_on", False)
    library = self._library_of_special if self.left_on else self.library
    return list(library.encode(text, add_special_tokens=False).ids)


def any_separator_ends_a_line(path):
    return path.read_text(encoding="utf-8").splitlines()


def no_check(*given):
    return None


def the_last_word_for_minus_one(self, given):
    return [int(token) % len(self) for token in given]


def learns_from_words_of_any_length(texts):
    return iter(texts)


def white_space_is_lost(text):
    return tuple(part.strip() for part in sentences_of(text))


sentences_of = documents.sentences


def by_the_whole_pair(document):
    """Pairs with one first text stand on both sides."""
    return number_of(documents.Document((document.text,)))


number_of = documents._number


# ---- corpus ------------------------------------------------------------------------------------


def one_order_for_ever(count, *parts):
    return shuffled(count, *(part for part in parts if not isinstance(part, int)))


def a_stream_is_always_fresh(self, examples, chance):
    return batches.replace(streams_of(self, examples, chance), fresh=torch.ones(len(examples)) > 0)


streams_of = batches.Streams.rows_of


def the_row_begins_a_document(marked_BT, examples, apart=False):
    batch = unmark_of(marked_BT, examples, apart)
    words_BT = batch.words - batch.words[:, :1]
    return rows.Batch(**{**vars(batch), "words": words_BT // 2})


unmark_of = rows.unmark


def the_first_loses_its_end(a, b, room):
    if b is None:
        return cut_of(a, b, room)
    size = rows.np.minimum(a.size, room // 2)
    end = rows.np.minimum(b.end, b.start + room - size)
    return rows.Bounds(a.start, a.start + size), rows.Bounds(b.start, end)


cut_of = rows._cut


def never_the_same_words(self, one, other, document):
    return rows.np.zeros(len(one), dtype=bool)


def labels_by_the_alphabet(labels):
    return tuple(sorted(set(labels)))


# ---- files and weights -------------------------------------------------------------------------


@contextlib.contextmanager
def written_in_place(path: Path, *, folder: bool = False, **how: Any) -> Iterator[Path]:
    if folder:
        path.mkdir(exist_ok=True)
    yield path


@contextlib.contextmanager
def named_before_it_is_on_disk(path: Path, **how: Any) -> Iterator[Path]:
    with patch.object(files, "to_disk"), replacing_of(path, **how) as draft:
        yield draft
    files.to_disk(path)


replacing_of = files.replacing


def every_unfinished_file_goes(folder):
    for path in folder.glob(f"{files.UNFINISHED}*"):
        files._delete(path)


def all_checksums_are_equal(entry):
    return ""


def truth_is_a_number(name, given, least=0, most=checks.LARGEST_SIZE):
    if not least <= given <= most:
        raise ValueError(f"{name} is {given}: give a whole number from {least} to {most:,}")


MUTANTS = [
    Mutant(
        "encode(special=True) leaves its flag on",
        OURS,
        instead(tokenizers.Tokenizer, "encode", leaves_its_flag_on),
    ),
    Mutant(
        "U+2028 and form feeds end a line of vocab.txt",
        "HF tokenization_bert",
        put(tokenizer_files._lines, any_separator_ends_a_line),
    ),
    Mutant("ids of a tokenizer are not checked", OURS, put(tokenizer_files._check_ids, no_check)),
    Mutant("merges are not checked", OURS, put(tokenizer_files._check_merges, no_check)),
    Mutant(
        "decoding token -1 gives the last word",
        "any table that is indexed",
        instead(tokenizers.Tokenizer, "_known", the_last_word_for_minus_one),
    ),
    Mutant(
        "words of any length are learned from",
        "the tokenizers library",
        put(tokenizers._learnable, learns_from_words_of_any_length),
    ),
    Mutant("sentences lose their white space", OURS, put(documents.sentences, white_space_is_lost)),
    Mutant(
        "premises stand on both sides of a split",
        "as in many splits by row",
        put(documents._number, by_the_whole_pair),
    ),
    Mutant("label 10 comes before label 2", OURS, put(documents.ordered, labels_by_the_alphabet)),
    Mutant("a cache of tokens is not verified", OURS, put(token_files.damage, no_check)),
    Mutant("tokens out of range are taken", OURS, instead(tokens.Tokens, "_check", no_check)),
    Mutant("all epochs have one order", OURS, put(batches.shuffled, one_order_for_ever)),
    Mutant(
        "a stream never goes on",
        OURS,
        instead(batches.Streams, "rows_of", a_stream_is_always_fresh),
    ),
    Mutant("two words share a number", OURS, put(rows.unmark, the_row_begins_a_document)),
    Mutant(
        "a pair is cut where its two texts meet",
        "HF truncation: longest first",
        put(rows._cut, the_first_loses_its_end),
    ),
    Mutant(
        "the true next sentence is drawn as a false one",
        "the original BERT",
        instead(pairs.Pairs, "_same", never_the_same_words),
    ),
    Mutant("a file is overwritten, not replaced", OURS, put(files.replacing, written_in_place)),
    Mutant(
        "a file has its name before it is on the disk",
        "os.replace without fsync",
        put(files.replacing, named_before_it_is_on_disk),
    ),
    Mutant(
        "what another process writes is removed",
        OURS,
        put(files._remove_abandoned, every_unfinished_file_goes),
    ),
    Mutant(
        "weights are not compared with their checksums",
        OURS,
        put(tensors.checksum, all_checksums_are_equal),
    ),
    Mutant("shapes of weights are not compared", OURS, put(tensors.check, no_check)),
    Mutant(
        "GPT-2's matrices are not transposed",
        "nanoGPT's list of names, one forgotten",
        lambda: patch.dict(release_names.LAYOUTS, transposed=release_names.LAYOUTS["same"]),
    ),
    Mutant("True counts as the size 1", OURS, put(checks.check_whole, truth_is_a_number)),
]


# ---- the checks --------------------------------------------------------------------------------


def within(check: Callable[..., None], *given: Any, **named: Any) -> Callable[[], None]:
    """A test that is given an empty folder before what else it takes."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            check(Path(folder), *given, **named)

    return run


def each(check: Callable[..., None], *cases: Any) -> Callable[[], None]:
    """A test for some of its cases."""

    def run() -> None:
        for case in cases:
            check(case)

    return run


def replaced_on_disk() -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as monkeypatch:
        test_files.test_everything_is_on_disk_before_it_has_its_name(Path(folder), monkeypatch)


def releases(name: str, *given: Any) -> Callable[[], None]:
    """A test of weights, which needs the reference implementation."""

    def run() -> None:
        import test_weights

        with tempfile.TemporaryDirectory() as folder:
            getattr(test_weights, name)(*given, tmp_path=Path(folder))

    return run


CHECKS: dict[str, Callable[[], None]] = {
    "tokenizers: special on request": test_tokenizers.test_special_is_for_one_call_only,
    "tokenizers: lines of a word list": within(
        test_tokenizers.test_only_a_line_feed_ends_a_line_of_a_word_list
    ),
    "tokenizers: damaged files": within(test_tokenizers.test_damaged_parts_are_named_with_the_file),
    "tokenizers: ids out of range": lambda: test_tokenizers.test_tokens_out_of_range_are_refused(
        "bpe", -1
    ),
    "tokenizers: words in pieces": test_tokenizers.test_long_words_are_cut_to_learn_from,
    "text: sentences": test_corpus_text.test_sentences_by_hand,
    "text: held-out pairs": within(test_corpus_text.test_pairs_with_one_first_text_are_on_one_side),
    "text: lists with labels": test_corpus_text.test_lists_with_labels,
    "tokens: a damaged cache": within(
        test_corpus_tokens.test_a_damaged_cache_is_written_again, "flipped"
    ),
    "tokens: range": test_corpus_tokens.test_tokens_out_of_range_are_refused,
    "batches: epochs": each(
        test_corpus_batches.test_each_epoch_meets_every_example_once, "windows", "next"
    ),
    "batches: streams": test_corpus_batches.test_streams_go_on_where_they_ended,
    "batches: words": each(
        test_corpus_batches.test_words_are_numbered_by_their_pieces, False, True
    ),
    "batches: where two texts meet": (
        test_corpus_batches.test_long_sentences_keep_the_place_where_they_meet
    ),
    "batches: false next sentences": (
        test_corpus_batches.test_a_sentence_with_the_words_of_the_next_one_is_no_other_one
    ),
    "files: replaced or as before": within(test_files.test_a_file_is_replaced_or_stays),
    "files: on disk first": replaced_on_disk,
    "files: what was left": within(test_files.test_what_a_killed_process_left_goes_after_a_day),
    "weights: tied copies": releases("test_a_tied_copy_must_be_a_copy"),
    "weights: another model": releases(
        "test_a_config_that_builds_another_model_is_refused", {"layers": 1}
    ),
    "weights: releases": releases(
        "test_a_release_gives_the_answers_of_the_reference", "GPT2LMHeadModel"
    ),
    "checks: whole numbers": test_checks.test_whole_numbers,
}
