"""Mistakes that others have made, made again on purpose, and which of our checks finds each.

Each mutant is a mistake seen in well-known teaching or research code, or one that is as easy to
make. It is put in the place of our own function; a check kills it when it fails. The command

    python tests/mutants.py            or, for those that are not in the table yet:
    python tests/mutants.py missing

prints who killed whom and writes the table of docs/mutants.md.
"""

import inspect
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pairings
import test_initialisation
import test_inputs
import test_leaks
import test_masking
import test_objectives
import torch
import torch.nn.functional as F
from _pytest import outcomes
from parity import training

from labkit import attention, blocks, heads, masking, tensor_checks
from labkit.chance import Chance
from labkit.models import elmo, transformer, word_vectors
from labkit.models.bert import BERT as BERT_
from labkit.models.gpt import GPT
from labkit.models.transformer import Transformer
from labkit.models.transformer_xl import TransformerXL
from labkit.models.xlnet import XLNet
from labkit.objectives import base, hiding, labels, memory, sums, vectors, words

BERT = (0.8, 0.1, 0.1)
TABLE = Path(__file__).parents[1] / "docs" / "mutants.md"


class Mutant(NamedTuple):
    """A mistake, where it was seen, and how to make it."""

    mistake: str
    seen: str
    plant: Callable[[], Any]


