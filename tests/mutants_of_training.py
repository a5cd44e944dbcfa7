"""Mistakes in the trainer, in what keeps a run alive, and in the losses: see `mutants.py`."""

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import test_checkpoints
import test_trainer
import test_trainer_faults
import test_trainer_steps
import test_trainer_trouble
import torch
from mutants import OURS, Mutant, instead, put

from labkit import chance, optim, plan, trainer
from labkit.chance import Chance
from labkit.keeping import checkpoints
from labkit.keeping.checkpoints import Saver
from labkit.keeping.health import Health
from labkit.keeping.processes import Processes
from labkit.objectives import Balanced, Labels, Memory, base, experts
from labkit.optim import Average, Optimizers
from labkit.plan import Plan
from labkit.trainer import Trainer

# ---- one step ----------------------------------------------------------------------------------

look = Health.look


def stretches_short_gradients(self, loss, gradients):
    found = look(self, loss, gradients)
    return found._replace(divisor=self.scale * found.norm / (self.clip or found.norm))


def clips_what_is_scaled(self, loss, gradients):
    before = self.scale
    found = look(self, loss, gradients)
    longer = found.norm * before / self.clip if self.clip else torch.ones(())
    return found._replace(divisor=before * longer.clamp(min=1.0))


def never_undoes_the_scale(self, loss, gradients):
    before = self.scale
    found = look(self, loss, gradients)
    return found._replace(divisor=found.divisor / before)


def nothing_is_bad(self, loss, gradients):
    found = look(self, loss, gradients)
    return found._replace(bad=torch.zeros_like(found.bad))


def zeros_instead_of_none(self):
    for parameter in self.parameters.values():
        if parameter.grad is not None:
            parameter.grad.zero_()


def leaves_gradients(self):
    pass


step_of, orthogonal = Optimizers.step, optim.orthogonal


def one_rate_for_all_groups(self, rate, divisor, bad):
    for optimizer in self.all:
        for group in optimizer.param_groups:
            group["factor"] = 1.0
    step_of(self, rate, divisor, bad)


def everything_decays(name, parameter):
    return True


def sixteen_bits_everywhere(matrix, coefficients):
    with patch.object(optim, "has_bfloat16", lambda device: True):
        return orthogonal(matrix, coefficients)


def update_of_qr(matrix, coefficients):
    return torch.linalg.qr(matrix).Q if matrix.shape[0] >= matrix.shape[1] else matrix


def matrices_with_tables(model):
    return {name for name, p in model.named_parameters() if p.ndim == 2}


share_of = Plan.share


def rate_of_the_next_step(self, step):
    return share_of(self, step + 1)


key_of = chance.key_of


def one_dropout_for_all_steps(*parts):
    return key_of(*parts[:2], *parts[3:]) if parts[0] == "dropout" else key_of(*parts)


def one_dropout_for_all_parts(*parts):
    return key_of(*parts[:3]) if parts[0] == "dropout" else key_of(*parts)


def counts_of_the_first_part(every):
    return dict(next(iter(every)).counts)


def a_cycle_without_a_peak(step, steps, warmup=None):
    return 1 / 250_000 if steps == 1 else plan.cosine(step, steps, warmup)


# ---- averages ----------------------------------------------------------------------------------


def one_minus_decay(decay=0.999):
    return real_ema(1 - decay)


real_ema = optim.get_ema_multi_avg_fn
add = Average.add


def counts_one_too_many(self):
    if self.count == 1:
        self.count = 2
    add(self)


def swap_only_once(self):
    for name, average in self.averages.items():
        self.parameters[name].data.copy_(average)


# ---- evaluation --------------------------------------------------------------------------------

mean_loss = trainer.mean_loss


def the_same_masks_in_every_batch(loss, model, objective, batches, floor, seed):
    still = SimpleNamespace(
        targets=lambda batch, chance: objective.targets(batch, replace(chance, step=0))
    )
    return mean_loss(loss, model, still, batches, floor, seed)


def evaluates_with_dropout(loss, model, objective, batches, floor, seed):
    model.eval = lambda: model
    try:
        return mean_loss(loss, model, objective, batches, floor, seed)
    finally:
        del model.eval


