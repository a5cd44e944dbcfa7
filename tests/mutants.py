"""Mistakes that others have made, made again on purpose, and which of our checks finds each.

Each mutant is a mistake seen in well-known teaching or research code, or one that is as easy to
make. It is put in the place of our own function; a check kills it when it fails. The command

    python tests/mutants.py

prints who killed whom and writes the table of docs/mutants.md.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pairings
import test_leaks
import test_masking
import test_objectives
import torch
import torch.nn.functional as F
from torch import Tensor

from labkit import attention, blocks, hiding, masking, recurrence
from labkit.chance import Chance
from labkit.models import gpt, word_vectors
from labkit.objectives import base, labels, memory, sums, vectors, words

TABLE = Path(__file__).parents[1] / "docs" / "mutants.md"


class Mutant(NamedTuple):
    """A mistake, where it was seen, and how to make it."""

    mistake: str
    seen: str
    plant: Callable[[], Any]


@contextmanager
def everywhere(original: Callable, mutant: Callable) -> Iterator[None]:
    """Put a mutant wherever the package has the original."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if module is not None and name.split(".")[0] == "labkit":
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        stack.enter_context(patch.object(module, attribute, mutant))
        yield


def method(owner: type, name: str, mutant: Callable) -> Any:
    """Put a mutant in the place of a method."""
    return patch.object(owner, name, mutant)


# ---- who may look at whom ----------------------------------------------------------------------


def sees_the_next_word(queries, keys=None, *, device=None):
    i, j = masking._positions(queries, keys, device)
    return j <= i + 1


def counts_from_the_first_key(queries, keys=None, *, device=None):
    keys = queries if keys is None else keys
    return torch.arange(keys) <= torch.arange(queries)[:, None]


def window_one_too_wide(size, queries, keys=None, *, device=None):
    i, j = masking._positions(queries, keys, device)
    return (i - j).abs() <= size


def query_sees_its_own_word(order_BT, memory=0):
    return masking.up_to(order_BT, memory)


def memory_after_the_text(order_BT, memory=0):
    mask = order_BT[:, None, :] <= order_BT[:, :, None]
    return F.pad(mask, (0, memory), value=True)[:, None]


def padding_only(real_BT):
    return ~real_BT[:, None, None, :]


def padding_is_a_query_mask(real_BT):
    return real_BT[:, None, :, None]


rule_of = base.rule


def rule_without_causal(backbone, questions):
    """The explicit mask replaces the causal one."""
    if questions.seen.documents is None:
        return rule_of(backbone, questions)
    return masking.same_segment(questions.seen.documents)


def rule_without_padding(backbone, questions):
    return rule_of(backbone, replace(questions, padded=False))


def rule_without_documents(backbone, questions):
    return rule_of(backbone, replace(questions, seen=replace(questions.seen, documents=None)))


def rule_of_the_first_row(backbone, questions):
    mask = rule_of(backbone, questions)
    return mask if mask is None or mask.dim() < 4 else mask[:1]


def large_instead_of_infinite(q, k, v, *, mask=None, bias_BHQK=None, causal=False, dropout=0.0):
    if mask is not None:
        mask = (~mask).to(q.dtype) * -1e30
        mask = mask if bias_BHQK is None else mask + bias_BHQK
    elif bias_BHQK is not None:
        mask = bias_BHQK
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal)


def causal_whatever_the_memory(q, k, v, *, mask=None, bias_BHQK=None, causal=False, dropout=0.0):
    if causal or (bias_BHQK is None and q.shape[2] != k.shape[2]):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return attend_of(q, k, v, mask=mask, bias_BHQK=bias_BHQK)


attend_of = attention.attend


def keeps_the_first(states_BTD, count):
    """The lengths of memory and query are swapped: the oldest states stay for ever."""
    return states_BTD[:, :count].detach()


# ---- what is hidden ----------------------------------------------------------------------------


def two_overlapping_draws(tokens, predicted, chance, vocabulary, *, shares, frequencies=None):
    """10 % get a random word, 90 % get [MASK], independently; the later one wins."""
    length, seen = tokens.shape[1], tokens.clone()
    swap = predicted & (chance.uniform("fate", length) < shares[1])
    words = 5 + chance.integers("word", length, vocabulary.size - 5)
    seen[swap] = words[swap]
    masked = predicted & (chance.uniform("mask", length) < shares[0] + shares[1])
    seen[masked] = vocabulary.mask
    return seen


corrupt_of = hiding.corrupt


def any_token_is_a_word(tokens, predicted, chance, vocabulary, **how):
    seen = corrupt_of(tokens, predicted, chance, vocabulary, **how)
    anything = chance.integers("word", tokens.shape[1], vocabulary.size)
    swapped = predicted & (seen != vocabulary.mask) & (seen != tokens)
    return torch.where(swapped, anything, seen)


def changes_what_it_is_given(tokens, predicted, chance, vocabulary, **how):
    return tokens.copy_(corrupt_of(tokens, predicted, chance, vocabulary, **how))


def hides_nothing(tokens, predicted, chance, vocabulary, **how):
    return tokens.clone()


def ignores_frequencies(tokens, predicted, chance, vocabulary, *, shares, frequencies=None):
    return corrupt_of(tokens, predicted, chance, vocabulary, shares=shares)


def specials_are_words(tokens, real, vocabulary):
    return real.clone()


def padding_is_a_word(tokens, real, vocabulary):
    return (tokens >= 5) | ~real


def one_draw_for_ever(candidates, chance, rate):
    return choose_of(candidates, replace(chance, step=0), rate)


