"""Mistakes in the rules of the authors' code, and who finds them."""

from collections.abc import Callable
from unittest.mock import patch

import test_chance
import test_experts
import test_inputs
import test_rules
import test_world_language
from mutants import OURS, Mutant, edited, instead
from mutants_of_writing import faster, put

from labkit import sampling, tensor_checks, trainer
from labkit.chance import Chance
from labkit.corpus import Pairs, Streams
from labkit.fast import decoding
from labkit.fast import nucleus as fast_nucleus
from labkit.models import elmo
from labkit.objectives import experts, hiding
from labkit.objectives.permutation import Permutation
from labkit.objectives.words import MaskedToken, NextToken
from labkit.plan import Plan
from labkit.transfer import groups
from labkit.weights import release_names
from labkit.world import labelled

nucleus_of = sampling.nucleus


def drops_the_best(logits_BV, p, *, within=False):
    kept_BV = nucleus_of(logits_BV, p, within=within)
    share_BV = logits_BV.softmax(dim=-1)
    return kept_BV.masked_fill((share_BV > p) & within, sampling.NEVER)


def reaches_whatever_is_said(logits_BV, p, *, within=False):
    return fast_nucleus.nucleus(logits_BV, p)


MUTANTS = [
    Mutant(
        "a row may ask nothing where the count is exact",
        OURS,
        edited(MaskedToken, "choose", "min=1 if self.rate else 0", "min=0"),
    ),
    Mutant(
        "the limit of a row is forgotten",
        OURS,
        edited(MaskedToken, "choose", ", max=self.most)", ")"),
    ),
    Mutant(
        "padding counts for the share of a row",
        OURS,
        edited(MaskedToken, "choose", "batch.real.sum", "batch.real.fill_(True).sum"),
    ),
    Mutant(
        "random words of the whole vocabulary are ordinary ones",
        OURS,
        edited(hiding, "corrupt", "if special else", "if False else"),
    ),
    Mutant(
        "an n-gram covers what another has taken",
        "a loop of ALBERT's release that goes on with itself",
        edited(hiding, "choose_exactly", "taken.isdisjoint(gram)", "True"),
    ),
    Mutant(
        "an n-gram exceeds the count",
        OURS,
        edited(hiding, "choose_exactly", "len(taken) + len(gram) + len(word)", "len(taken)"),
    ),
    Mutant(
        "n-grams of all sizes are as frequent",
        OURS,
        edited(hiding, "_sizes", "1 / n for", "1.0 for"),
    ),
    Mutant(
        "the shares of an n-gram's sizes are not up to 1",
        OURS,
        edited(hiding, "_sizes", " / weights.sum()", ""),
    ),
    Mutant(
        "spans begin within a word",
        OURS,
        edited(hiding, "choose_in_contexts", "i == 0 or word[i] != word[i - 1]", "True"),
    ),
    Mutant(
        "single tokens do not make up what is missing",
        OURS,
        edited(hiding, "choose_in_contexts", "[*taken, *rest[: left - len(taken)]]", "[*taken]"),
    ),
    Mutant(
        "a span stands at the beginning of its context",
        OURS,
        edited(
            hiding,
            "choose_in_contexts",
            "int(before[row][position] * context)",
            "int(0 * context)",
        ),
    ),
    Mutant(
        "a context does not depend on the length of its span",
        OURS,
        edited(hiding, "choose_in_contexts", "round(n / share)", "round(1 / share)"),
    ),
    Mutant(
        "special tokens have no rank in the release's order",
        OURS,
        edited(Permutation, "_order", "| (part_BT & ~candidates)", ""),
    ),
    Mutant(
        "one draw chooses the words and orders them",
        OURS,
        edited(Permutation, "_order", ', purpose="place"', ""),
    ),
    Mutant(
        "the part that is reused sees what follows",
        OURS,
        edited(Permutation, "order", "other.rank + self.reuse + 1", "other.rank"),
    ),
    Mutant(
        "what follows does not see all of the part that is reused",
        OURS,
        edited(Permutation, "order", "other.rank + self.reuse + 1", "other.rank + 1"),
    ),
    Mutant(
        "all of a row is remembered",
        OURS,
        edited(Permutation, "keep", "layer[:, : self.reuse] for", "layer for"),
    ),
    Mutant(
        "the states after a layer are remembered for it",
        OURS,
        edited(Permutation, "keep", "states.layers[:-1]]", "states.layers[1:]]"),
    ),
    Mutant(
        "the mean of a row is counted as often as it has words",
        OURS,
        edited(NextToken, "summed", "(losses_N / predicted", "(losses_N + 0 * predicted"),
    ),
    Mutant(
        "rows without words count for a mean of means",
        OURS,
        edited(NextToken, "targets", "len(predicted.rows_N.unique())", "len(batch) + 1"),
    ),
    Mutant(
        "cells are clipped, projections are not",
        OURS,
        edited(
            elmo.OneBiasLSTM,
            "_clipped",
            "self.weight_hr_l0).clamp(-limit, limit)",
            "self.weight_hr_l0)",
        ),
    ),
    Mutant(
        "projections are clipped, cells are not",
        OURS,
        edited(elmo.OneBiasLSTM, "_clipped", "cell = cell.clamp(-limit, limit)", "pass"),
    ),
    Mutant(
        "cells are clipped from above alone",
        OURS,
        edited(elmo.OneBiasLSTM, "_clipped", "cell.clamp(-limit, limit)", "cell.clamp(max=limit)"),
    ),
    Mutant(
        "a row that has ended loses its state where states are clipped",
        OURS,
        edited(
            elmo.OneBiasLSTM,
            "_clipped",
            "torch.cat([cell, c_BF[rows:]])",
            "torch.cat([cell, 0 * c_BF[rows:]])",
        ),
    ),
    Mutant(
        "the direction from the right never goes on",
        OURS,
        edited(elmo.ELMo, "forward", "before[2:] if c.both_remember else start", "start"),
    ),
    Mutant(
        "the direction from the right goes on from the other's state",
        OURS,
        edited(
            elmo.ELMo, "forward", "before[2:] if c.both_remember", "before[:2] if c.both_remember"
        ),
    ),
    Mutant(
        "padding counts for the norm of a batch",
        OURS,
        edited(elmo, "normalised_as_one", "layer_BTD[real_BT]", "layer_BTD.flatten(0, 1)"),
    ),
    Mutant(
        "the norm of a batch is one for each feature",
        "batch norm",
        edited(elmo, "normalised_as_one", "x_ND.mean()", "x_ND.mean(dim=0)"),
    ),
    Mutant(
        "rows that overlap are as short as their stride",
        OURS,
        edited(
            Streams, "rows_of", "torch.arange(self.length + 1)", "torch.arange(self._stride + 1)"
        ),
    ),
    Mutant(
        "the last row that overlaps is not whole",
        OURS,
        instead(Streams, "size", property(lambda s: s.batch * ((s._each - 1) // s._stride))),
    ),
    Mutant(
        "top-p within p drops the best word",
        OURS,
        put(sampling.nucleus, drops_the_best),
    ),
    Mutant(
        "the fast nucleus reaches p where it should stay within",
        OURS,
        faster("labkit.sampling.nucleus", reaches_whatever_is_said),
    ),
    Mutant(
        "sampling does not say whether the nucleus stays within p",
        OURS,
        edited(sampling.Sampling, "stages", ", within=self.top_p_within", ""),
    ),
    Mutant(
        "the decay from the start forgets the warm-up",
        OURS,
        edited(Plan, "share", "and step >= (self.warmup or 0)", ""),
    ),
    Mutant(
        "the decay begins after the warm-up, whatever the plan says",
        OURS,
        edited(Plan, "share", "None if risen else self.warmup", "self.warmup"),
    ),
    Mutant(
        "a release's GELU is always the approximation",
        OURS,
        lambda: patch.dict(release_names.ACTIVATION_NAMES, {"gelu": "gelu_tanh"}),
    ),
    Mutant(
        "the decoder takes any GELU for the approximation",
        OURS,
        edited(decoding, "can_decode", 'and backbone.config.activation == "gelu_tanh"', ""),
    ),
    Mutant(
        "the projection is left out",
        OURS,
        edited(groups, "classifier", "pooled=projection", "pooled=False"),
    ),
    Mutant(
        "the projection is everybody's",
        OURS,
        edited(groups, "classifier", "pooled=projection", "pooled=True"),
    ),
    Mutant(
        "short rows have half of the length",
        OURS,
        edited(Pairs, "_room", "2 + scaled(size, most - 1)", "most // 2"),
    ),
    Mutant(
        "every second row is short",
        OURS,
        edited(Pairs, "_room", "(short + 2**31) < self.short * 2**32", "short * self.short < 0"),
    ),
    # Beside the rules.
    Mutant(
        "a seed is any text",
        OURS,
        edited(Chance, "__post_init__", "not is_whole", "callable"),
    ),
    Mutant(
        "tokens for a GPU are not looked at",
        OURS,
        edited(trainer, "on_device", 'device.type != "cpu"', "False"),
    ),
    Mutant(
        "a GPU takes any token below zero",
        "torch's indices",
        edited(tensor_checks, "check_without_waiting", "(numbers >= 0) &", ""),
    ),
    Mutant(
        "a GPU takes the word behind the vocabulary",
        OURS,
        edited(tensor_checks, "check_without_waiting", "< known)", "<= known)"),
    ),
    Mutant(
        "all parts of a sum are read as wide as the first",
        OURS,
        edited(experts, "real_by_size", "for part in targets.parts", "for part in ()"),
    ),
    Mutant(
        "the frequencies of labels are not taken out of their chances",
        OURS,
        edited(labelled, "_chances", "p / before[label]", "p"),
    ),
]


CHECKS: dict[str, Callable[[], None]] = {
    "rules: exact counts": test_rules.check_exact_counts,
    "rules: special random words": test_rules.check_special_random_words,
    "rules: n-grams by hand": test_rules.check_ngrams_by_hand,
    "rules: sizes of n-grams": test_rules.check_ngram_sizes,
    "rules: contexts by hand": test_rules.check_contexts_by_hand,
    "rules: spans of XLNet": test_rules.check_spans_of_xlnet,
    "rules: masks of XLNet's release": test_rules.check_masks_of_the_release,
    "rules: positions of special tokens": test_rules.check_special_tokens_stand_anywhere,
    "rules: the part that is reused": test_rules.check_reuse,
    "rules: memory of that part": test_rules.check_memory_of_the_reused_part,
    "rules: rows that overlap": test_rules.check_rows_overlap,
    "rules: the mean of means": test_rules.check_mean_of_means,
    "rules: top-p within p": test_rules.check_top_p_within,
    "rules: decay": test_rules.check_decay_from_the_start,
    "rules: GELU": test_rules.check_gelu,
    "rules: projection": test_rules.check_projection,
    "rules: short rows": test_rules.check_short_rows,
    "seeds of chance": test_chance.test_seeds_and_steps_are_whole_numbers,
    "tokens for a GPU": test_inputs.test_tokens_are_checked_before_they_are_sent_to_another_device,
    "tokens on a GPU": test_inputs.test_a_gpu_stops_at_tokens_that_are_not_in_the_vocabulary,
    "balance of a sum": (
        test_experts.test_the_balance_of_a_sum_is_over_the_real_positions_of_each_part
    ),
    "chances of labels": (
        test_world_language.test_chances_of_labels_do_not_depend_on_how_frequent_they_are
    ),
    "rules: clipping": test_rules.check_clipping,
    "rules: a limit that is not reached": test_rules.check_a_limit_that_is_not_reached,
    "rules: both directions remember": test_rules.check_both_remember,
    "rules: one norm for a batch": test_rules.check_one_norm_for_a_batch,
}