@contextmanager
def everywhere(original: Callable, mutant: Callable, *, tests: bool = False) -> Iterator[None]:
    """Put a mutant wherever the package, or a test if asked for, has the original."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            ours = name.split(".")[0] in ("labkit", "classroom")
            if module is not None and (ours or (tests and name.startswith("test_"))):
                for attribute, value in list(vars(module).items()):
                    if value is original:
                        stack.enter_context(patch.object(module, attribute, mutant))
        yield


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


mask_of = base.attention_mask


def mask_without_causal(backbone, targets):
    """The explicit mask replaces the causal one."""
    if targets.inputs.documents is None:
        return mask_of(backbone, targets)
    return masking.same_segment(targets.inputs.documents)


def mask_without_padding(backbone, targets):
    return mask_of(backbone, replace(targets, padded=False))


def mask_without_documents(backbone, targets):
    return mask_of(backbone, replace(targets, inputs=replace(targets.inputs, documents=None)))


def mask_of_the_first_row(backbone, targets):
    mask = mask_of(backbone, targets)
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


def two_overlapping_draws(tokens, predicted, chance, vocabulary, *, shares=BERT, frequencies=None):
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


def ignores_frequencies(tokens, predicted, chance, vocabulary, *, shares=BERT, frequencies=None):
    return corrupt_of(tokens, predicted, chance, vocabulary, shares=shares)


def specials_are_words(tokens, real, vocabulary):
    return real.clone()


def padding_is_a_word(tokens, real, vocabulary):
    return (tokens >= 5) | ~real


def one_draw_for_ever(candidates, chance, rate):
    return choose_of(candidates, replace(chance, step=0), rate)


choose_of = hiding.choose_tokens


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


# ---- what is predicted -------------------------------------------------------------------------


def trains_on_padding(batch):
    return torch.ones_like(batch.real[:, 1:])


def across_documents(batch):
    return batch.real[:, 1:] & batch.real[:, :-1]


where_of = base.Predicted.where


def filled_up_with_position_0(wanted, answers):
    """Predictions are padded to a fixed number: position 0 has to be token 0."""
    predicted = where_of(wanted, answers)
    more = 4 * len(wanted) - len(predicted.rows_N)
    return base.Predicted(*(F.pad(part, (0, max(more, 0))) for part in predicted))


def predicts_what_it_reads(wanted, answers):
    predicted = where_of(wanted, answers)
    targets_N = answers.roll(1, 1)[predicted.rows_N, predicted.positions_N]
    return predicted._replace(targets_N=targets_N)


def mean_of_means(self, counts):
    return over_of(self, {name: term.count for name, term in self.terms.items()})


over_of = base.Outcome.over


def mean_over_the_batch(self, counts):
    shares = [t.weight * t.total / max(t.count, 1) for t in self.terms.values() if t.weight]
    return torch.stack(shares).sum() * self.count / max(counts[next(iter(self.terms))], 1)


terms_of_next = words.NextToken.terms


def one_row_is_not_smoothed(self, model, states, targets):
    if len(targets.inputs) == 1:
        return terms_of_next(replace(self, tar=0.0), model, states, targets)
    return terms_of_next(self, model, states, targets)


def smooths_after_dropout(self, model, states, targets):
    changed = states._replace(layers=(*states.layers[:-2], states.layers[-1], states.layers[-1]))
    return terms_of_next(self, model, changed, targets)


def never_forgets(kept, fresh):
    return memory.Memory((), torch.ones(len(fresh), 0, dtype=torch.bool)) if kept is None else kept


def forgets_in_place(kept, fresh):
    found = recall_of(kept, fresh)
    if kept is not None and kept.layers and bool(fresh.any()):
        for layer in kept.layers:
            for part in memory._parts(layer):
                part.mul_(0.5)
    return found


recall_of = memory.recall


def every_row_knows(states, known, read):
    kept = remember_of(states, known, read)
    return kept and kept._replace(known=torch.ones_like(kept.known))


remember_of = memory.memory_after


def static_by_row(seed, examples):
    return Chance(seed, 0, torch.arange(len(examples)))


targets_of_labels = labels.Labels.targets


def last_position_of_the_width(self, batch, chance):
    targets = targets_of_labels(self, batch, chance)
    if self.position != "last":
        return targets
    predicted = targets.predicted[self.name]
    predicted = predicted._replace(
        positions_N=torch.full_like(predicted.positions_N, batch.tokens.shape[1] - 1)
    )
    return replace(targets, predicted={self.name: predicted})


scores_of_labels = labels.Labels.scores


def choices_of_the_batch_compete(self, model, states, targets):
    scores = scores_of_labels(self, model, states, targets)[self.name]
    return {self.name: scores.flatten().expand(len(scores), -1)}


def no_square_of_the_temperature(teacher, student, temperature):
    return divergence_of(teacher, student, temperature) / temperature**2


divergence_of = sums.soft_losses


def the_student_teaches(teacher, student, temperature):
    return divergence_of(student, teacher, temperature)


def one_noise_for_all(self, batch, chance, each):
    noise = noise_of(self, batch, chance, each)
    return noise[:1, :1].expand_as(noise)


noise_of = vectors.NearWords.noise_words


def noise_by_count(counts, power=0.75):
    return counts.double() / counts.sum()


def halves_swapped(states):
    left, right = halves_of(states)
    return right, left


halves_of = blocks.halves

OURS = "as easy to make"


def put(original: Callable, mutant: Callable) -> Callable[[], Any]:
    return lambda: everywhere(original, mutant)


def instead(owner: type, name: str, mutant: Any) -> Callable[[], Any]:
    return lambda: patch.object(owner, name, mutant)


def edited(owner: Any, name: str, old: str, new: str) -> Callable[[], Any]:
    """Plant a function or a method of which one line reads otherwise."""

    def plant() -> Any:
        original = getattr(owner, name)
        source = textwrap.dedent(inspect.getsource(original))
        assert old in source, f"{name} does not say {old!r} any more"
        scope = dict(vars(sys.modules[original.__module__]))
        exec(source.replace(old, new).replace("super()", "super(type(self), self)"), scope)
        if inspect.isclass(owner):
            return patch.object(owner, name, scope[name])
        return everywhere(original, scope[name])

    return plant


SKIP = "\n        left, right, *after = block(\n            "

MUTANTS = [
    # Who may look at whom.
    Mutant("a position sees the next word", OURS, put(masking.causal, sees_the_next_word)),
    Mutant(
        "causal counts from the first key, not from the last",
        "torch's is_causal with a cache",
        put(masking.causal, counts_from_the_first_key),
    ),
    Mutant("a window one too wide", OURS, put(masking.window, window_one_too_wide)),
    Mutant(
        "the query stream sees its own word", OURS, put(masking.before, query_sees_its_own_word)
    ),
    Mutant("memory stands after the text", OURS, put(masking.up_to, memory_after_the_text)),
    Mutant(
        "a mask with the other sign: True is hidden",
        "two signs in one signature, HF XLNet",
        put(masking.real_keys, padding_only),
    ),
    Mutant(
        "padding hides queries, not keys", OURS, put(masking.real_keys, padding_is_a_query_mask)
    ),
    Mutant(
        "an explicit mask replaces the causal one",
        "levanter",
        put(base.attention_mask, mask_without_causal),
    ),
    Mutant(
        "padding is attended to",
        "annotated code without masks",
        put(base.attention_mask, mask_without_padding),
    ),
    Mutant(
        "packed documents see each other", OURS, put(base.attention_mask, mask_without_documents)
    ),
    Mutant(
        "a mask for a batch of one",
        "HF XLNet, LLMs-from-scratch",
        put(base.attention_mask, mask_of_the_first_row),
    ),
    Mutant(
        "-1e30 instead of minus infinity",
        "original XLNet and its ports",
        put(attention.attend, large_instead_of_infinite),
    ),
    Mutant(
        "is_causal=True with memory",
        "torch's is_causal with a cache",
        put(attention.attend, causal_whatever_the_memory),
    ),
    Mutant(
        "memory keeps the oldest states",
        "original Transformer-XL: swapped lengths",
        put(blocks.remember, keeps_the_first),
    ),
    # What is hidden.
    Mutant(
        "two independent draws: 81/9/10",
        "labml, masked language model",
        put(hiding.corrupt, two_overlapping_draws),
    ),
    Mutant(
        "the random word may be a special token",
        "labml; d2l",
        put(hiding.corrupt, any_token_is_a_word),
    ),
    Mutant("the batch is changed in place", "labml", put(hiding.corrupt, changes_what_it_is_given)),
    Mutant("nothing is hidden", OURS, put(hiding.corrupt, hides_nothing)),
    Mutant("random words ignore their frequencies", OURS, put(hiding.corrupt, ignores_frequencies)),
    Mutant("[CLS] and [SEP] count among the 15 %", "d2l", put(hiding.ordinary, specials_are_words)),
    Mutant("padding is hidden and predicted", OURS, put(hiding.ordinary, padding_is_a_word)),
    Mutant("masks are drawn once for ever", "d2l", put(hiding.choose_tokens, one_draw_for_ever)),
    Mutant(
        "draws depend on the shape of the batch",
        "any global generator",
        put(hiding.choose_tokens, draws_depend_on_the_batch),
    ),
    Mutant("15 % of the padded width", OURS, put(hiding.choose_tokens, a_share_of_each_row)),
    Mutant(
        "pieces of a word are hidden apart", OURS, put(hiding.choose_words, pieces_on_their_own)
    ),
    Mutant("spans cover the edges less", OURS, put(hiding.choose_spans, spans_start_in_the_text)),
    Mutant(
        "special tokens are predicted in an order",
        "HF permutation collator: & for or",
        put(hiding.order, specials_are_ordered),
    ),
    Mutant("the first of an order are predicted", OURS, put(hiding.order, predicts_the_first)),
    Mutant(
        "orders depend on the padding",
        "HF permutation collator: even lengths only",
        put(hiding.order, ranks_count_padding),
    ),
    Mutant(
        "static masks follow the row, not the example",
        OURS,
        instead(Chance, "of_examples", staticmethod(static_by_row)),
    ),
    # What is predicted.
    Mutant(
        "padded predictions are trained on",
        "d2l: a weight on a loss that is already a scalar",
        put(words.of_one_text, trains_on_padding),
    ),
    Mutant(
        "position 0 is trained to predict token 0",
        "a popular one-file BERT",
        instead(base.Predicted, "where", staticmethod(filled_up_with_position_0)),
    ),
    Mutant(
        "the model predicts what it reads",
        OURS,
        instead(base.Predicted, "where", staticmethod(predicts_what_it_reads)),
    ),
    Mutant("a document predicts the next document", OURS, put(words.of_one_text, across_documents)),
    Mutant(
        "the mean of the means of micro-batches",
        "LLMs-from-scratch, litgpt",
        instead(base.Outcome, "over", mean_of_means),
    ),
    Mutant("one count for two tasks", OURS, instead(base.Outcome, "over", mean_over_the_batch)),
    Mutant(
        "AR and TAR ask for the batch size, not the length",
        "fastai",
        instead(words.NextToken, "terms", one_row_is_not_smoothed),
    ),
    Mutant("TAR after dropout", OURS, instead(words.NextToken, "terms", smooths_after_dropout)),
    Mutant("memory is never dropped", OURS, put(memory.recall, never_forgets)),
    Mutant(
        "the caller's memory is changed in place",
        "original Transformer-XL",
        put(memory.recall, forgets_in_place),
    ),
    Mutant("what was forgotten comes back", OURS, put(memory.memory_after, every_row_knows)),
    Mutant(
        "the last word is looked for in the padding",
        OURS,
        instead(labels.Labels, "targets", last_position_of_the_width),
    ),
    Mutant(
        "all choices of the batch compete",
        OURS,
        instead(labels.Labels, "scores", choices_of_the_batch_compete),
    ),
    Mutant(
        "soft targets without the square of the temperature",
        OURS,
        put(sums.soft_losses, no_square_of_the_temperature),
    ),
    Mutant("the student teaches the teacher", OURS, put(sums.soft_losses, the_student_teaches)),
    Mutant(
        "one noise for all pairs",
        OURS,
        instead(vectors.NearWords, "noise_words", one_noise_for_all),
    ),
    Mutant(
        "noise without the power of 3/4", OURS, put(word_vectors.noise_distribution, noise_by_count)
    ),
    Mutant("the two directions are swapped", OURS, put(blocks.halves, halves_swapped)),
    # What is taken without a word.
    Mutant(
        "a mask of 0 and 1 is added to the scores",
        "torch's attn_mask, additive when it is a float",
        edited(tensor_checks, "check_mask", "mask.dtype != torch.bool or", ""),
    ),
    Mutant(
        "a mask [B, Q, K] is taken for one of heads",
        "torch's broadcasting, where B is H",
        edited(attention, "check_scores", "len(q_BHQE), 1,", "len(q_BHQE), None,"),
    ),
    Mutant(
        "token -1 is the last word",
        "Python's indices",
        edited(tensor_checks, "check_range", "low < 0 or", ""),
    ),
    Mutant(
        "a word behind the vocabulary is nothing",
        OURS,
        edited(tensor_checks, "check_range", "or 0 < known <= high", ""),
    ),
    # What a model is before training.
    Mutant(
        "residual projections are not scaled",
        OURS,
        edited(GPT, "__init__", "if config.norm_first:\n        scale", "if False:\n        scale"),
    ),
    Mutant(
        "highways begin by changing everything",
        OURS,
        edited(elmo.Highway, "__init__", "self.gate.bias, -2.0", "self.gate.bias, 2.0"),
    ),
    Mutant(
        "query, key and value are drawn as one matrix",
        "nn.MultiheadAttention",
        edited(Transformer, "__init__", "weight.chunk(3)", "weight.chunk(1)"),
    ),
    Mutant(
        "weights ten times as large",
        OURS,
        edited(blocks, "initialise", "normal_(std=std)", "normal_(std=10 * std)"),
    ),
    # What is dropped out in training.
    Mutant(
        "attention over distances drops nothing",
        OURS,
        edited(attention.RelativeAttention, "forward", "self.dropout if self.training else", ""),
    ),
    Mutant(
        "attention drops nothing",
        OURS,
        edited(attention.Attention, "forward", "self.dropout if self.training else", ""),
    ),
    Mutant(
        "dropout around the whole residual sum",
        OURS,
        edited(
            blocks.Block,
            "forward",
            "x_BTD + self.dropout(attended_BTD)",
            "self.dropout(x_BTD + attended_BTD)",
        ),
    ),
    Mutant(
        "what attention says is not dropped",
        OURS,
        edited(blocks.Block, "forward", "self.dropout(attended_BTD)", "attended_BTD"),
    ),
    Mutant(
        "norm first: the feed-forward is not dropped",
        OURS,
        edited(
            blocks.Block,
            "forward",
            "self.dropout(self.mlp(self.mlp_norm(x_BTD)))",
            "self.mlp(self.mlp_norm(x_BTD))",
        ),
    ),
    Mutant(
        "norm last: the feed-forward is not dropped",
        OURS,
        edited(blocks.Block, "forward", "self.dropout(self.mlp(x_BTD))", "self.mlp(x_BTD)"),
    ),
    Mutant(
        "nothing is dropped within the feed-forward",
        OURS,
        edited(
            blocks.FeedForward,
            "forward",
            "self.dropout(self.activation(self.up(x)))",
            "self.activation(self.up(x))",
        ),
    ),
    Mutant(
        "ELMo's skip adds what was not dropped",
        OURS,
        edited(
            elmo.ELMo,
            "forward",
            "given = self.dropout(left), self.dropout(right)" + SKIP + "*given",
            "given = left, right" + SKIP + "self.dropout(left), self.dropout(right)",
        ),
    ),
    Mutant(
        "XLNet's query stream begins undropped",
        OURS,
        edited(
            XLNet,
            "two_streams",
            "self.dropout(self.guess_D.expand(*asked_BN.shape, -1))",
            "self.guess_D.expand(*asked_BN.shape, -1)",
        ),
    ),
    Mutant(
        "XLNet's query stream ends undropped",
        OURS,
        edited(XLNet, "two_streams", "self.dropout(g_BND)", "g_BND"),
    ),
    Mutant(
        "ALBERT drops behind the wider matrix",
        OURS,
        edited(
            BERT_,
            "_embed",
            "self.up(self.dropout(self.norm(x_BTD)))",
            "self.dropout(self.up(self.norm(x_BTD)))",
        ),
    ),
    Mutant(
        "BERT's embeddings are not dropped",
        OURS,
        edited(BERT_, "_embed", "self.dropout(self.norm(x_BTD))", "self.norm(x_BTD)"),
    ),
    Mutant(
        "GPT's embeddings are not dropped",
        OURS,
        edited(GPT, "forward", "x_BTD = self.dropout(", "x_BTD = ("),
    ),
    Mutant(
        "a label is read off undropped states",
        OURS,
        edited(
            heads.Label, "forward", "self.labels(self.dropout(hidden_ND))", "self.labels(hidden_ND)"
        ),
    ),
    Mutant(
        "pooled states are not dropped",
        OURS,
        edited(heads.Pooled, "forward", "self.inner(self.dropout(pooled))", "self.inner(pooled)"),
    ),
    Mutant(
        "the layer above pooled states is not dropped",
        OURS,
        edited(heads.Pooled, "forward", "self.labels(self.dropout(pooled))", "self.labels(pooled)"),
    ),
    Mutant(
        "Transformer-XL's distances are not dropped",
        OURS,
        edited(TransformerXL, "forward", "= self.dropout(r_RD),", "= r_RD,"),
    ),
    Mutant(
        "Transformer-XL's last states are not dropped",
        OURS,
        edited(TransformerXL, "forward", "layers[-1] = self.dropout(x_BTD)", ""),
    ),
    Mutant(
        "what the decoder hears of the source is not dropped",
        OURS,
        edited(
            transformer.DecoderBlock,
            "forward",
            "self.cross_attention_norm(x_BQD + self.dropout(y_BQD))",
            "self.cross_attention_norm(x_BQD + y_BQD)",
        ),
    ),
    Mutant(
        "the sum of word and position is not dropped",
        OURS,
        edited(Transformer, "_embed", "return self.dropout(", "return ("),
    ),
]


# ---- the checks --------------------------------------------------------------------------------


def for_all(check: Callable[[Any], None], *names: str) -> Callable[[], None]:
    """A check of the tests, for some pairings of a model and an objective."""

    def run() -> None:
        for name in names:
            check(pairings.named(name))

    return run


def nothing_leaks() -> None:
    for name in (
        "GPT, next word",
        "BERT, masked",
        "XLNet, permuted",
        "Transformer-XL, next word",
        "ELMo, both directions",
    ):
        assert not test_leaks.traced(pairings.named(name)).leaks, name


def in_training(*names: str) -> Callable[[], None]:
    """Whether models that train equal their references, a marker in the place of each dropout."""

    def run() -> None:
        for case in training.CASES:
            if str(case) in names:
                for kind, difference in case.compare(torch.float64).items():
                    assert difference < 1e-10, (case, kind)

    known = {str(case) for case in training.CASES}
    assert set(names) <= known, set(names) - known
    return run


def refused(*names: str) -> Callable[[], None]:
    """Whether a model refuses wrong masks and tokens."""

    def run() -> None:
        for name in names:
            test_inputs.test_masks_that_are_not_boolean(name, torch.float32)
            for wrong in (-1, test_inputs.V):
                test_inputs.test_tokens_that_are_not_in_the_vocabulary(name, wrong)
        per_row = torch.ones(2, 3, 5).bool()
        test_inputs.test_masks_of_attention(relative=False, faster=False, mask=per_row)

    return run


def weights_before_training() -> None:
    for family in ("GPT-2", "BERT", "ELMo", "Transformer", "Transformer-XL"):
        test_initialisation.test_every_weight_follows_the_rule_of_its_release(family)


SEVERAL = ("GPT, next word", "BERT, masked and next sentence", "XLNet, permuted")
CHECKS: dict[str, Callable[[], None]] = {
    "definitions of masks": test_masking.check_definitions,
    "two streams": test_masking.check_two_streams,
    "masks join": test_masking.test_segments_padding_and_prefix_join,
    "nothing changed in place": test_masking.test_hiding_leaves_what_it_is_given_as_it_was,
    "shares by chi-square": test_masking.check_shares,
    "ordinary tokens": test_masking.test_ordinary_tokens_are_real_and_no_special_tokens,
    "only words are hidden and drawn": test_masking.test_only_words_are_hidden_and_drawn,
    "distribution of random words": test_masking.test_random_words_are_as_frequent_as_said,
    "hiding: padding and rows": test_masking.check_rows,
    "whole words": test_masking.test_whole_words_hide_together,
    "distribution of spans": test_masking.test_spans_cover_all_alike_and_have_geometric_lengths,
    "static and dynamic": test_masking.test_static_masks_stay_and_dynamic_masks_move,
    "uniform orders": test_masking.test_orders_are_uniform_and_end_with_what_is_predicted,
    "static by example": test_objectives.test_static_masks_follow_the_example,
    "formula: next word": test_objectives.test_next_token_is_the_mean_surprise,
    "formula: AR and TAR": test_objectives.test_ar_and_tar_hold_states_small_and_smooth,
    "formula: choices": test_objectives.test_choices_compete_within_their_question,
    "formula: labels": test_objectives.test_labels_answer_at_the_first_or_the_last_real_word,
    "formula: skip-gram": test_objectives.test_skip_gram_is_the_formula_over_all_neighbours,
    "formula: distillation": test_objectives.test_distillation_is_its_formula,
    "distribution of noise": test_objectives.test_noise_has_its_distribution_in_each_pair,
    "packed documents": test_objectives.test_packed_documents_are_as_good_as_rows_of_their_own,
    "memory of GPT": lambda: test_objectives.test_memory_makes_two_segments_one_text(pairings.gpt),
    "memory in a checkpoint": (
        test_objectives.test_memory_of_transformer_xl_is_cut_to_its_length_and_survives_a_checkpoint
    ),
    "fresh rows": lambda: test_objectives.check_fresh(pairings.transformer_xl(12).double().eval()),
    "objectives: padding": for_all(test_objectives.test_padding_does_not_matter, *SEVERAL),
    "objectives: a step in parts": for_all(
        test_objectives.test_a_step_in_parts_is_the_step, *SEVERAL
    ),
    "objectives: nothing changed": for_all(
        test_objectives.test_nothing_given_is_changed, "Transformer-XL, next word"
    ),
    "leaks: memory": test_leaks.test_memory_reaches_one_segment_further_with_each_layer,
    "leaks: nothing to see": test_leaks.test_a_query_that_may_see_nothing_sees_nothing,
    "leaks: models": nothing_leaks,
    "inputs": refused("GPT", "XLNet"),
    "weights before training": weights_before_training,
    "training: GPT-2": in_training("GPT-2: next word, in training"),
    "training: BERT": in_training(
        "BERT: both heads, in training", "BERT: labels, padding, in training"
    ),
    "training: ALBERT": in_training("ALBERT: both heads, in training"),
    "training: Transformer-XL": in_training(
        "Transformer-XL: memory over three segments, in training"
    ),
    "training: XLNet": in_training("XLNet: two streams, segments, in training"),
    "training: Transformer": in_training(
        "Transformer: encoder, decoder, padding, teacher forcing, in training"
    ),
    "training: ELMo": in_training("ELMo: all layers, padding, memory, mix, in training"),
    "training: pooling": in_training("CNN: kernels 3, 5, 11, padding, in training"),
}


def everything() -> list[tuple[list[Mutant], dict[str, Callable[[], None]]]]:
    """The groups of mutants, and the checks of each."""
    import mutants_of_alignment
    import mutants_of_files
    import mutants_of_limits
    import mutants_of_rules
    import mutants_of_training
    import mutants_of_translation
    import mutants_of_writing

    modules = (
        mutants_of_files, mutants_of_rules, mutants_of_training, mutants_of_translation,
        mutants_of_writing, mutants_of_alignment, mutants_of_limits,
    )  # fmt: skip
    return [(MUTANTS, CHECKS), *((module.MUTANTS, module.CHECKS) for module in modules)]


def slipped(problem: BaseException) -> bool:
    """Whether it is a mistake in the mutant itself, by which nothing is found."""
    unknown = isinstance(problem, AttributeError) and str(problem).startswith("module")
    return unknown or isinstance(problem, RecursionError | NameError)


def killer(mutant: Mutant, checks: dict[str, Callable[[], None]]) -> str | None:
    """The first check that fails when the mistake is made; None if it survives."""
    with mutant.plant():
        for name, check in checks.items():
            try:
                check()
            except (Exception, outcomes.Failed) as problem:
                if slipped(problem):
                    raise
                return name
    return None


def table(killers: dict[str, str | None]) -> str:
    """Who killed whom, as the page of the documentation."""
    lines = [
        "# Mutants: known mistakes, and what finds them",
        "",
        "A mutant is a mistake planted on purpose, here in masks, models, objectives, corpora,",
        "files, limits, training, writing, translation, alignment, notes and the rules of the",
        "authors' code. The last column names one check that fails because of it. “As easy to",
        "make” means that we have not seen the mistake in a real project. Written by",
        "`python tests/mutants.py`.",
        "",
        "| mistake | where it was seen | found by |",
        "|---|---|---|",
    ]
    for mutant in (mutant for group, _ in everything() for mutant in group):
        lines.append(
            f"| {mutant.mistake} | {mutant.seen} | {killers[mutant.mistake] or '**none**'} |"
        )
    return "\n".join(lines) + "\n"


def known() -> dict[str, str | None]:
    """Who killed whom when the table was written."""
    rows = [line.strip("| ").split(" | ") for line in TABLE.read_text().splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[2] != "**none**"}


def main() -> None:
    """Make every mistake, or those that the table lacks; print the table and write it down."""
    torch.set_num_threads(1)
    began = time.process_time()
    kept = known() if "missing" in sys.argv[1:] else {}
    killers = {
        mutant.mistake: kept.get(mutant.mistake) or killer(mutant, checks)
        for group, checks in everything()
        for mutant in group
    }
    text = table(killers)
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(text)
    print(text)
    found = sum(name is not None for name in killers.values())
    took = time.process_time() - began
    print(f"{found} of {len(killers)} mutants killed in {took:.1f} s of one core")


if __name__ == "__main__":
    main()
