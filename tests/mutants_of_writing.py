"""Mistakes in sampling, beams, prompts, blanks and in the faster versions, and who finds them."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
import test_attention
import test_beam
import test_decoding
import test_fast
import test_filling
import test_prompting
import test_sampling
import test_softmax
import torch
from mutants import OURS, Mutant, edited, everywhere, instead
from torch import Tensor

from labkit import fast, sampling
from labkit.fast import attention as fast_attention
from labkit.fast import decoding, dropout, replaying, softmax
from labkit.fast import nucleus as fast_nucleus
from labkit.sampling import NEVER, Sampling
from labkit.writing import beam as beams
from labkit.writing import filling, prompting, reader


def put(original: Callable, mutant: Callable) -> Callable[[], Any]:
    """Put a mutant wherever the package or a test has the original."""
    return lambda: everywhere(original, mutant, tests=True)


def faster(name: str, mutant: Callable) -> Callable[[], Any]:
    """Put a mutant in the place of a faster version."""
    return lambda: patch.dict(fast.versions(), {name: mutant})


# ---- filters -----------------------------------------------------------------------------------


def exactly_k(logits_BV, k):
    kept = logits_BV.topk(k, dim=-1).indices
    return torch.full_like(logits_BV, NEVER).scatter(-1, kept, logits_BV.gather(-1, kept))


def sorted_shares(logits_BV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    share_BV = logits_BV.softmax(dim=-1)
    best_BV = share_BV.sort(dim=-1, descending=True).values
    return share_BV, best_BV, best_BV.cumsum(dim=-1)


def one_more_at_the_boundary(logits_BV, p, *, within=False):
    share_BV, best_BV, sums_BV = sorted_shares(logits_BV)
    last_B1 = (sums_BV[..., :-1] <= p).sum(dim=-1, keepdim=True)
    return logits_BV.masked_fill(share_BV < best_BV.gather(-1, last_B1), NEVER)


def within_p(logits_BV, p, *, within=False):
    share_BV, best_BV, sums_BV = sorted_shares(logits_BV)
    last_B1 = ((sums_BV <= p).sum(dim=-1, keepdim=True) - 1).clamp(min=0)
    return logits_BV.masked_fill(share_BV < best_BV.gather(-1, last_B1), NEVER)


def nucleus_without_ties(logits_BV, p, *, within=False):
    count = int(nucleus_of(logits_BV, p).isfinite().sum(dim=-1).min())
    return exactly_k(logits_BV, max(1, count - 1)) if p < 1 else logits_BV


nucleus_of, temperature_of = sampling.nucleus, sampling.at_temperature


def temperature_multiplies(logits_BV, temperature):
    if temperature == 0:
        return temperature_of(logits_BV, 0)
    return logits_BV * temperature


def temperature_overflows(logits_BV, temperature):
    return logits_BV / temperature if temperature else temperature_of(logits_BV, 0)


def divides_all(logits_BV, seen_BT, penalty):
    return logits_BV.scatter(-1, seen_BT, logits_BV.gather(-1, seen_BT) / penalty)


def bans_even_the_last(logits_BV, words):
    banned_BV = logits_BV.clone()
    banned_BV[..., list(words)] = NEVER
    return banned_BV


stages_of = Sampling.stages


def blind_to_the_prompt(self, logits_BV, seen_BT, new_B):
    new = int(new_B.max())
    return stages_of(self, logits_BV, seen_BT[:, seen_BT.shape[1] - new :], new_B)


def minimum_counts_the_prompt(self, logits_BV, seen_BT, new_B):
    return stages_of(self, logits_BV, seen_BT, torch.full_like(new_B, seen_BT.shape[1]))


def draws_what_is_impossible(logits_BV, uniform_B):
    share_BV = logits_BV.softmax(dim=-1).cumsum(dim=-1)
    return torch.searchsorted(share_BV, uniform_B[:, None] * share_BV[:, -1:])[:, 0]


draw_of = sampling.draw


def one_draw_for_all_rows(logits_BV, uniform_B):
    return draw_of(logits_BV, uniform_B[:1].expand_as(uniform_B))


# ---- beams, prompts, blanks --------------------------------------------------------------------

beam_of = beams.beam


def penalty_counts_the_prompt(model, prompt, settings, *, beams=4, length_penalty=1.0):
    found = beam_of(model, prompt, settings, beams=beams, length_penalty=length_penalty)

    def score(text):
        return text.log_probability / (len(prompt) + len(text.tokens)) ** length_penalty

    return sorted(found, key=score, reverse=True)


def keeps_the_old_rows(self, rows):
    self.memory = reader.select(self.memory, torch.arange(len(rows)) % (int(rows.max()) + 1))


score_of = prompting.score_texts


def mean_of_the_answer(model, pairs):
    return score_of(model, pairs) / torch.tensor([len(answer) for _, answer in pairs])


blanks_of = filling.one_by_one


def other_blanks_are_seen(model, tokens, blanks, *, mask):
    return torch.cat([blanks_of(model, tokens, [blank], mask=mask) for blank in blanks])


# ---- faster versions ---------------------------------------------------------------------------

attend_fast = fast.versions()["labkit.attention.attend"]


def attend_without(*parts: str) -> Callable:
    """Attention that forgets one of its arguments when there is a mask."""

    def attend(q, k, v, *, mask=None, bias_BHQK=None, causal=False, dropout=0.0):
        given = {"mask": mask, "bias_BHQK": bias_BHQK, "causal": causal, "dropout": dropout}
        if mask is not None:
            given |= {name: None if name == "bias_BHQK" else False for name in parts}
        return attend_fast(q, k, v, **given)

    return attend


def drops_without_scaling(x, rate):
    return dropout.drop(x, rate) * (1 - rate)


def keeps_the_share(x, rate):
    return dropout.drop(x, 1 - rate)


def only_a_few_words(logits_BV, p, *, within=False):
    if not (isinstance(p, float) and 0 < p < 1 and logits_BV.shape[-1] > fast_nucleus.FEW):
        return None
    share_BV = logits_BV.float().softmax(dim=-1)
    least_B1, _ = fast_nucleus.last_of(fast_nucleus.best(share_BV, fast_nucleus.FEW), p)
    return logits_BV.masked_fill(share_BV < least_B1, NEVER)


def all_losses_count_alike(ctx, upstream_N):
    *_, d_hidden, d_words, d_bias = ctx.saved_tensors
    ready = (d_hidden, d_words, d_bias)
    return *(None if d is None else d * upstream_N.mean() for d in ready), None


def writes_over_the_other_text(old, k_BHQE, v_BHQE):
    if isinstance(old, fast_attention.Growing):
        old.buffer.filled = old.k_BHKE.shape[2]
    return fast_attention.extended(old, k_BHQE, v_BHQE)


def last_of_the_highest(logits_BV):
    return logits_BV.shape[-1] - 1 - logits_BV.flip(-1).argmax(dim=-1)


MUTANTS = [
    Mutant("top-k keeps k words where more are as good", OURS, put(sampling.top_k, exactly_k)),
    Mutant(
        "a nucleus that holds exactly p takes one word more",
        OURS,
        put(nucleus_of, one_more_at_the_boundary),
    ),
    Mutant("the nucleus stays within p", "original GPT-2", put(nucleus_of, within_p)),
    Mutant("the nucleus drops what equals its last", OURS, put(nucleus_of, nucleus_without_ties)),
    Mutant("temperature multiplies", OURS, put(temperature_of, temperature_multiplies)),
    Mutant("the lowest temperatures overflow", OURS, put(temperature_of, temperature_overflows)),
    Mutant(
        "repetition divides scores below zero",
        "original CTRL",
        put(sampling.repeat_less, divides_all),
    ),
    Mutant("words are banned until none is left", OURS, put(sampling.not_yet, bans_even_the_last)),
    Mutant("filters do not see the prompt", OURS, instead(Sampling, "stages", blind_to_the_prompt)),
    Mutant(
        "the minimum counts the prompt",
        "max_length of transformers",
        instead(Sampling, "stages", minimum_counts_the_prompt),
    ),
    Mutant("a word of no probability is drawn", OURS, put(draw_of, draws_what_is_impossible)),
    Mutant("one random number for all rows", OURS, put(draw_of, one_draw_for_all_rows)),
    Mutant("the length penalty counts the prompt", OURS, put(beam_of, penalty_counts_the_prompt)),
    Mutant(
        "memory does not follow the beams",
        OURS,
        instead(reader.Reader, "select", keeps_the_old_rows),
    ),
    Mutant("an answer is scored by its mean", OURS, put(score_of, mean_of_the_answer)),
    Mutant("the words of other blanks are seen", OURS, put(blanks_of, other_blanks_are_seen)),
    Mutant(
        "the kernel forgets the bias beside a mask",
        OURS,
        faster("labkit.attention.attend", attend_without("bias_BHQK")),
    ),
    Mutant(
        "a mask replaces causal=True",
        "levanter",
        faster("labkit.attention.attend", attend_without("causal")),
    ),
    Mutant(
        "fast dropout does not scale", OURS, faster("labkit.layers.drop", drops_without_scaling)
    ),
    Mutant(
        "fast dropout keeps what it should drop",
        OURS,
        faster("labkit.layers.drop", keeps_the_share),
    ),
    Mutant(
        "the fast best word is the last of the highest",
        OURS,
        faster("labkit.sampling.best_word", last_of_the_highest),
    ),
    Mutant(
        "the fast nucleus never sorts all words",
        OURS,
        faster("labkit.sampling.nucleus", only_a_few_words),
    ),
    Mutant(
        "losses in pieces count alike",
        OURS,
        instead(softmax.InPieces, "backward", staticmethod(all_losses_count_alike)),
    ),
    Mutant(
        "a second text overwrites the memory of the first",
        OURS,
        faster("labkit.attention.KeysValues.extended", writes_over_the_other_text),
    ),
    Mutant(
        "rows of a beam are taken to begin alike", OURS, instead(decoding.Decoder, "alike", True)
    ),
    Mutant(
        "a word that is replayed does not attend to itself",
        OURS,
        edited(
            replaying.Replayer,
            "_attend",
            "self.positions_L <= self.position_1",
            "self.positions_L < self.position_1",
        ),
    ),
]


def with_patches(test: Callable, *given: Any) -> Callable[[], None]:
    """A test that changes something for its own time."""

    def run() -> None:
        with pytest.MonkeyPatch.context() as monkeypatch:
            test(monkeypatch, *given)

    return run


def in_fast(test: Callable, *given: Any) -> Callable[[], None]:
    """A test of what holds for formulas and for their faster versions, with the latter."""

    def run() -> None:
        with fast.enable():
            test(*given)

    return run


def losses_in_pieces() -> None:
    with pytest.MonkeyPatch.context() as patches, fast.enable():
        test_softmax.test_pieces_are_the_whole(patches, 1, True, torch.float64, "not the same")


def answers_of_texts() -> None:
    model = test_prompting.build()
    answers = test_prompting.ANSWERS
    test_prompting.test_likelihoods_are_those_of_each_text_alone(model, 2, answers)


CHECKS: dict[str, Callable[[], None]] = {
    "filters: ties": test_sampling.test_words_that_equal_the_last_one_stay_with_it,
    "filters: exactly p": lambda: test_sampling.test_a_nucleus_that_holds_exactly_p_takes_no_more(
        64
    ),
    "filters: the release": lambda: test_sampling.test_filters_equal_the_release(0.3, 0),
    "filters: no empty row": test_sampling.test_no_filter_in_any_order_leaves_a_row_empty,
    "filters: low temperatures": lambda: test_sampling.test_the_lowest_temperatures_do_not_overflow(
        1e-40
    ),
    "filters: the prompt": test_sampling.test_a_filter_sees_the_words_of_the_prompt_of_each_row,
    "draws: impossible words": test_sampling.test_a_word_of_no_probability_is_never_drawn,
    "draws: several samples": test_sampling.test_several_samples_differ_and_repeat,
    "stop words": test_sampling.test_stop_words_end_a_text_and_the_minimum_holds_them_back,
    "beams: all texts": lambda: test_beam.test_a_beam_wide_enough_finds_the_best_of_all_texts(
        (2,), 0.7
    ),
    "beams: length": test_beam.test_the_length_penalty_counts_the_new_words_alone,
    "beams: narrow": test_beam.test_a_beam_needs_no_memory,
    "prompts: each text alone": answers_of_texts,
    "blanks: hidden words": lambda: test_filling.test_what_is_hidden_is_not_seen("bert"),
    "fast: attention": lambda: test_fast.test_attention_and_its_gradients(
        "holes", True, True, 4, torch.float64
    ),
    "fast: dropout": lambda: (
        test_fast.test_dropout_gives_zeros_and_what_the_plain_one_gives_elsewhere(
            (7, 11, 13), 0.1, torch.float32
        )
    ),
    "fast: share that is dropped": in_fast(
        test_attention.test_dropout_drops_its_share_and_keeps_the_mean
    ),
    "fast: best word": lambda: test_fast.test_the_best_word_is_the_first_of_the_highest(
        torch.float32
    ),
    "fast: nucleus": lambda: test_fast.test_a_nucleus_keeps_the_same_words(
        0.9, 0.3, 700, torch.float32
    ),
    "fast: losses": losses_in_pieces,
    "fast: keys and values": (
        test_fast.test_keys_and_values_grow_as_plain_ones_and_older_values_stay
    ),
    "fast: rows": lambda: test_decoding.test_rows_are_exchanged_from_where_they_differ(
        [2, 0, 1], 0, decoding.Decoder, "cpu"
    ),
    "fast: what is replayed": lambda: test_decoding.test_what_is_replayed_equals_the_forward_pass(
        "GPT-2", 2, "cpu"
    ),
}