def stays_in_eval_mode(loss, model, objective, batches, floor, seed):
    found = mean_loss(loss, model, objective, batches, floor, seed)
    model.eval()
    return found


def mean_of_the_batches(loss, model, objective, batches, floor, seed):
    each = [mean_loss(loss, model, objective, [batch], floor, seed) for batch in batches]
    return replace(each[0], loss=sum(one.loss for one in each) / len(each))


# ---- what is random ----------------------------------------------------------------------------

bits, uniform = Chance.bits, Chance.uniform


def words_from_the_bits_of_positions(self, purpose, positions):
    return bits(self, {"word": "hide"}.get(purpose, purpose), positions)


def fates_from_the_bits_of_positions(self, purpose, positions):
    return uniform(self, {"fate": "hide"}.get(purpose, purpose), positions)


# ---- losses ------------------------------------------------------------------------------------

balanced = Balanced.loss


def balance_over_padding(self, model, targets, memory=None):
    everything = torch.ones_like(targets.inputs.real)
    seen = replace(targets, inputs=replace(targets.inputs, real=everything))
    return balanced(self, model, seen, memory)


def every_row_has_a_balance(targets):
    return len(targets.inputs)


targets_of = Labels.targets


def choices_of_unlike_questions(self, batch, chance):
    found = targets_of(replace(self, choices=1), batch, chance)
    return replace(found, counts={k: n // self.choices for k, n in found.counts.items()})


# ---- what is saved, and what comes back --------------------------------------------------------

load = Trainer.load


def forgets(what: str) -> Callable[..., None]:
    """A load that leaves one thing as it is."""

    def loads(self, state):
        kept = self.step, self.scale, list(self.memory)
        learning = [p.requires_grad for p in self.model.parameters()]
        tensors = {k: v for k, v in state.tensors.items() if k != what}
        load(self, replace(state, tensors=tensors))
        if what == "step":
            self.step = kept[0]
        if what == "scale":
            self.scale = kept[1]
        if what == "learning":
            for parameter, learns in zip(self.model.parameters(), learning, strict=True):
                parameter.requires_grad_(learns)

    return loads


def equal_shares_of_memory(self, tensors, parts, together):
    """Rows that are left over when they are shared out lose their memory to nobody."""
    if not tensors:
        return [None] * parts
    each = len(tensors["known"]) // (parts * self.count)
    return [
        Memory.load({name: t[part * each : (part + 1) * each] for name, t in tensors.items()})
        for part in self.own(range(parts * self.count))
    ]


def no_checksum(*parts):
    return ANY


class Whatever(str):
    """Equal to every checksum."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = str.__hash__


ANY = Whatever("0")


def keeps_only_the_newest(self):
    self.good = self.good[-1:]
    for path in checkpoints.listed(self.folder):
        if path.name not in self.good:
            checkpoints.remove(path)


def another_format_is_fine(path, content):
    return None


# ---- the checks --------------------------------------------------------------------------------


def folder(check: Callable[[Path], None]) -> Callable[[], None]:
    """A check that gets an empty folder."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as place:
            check(Path(place))

    return run


def with_(check: Callable[..., None], *values: Any) -> Callable[[], None]:
    """A check of the tests, with parameters of its own."""
    return lambda: check(*values)


def memory_parts() -> None:
    for case in ((7, 3, 1), (10, 3, 2)):
        test_trainer_faults.test_a_part_gets_the_memory_of_its_own_rows(*case)


def steps_of_muon() -> None:
    for precise in (True, False):
        with pytest.MonkeyPatch.context() as patches:
            test_trainer.test_muon_is_torchs_in_a_precision_that_the_processor_has(precise, patches)


def bad_steps() -> None:
    for optimizer in ("adamw", "sgd"):
        test_trainer.test_a_step_that_is_no_number_is_skipped_counted_and_reported(
            optimizer, "gradient", 4
        )


def frozen() -> None:
    for optimizer in ("adamw", "sgd"):
        test_trainer_steps.test_a_layer_that_is_frozen_on_the_way_stands_still(optimizer)


def interrupted(name: str) -> Callable[[], None]:
    """A run that is broken off three times ends with the bits of one that was not."""
    return folder(
        lambda place: test_trainer.test_an_interrupted_run_ends_bit_for_bit_like_one_that_was_not(
            name, place
        )
    )


def a_flipped_bit(place: Path) -> None:
    path = checkpoints.write(place, test_checkpoints.snapshot(5))
    file = path / "weights.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    assert checkpoints.newest(place).snapshot is None


def one_step_schedules() -> None:
    for name in plan.SCHEDULES:
        test_trainer_faults.test_a_run_of_one_step_takes_it_at_the_full_rate(name)


def questions_with_an_empty_choice() -> None:
    test_trainer_faults.test_a_question_with_an_empty_choice_is_left_out_as_a_whole(2)


CHECKS: dict[str, Callable[[], None]] = {
    "the loop by hand": test_trainer.test_it_is_the_loop_that_one_would_write_by_hand,
    "short gradients": test_trainer_steps.test_short_gradients_are_not_stretched,
    "long gradients": test_trainer_steps.test_a_long_gradient_is_clipped_to_its_length,
    "float16 and float32": (
        test_trainer.test_float16_steps_are_those_of_float32_within_its_precision
    ),
    "bad steps": bad_steps,
    "frozen layers": frozen,
    "gradients left over": (
        test_trainer_trouble.test_gradients_of_the_readers_own_do_not_leak_into_the_first_step
    ),
    "rates of groups": test_trainer.test_groups_learn_at_their_own_rate,
    "what decays": test_trainer.test_only_matrices_decay,
    "what Muon takes": test_trainer.test_muon_takes_the_matrices_between_hidden_states,
    "steps of Muon": steps_of_muon,
    "dropout moves": test_trainer.test_dropout_differs_from_step_to_step_and_from_part_to_part,
    "a step in parts": lambda: test_trainer.test_a_run_does_not_depend_on_how_its_batches_are_cut(
        "gpt"
    ),
    "memory of parts": with_(
        test_trainer_steps.test_each_part_goes_on_from_the_memory_of_its_own_rows, 5
    ),
    "one step": one_step_schedules,
    "average: EMA": with_(test_trainer_steps.test_averages_are_their_formulas, "ema"),
    "average: mean": with_(test_trainer_steps.test_averages_are_their_formulas, "mean"),
    "mean of evaluation": test_trainer.test_evaluate_is_the_mean_over_all_predictions,
    "masks of evaluation": (
        test_trainer_steps.test_evaluation_hides_other_words_in_each_batch_and_the_same_in_each_call
    ),
    "dropout of evaluation": test_trainer_steps.test_evaluation_switches_dropout_off_and_back,
    "bits of random words": (
        test_trainer_steps.test_random_words_do_not_depend_on_what_chose_their_positions
    ),
    "bits of fates": (
        test_trainer_steps.test_what_happens_to_a_word_does_not_depend_on_what_chose_its_position
    ),
    "balance: padding": test_trainer_faults.test_padding_has_no_share_in_the_balance,
    "balance: parts": test_trainer_faults.test_a_part_that_is_all_padding_has_no_balance,
    "empty choices": questions_with_an_empty_choice,
    "rows of memory": memory_parts,
    "interrupted: GPT": interrupted("gpt"),
    "interrupted: memory": interrupted("transformer-xl, memory"),
    "the reader's loop is saved": folder(
        test_trainer.test_what_the_readers_loop_does_is_saved_with_its_step
    ),
    "a flipped bit": folder(a_flipped_bit),
    "checkpoints that stay": folder(
        test_checkpoints.test_old_ones_stay_until_enough_are_known_to_be_whole
    ),
    "another format": folder(
        test_trainer_faults.test_a_manifest_of_another_version_is_no_reason_to_begin_anew
    ),
}


def mutant(mistake: str, plant: Callable[[], Any], seen: str = OURS) -> Mutant:
    """A mistake, and how to make it."""
    return Mutant(mistake, seen, plant)


MUTANTS = [
    # One step.
    mutant(
        "clipping stretches short gradients", instead(Health, "look", stretches_short_gradients)
    ),
    mutant("the scaled gradient is clipped", instead(Health, "look", clips_what_is_scaled)),
    mutant("the scale of the loss stays", instead(Health, "look", never_undoes_the_scale)),
    mutant("a step that is no number is taken", instead(Health, "look", nothing_is_bad)),
    mutant(
        "gradients are set to zero, not to None",
        instead(Optimizers, "clear", zeros_instead_of_none),
        "zero_grad(set_to_none=False)",
    ),
    mutant("gradients are never cleared", instead(Optimizers, "clear", leaves_gradients)),
    mutant("all groups learn alike", instead(Optimizers, "step", one_rate_for_all_groups)),
    mutant("biases and norms decay", put(optim.decays, everything_decays)),
    mutant("Muon takes embeddings", put(optim.matrices, matrices_with_tables)),
    mutant(
        "Muon multiplies in 16 bits on every processor",
        put(optim.orthogonal, sixteen_bits_everywhere),
        "torch.optim.Muon",
    ),
    mutant("Muon's update is not of its iteration", put(optim.orthogonal, update_of_qr)),
    mutant("the rate is that of the next step", instead(Plan, "share", rate_of_the_next_step)),
    mutant("the same dropout in every step", put(chance.key_of, one_dropout_for_all_steps)),
    mutant("the same dropout in every part", put(chance.key_of, one_dropout_for_all_parts)),
    mutant("a step divides by the count of a part", put(base.total, counts_of_the_first_part)),
    mutant(
        "one cycle of one step has no peak",
        lambda: patch.dict(plan.SCHEDULES, one_cycle=a_cycle_without_a_peak),
    ),
    # Averages.
    mutant("EMA with 1 - decay", put(optim.get_ema_multi_avg_fn, one_minus_decay)),
    mutant("the mean counts one too many", instead(Average, "add", counts_one_too_many)),
    mutant("the mean stays in the model", instead(Average, "swap", swap_only_once)),
    # Evaluation.
    mutant(
        "the same masks in every batch of an evaluation",
        put(trainer.mean_loss, the_same_masks_in_every_batch),
    ),
    mutant("evaluation with dropout", put(trainer.mean_loss, evaluates_with_dropout)),
    mutant("evaluation leaves eval mode on", put(trainer.mean_loss, stays_in_eval_mode)),
    mutant("the mean of the batches' means", put(trainer.mean_loss, mean_of_the_batches)),
    # What is random.
    mutant(
        "random words from the bits that chose the position",
        instead(Chance, "bits", words_from_the_bits_of_positions),
    ),
    mutant(
        "fates from the bits that chose the position",
        instead(Chance, "uniform", fates_from_the_bits_of_positions),
    ),
    # Losses.
    mutant(
        "the balance of experts counts padding", instead(Balanced, "loss", balance_over_padding)
    ),
    mutant("rows of padding weigh in the balance", put(experts._texts, every_row_has_a_balance)),
    mutant(
        "choices of unlike questions compete",
        instead(Labels, "targets", choices_of_unlike_questions),
    ),
    # What is saved, and what comes back.
    mutant("the optimizer begins anew", instead(Trainer, "load", forgets("optimizer"))),
    mutant("the average begins anew", instead(Trainer, "load", forgets("average"))),
    mutant("memory begins anew", instead(Trainer, "load", forgets("memory"))),
    mutant("steps are counted anew", instead(Trainer, "load", forgets("step"))),
    mutant("the rate is whole again", instead(Trainer, "load", forgets("scale"))),
    mutant("what was unfrozen is frozen again", instead(Trainer, "load", forgets("learning"))),
    mutant("equal shares of memory", instead(Processes, "divided", equal_shares_of_memory)),
    mutant("nobody compares checksums", put(checkpoints.digest, no_checksum)),
    mutant("one checkpoint is enough", instead(Saver, "_forget", keeps_only_the_newest)),
    mutant("any format will do", put(checkpoints._check_format, another_format_is_fine)),
]
