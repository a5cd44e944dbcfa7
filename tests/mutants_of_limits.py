"""Mistakes in the checks of what is given or read back, and the tests that find them.

They join the table of `mutants.py`.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import test_corpus_batches
import test_corpus_tokens
import test_files
import test_inputs
import test_notes
import test_trainer_faults
import test_word_vectors
import torch
from mutants import OURS, Mutant, edited, put
from mutants_of_files import within
from test_world_exact import test_what_a_language_cannot_answer_is_refused_in_one_line as refused

from classroom.demos import alignment, recording
from labkit import checks, tensor_checks
from labkit.corpus import batch
from labkit.keeping import cache, description, files
from labkit.models import word_vectors
from labkit.objectives import base
from labkit.world import floors, hidden, load_world
from labkit.world.exact import Language


def no_check(*given: Any, **named: Any) -> None:
    return None


def cuts_fractions_off(row, number):
    return torch.tensor(row, dtype=torch.long)


def labels_of_any_kind(name, labels, *shape):
    assert labels is not None
    return labels


def a_text_of_any_size(path, most):
    return path.read_text(encoding="utf-8-sig")


def a_damaged_one_is_thrown_away(path):
    files.remove(path)


MUTANTS = [
    Mutant("a slider has another name than in the speaker's notes", OURS,
           edited(alignment, "alignment_demo", 'slider("beta"', 'slider("strength"')),
    Mutant("a token of 1.7 is the token 1", "torch.tensor(…, dtype=torch.long)",
           put(batch._whole, cuts_fractions_off)),
    Mutant("an answer that the head does not know is looked for", "ignore_index=-100",
           put(tensor_checks.check_targets, no_check)),
    Mutant("labels may be any numbers", OURS, put(base.check_labels, labels_of_any_kind)),
    Mutant("a segment that the model does not have is looked for", OURS,
           put(tensor_checks.check_segments, no_check)),
    Mutant("the word -1 is the last one", "Python's indices",
           put(word_vectors._check_numbers, no_check)),
    Mutant("a text that was not split is a list of its letters", "any sequence of texts",
           put(checks.check_words, no_check)),
    Mutant("the same position is hidden twice", OURS,
           edited(hidden, "hide", "len(set(positions)) < len(positions)", "False")),
    Mutant("True is the position 1", "numbers.Integral",
           edited(checks, "is_whole", " and not isinstance(given, bool)", "")),
    Mutant("the floor of a text that there cannot be", OURS,
           put(floors._possible, floors.mean_of)),
    Mutant("a document is read by the numbers of another language", OURS,
           edited(Language, "numbers", " if words.machine is self.machine", " if True")),
    Mutant("a text file of any size is read", OURS, put(files.read_text, a_text_of_any_size)),
    Mutant("a damaged file is thrown away", OURS,
           put(files.set_aside, a_damaged_one_is_thrown_away)),
    Mutant("the cache counts every JSON file as its own", OURS,
           lambda: patch.object(cache, "OWN", cache.re.compile(r".+\.json"))),
    Mutant("a recording of any size is unpacked", "zip bombs",
           edited(recording, "unpacked", "len(data) > LARGEST", "False")),
    Mutant("the facts of a checkpoint are taken as they are", OURS,
           put(description.check_sound, no_check)),
    Mutant("an optimizer's values need not fit their weights", OURS,
           edited(description, "_unsound", "tensor.shape != weight.shape", "False")),
]  # fmt: skip


# ---- the checks --------------------------------------------------------------------------------


def asked(ask: Callable[[Any, list[str]], Any]) -> Callable[[], None]:
    """A question that the smallest language refuses in one line."""
    return lambda: refused(ask)


def labels_are_refused() -> None:
    """Labels that are too high, halves, or of another kind."""
    for pairing in test_inputs.LABELLED[:2]:
        test_inputs.test_every_objective_refuses_labels_that_its_head_does_not_know(pairing)


def of_another_language() -> None:
    village, journey = load_world("village"), load_world("journey")
    document = village.sample(documents=1)[0]
    assert (journey.numbers(document) == journey.numbers(document.words)).all()


def only_what_bears_a_digest() -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        patch.dict(cache.os.environ, LABKIT_CACHE=name, LABKIT_CACHE_SHARED=""),
    ):
        cache.kept_json("key", lambda: 1)
        (Path(name) / "kept" / "mine.json").write_text(json.dumps(2))
        assert len(cache.files()) == 1


def recordings_have_a_limit() -> None:
    with patch.object(recording, "LARGEST", 10), pytest.raises(ValueError, match="more than 10"):
        recording.unpacked(recording.packed("a" * 100))


def states_fit_their_weights() -> None:
    with tempfile.TemporaryDirectory() as folder:
        test_trainer_faults.test_tensors_that_do_not_fit_are_refused_before_anything_is_touched(
            "optimizer",
            lambda values: values.update({name: torch.zeros(7) for name in values}),
            "fit no weight",
            Path(folder),
        )


CHECKS: dict[str, Callable[[], None]] = {
    "notes: names of controls": lambda: test_notes.test_the_controls_that_notes_name_are_there(
        test_notes.NOTEBOOKS[7]
    ),
    "rows of whole numbers": lambda: (
        test_corpus_batches.test_rows_of_anything_but_whole_numbers_are_refused([1.7])
    ),
    "labels of a head": labels_are_refused,
    "segments of a model": lambda: test_inputs.test_segments_that_a_model_does_not_have(2),
    "neighbours of words": lambda: test_word_vectors.test_neighbours_of_what_is_no_word_are_refused(
        lambda table: word_vectors.analogy(table, 0, 1, -1)
    ),
    "language: words": asked(lambda world, words: world.log_probability(" ".join(words))),
    "language: positions twice": asked(lambda world, words: world.joint(words, [1, 1])),
    "language: True": asked(lambda world, words: world.joint(words, [True])),
    "language: impossible texts": asked(lambda world, words: world.floor("next", [["atlantis"]])),
    "language: numbers": asked(lambda world, words: world.next_word(np.array([-1]))),
    "language: another one": of_another_language,
    "files: limits": within(test_files.test_a_text_file_is_read_up_to_a_limit),
    "tokens: set aside": within(test_corpus_tokens.test_a_damaged_cache_is_written_again, "lost"),
    "cache: its own files": only_what_bears_a_digest,
    "recordings: limits": recordings_have_a_limit,
    "checkpoints: facts": within(
        lambda folder: test_trainer_faults.test_facts_that_no_run_has_written_are_refused(
            "scale", -1.0, folder
        )
    ),
    "checkpoints: shapes": states_fit_their_weights,
}