choose_of = hiding.choose


def draws_depend_on_the_batch(candidates, chance, rate):
    generator = torch.Generator().manual_seed(chance.seed + 1000 * chance.step)
    return (torch.rand(candidates.shape, generator=generator) < rate) & candidates


def a_share_of_each_row(candidates, chance, rate):
    """15 % of the row's width, so padding changes what is hidden."""
    ranks = chance.uniform("hide", candidates.shape[1]).argsort(1).argsort(1)
    return (ranks < rate * candidates.shape[1]) & candidates


def pieces_on_their_own(candidates, words_BT, chance, rate):
    return choose_of(candidates, chance, rate)


def spans_start_in_the_text(candidates, chance, rate, *, stop=0.2, longest=10):
    inside = spans_of(candidates, chance, rate, stop=stop, longest=longest)
    # Where no span reaches in from before the text.
    return inside & (inside.cumsum(1) > 0) & (torch.arange(candidates.shape[1]) > 0)


spans_of = hiding.choose_spans
order_of = hiding.order


def specials_are_ordered(candidates, chance, share=1.0, *, spans=False):
    return order_of(torch.ones_like(candidates), chance, share, spans=spans)


def predicts_the_first(candidates, chance, share=1.0, *, spans=False):
    found = order_of(candidates, chance, share, spans=spans)
    count = found.predicted.sum(1, keepdim=True)
    return found._replace(predicted=(found.rank < count) & candidates)


def ranks_count_padding(candidates, chance, share=1.0, *, spans=False):
    found = order_of(torch.ones_like(candidates), chance, share, spans=spans)
    rank = found.rank.masked_fill(~candidates, -1)
    return found._replace(rank=rank, predicted=found.predicted & candidates)


# ---- what is asked -----------------------------------------------------------------------------


def trains_on_padding(batch):
    return torch.ones_like(batch.real[:, 1:])


def across_documents(batch):
    return batch.real[:, 1:] & batch.real[:, :-1]


where_of = base.Asked.where


def filled_up_with_place_0(wanted, targets):
    """Questions are padded to a fixed number: place 0 has to be token 0."""
    asked = where_of(wanted, targets)
    more = 4 * len(wanted) - len(asked.rows_N)
    return base.Asked(*(F.pad(part, (0, max(more, 0))) for part in asked))


def predicts_what_it_reads(wanted, targets):
    asked = where_of(wanted, targets)
    return asked._replace(targets_N=targets.roll(1, 1)[asked.rows_N, asked.places_N])


def mean_of_means(self, counts):
    return self.loss


def mean_over_the_batch(self, counts):
    shares = [t.weight * t.total / max(t.count, 1) for t in self.terms.values() if t.weight]
    return torch.stack(shares).sum() * self.count / max(counts[next(iter(self.terms))], 1)


read_next = words.NextToken.read


def one_row_is_not_smoothed(self, model, states, questions):
    if len(questions.seen) == 1:
        return read_next(replace(self, tar=0.0), model, states, questions)
    return read_next(self, model, states, questions)


def smooths_after_dropout(self, model, states, questions):
    changed = states._replace(layers=(*states.layers[:-2], states.layers[-1], states.layers[-1]))
    return read_next(self, model, changed, questions)


def never_forgets(kept, fresh):
    return memory.Memory((), torch.ones(len(fresh), 0, dtype=torch.bool)) if kept is None else kept


def forgets_in_place(kept, fresh):
    if kept is not None:
        for layer in kept.layers:
            for part in memory._parts(layer):
                part.mul_(0.5)
    return recall_of(kept, fresh)


recall_of = memory.recall


def every_row_knows(states, known, read):
    kept = remember_of(states, known, read)
    return kept and kept._replace(known=torch.ones_like(kept.known))


remember_of = memory.remember


def static_by_row(seed, examples):
    return Chance(seed, 0, torch.arange(len(examples)))


ask_labels = labels.Labels.ask


def last_place_of_the_width(self, batch, chance):
    questions = ask_labels(self, batch, chance)
    if self.place != "last":
        return questions
    asked = questions.asked[self.name]
    asked = asked._replace(places_N=torch.full_like(asked.places_N, batch.tokens.shape[1] - 1))
    return replace(questions, asked={self.name: asked})


scores_of_labels = labels.Labels.scores


def choices_of_the_batch_compete(self, model, states, questions):
    scores = scores_of_labels(self, model, states, questions)[self.name]
    return {self.name: scores.flatten().expand(len(scores), -1)}


def no_square_of_the_temperature(teacher, student, temperature):
    return divergence_of(teacher, student, temperature) / temperature**2


divergence_of = sums.divergence


def the_student_teaches(teacher, student, temperature):
    return divergence_of(student, teacher, temperature)


def one_noise_for_all(self, batch, chance, each):
    noise = draw_of(self, batch, chance, each)
    return noise[:1, :1].expand_as(noise)


draw_of = vectors.NearWords.draw


def noise_by_count(counts, power=0.75):
    return counts.double() / counts.sum()


def halves_swapped(states):
    left, right = halves_of(states)
    return right, left


halves_of = recurrence.halves

SEEN = {
    "labml": "labml, masked language model",
    "d2l": "d2l, bert-pretraining",
    "one": "a popular one-file BERT",
    "sdpa": "torch, is_causal with a cache",
    "inf": "original XLNet and its ports",
    "ours": "as easy to make",
}

MUTANTS = [
    Mutant("a position sees the next word", "as easy to make", lambda: everywhere(masking.causal, sees_the_next_word)),
]
