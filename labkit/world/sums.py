"""The forward and backward sums over all paths, for many rows of words at once.

A row is a text, some words of which may be hidden.  An observed word leaves few states alive (its
entries), so only those are carried from word to word:

    forward    a_t(s) = sum over nodes r of  a_{t-1}(r) p(r -> s) p(w_t | s)
    backward   b_t(r) = sum over states s of  p(r -> s) p(w_{t+1} | s) b_{t+1}(s)

Both are scaled to sum to one at every step, and the logarithms of the scales are added up: float64
all the way. Rabiner (1989), "A tutorial on hidden Markov models", sections III and V.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from labkit.world.machine import Machine, spans

# At most so many rows go through the arrays together, and so many values of a pass are kept at
# once.
ROWS, KEPT = 64, 12_000_000


class Row(NamedTuple):
    """A text for the sums: one symbol a position (`machine.hidden` where nothing is seen)."""

    symbols: np.ndarray


class Step(NamedTuple):
    """The sums at one position, for the rows that are at least so long.

    `alpha` holds the values of all rows behind one another; `states` and `owner` say of which state and row.
    """

    entries: np.ndarray
    states: np.ndarray
    owner: np.ndarray
    alpha: np.ndarray
    arcs: np.ndarray
    arc_owner: np.ndarray
    segments: np.ndarray
    log_scale: np.ndarray


@dataclass
class Sums:
    """All rows of a chunk, the longest first."""

    machine: Machine
    rows: list[Row]
    start: np.ndarray

    def forward(self) -> Iterator[Step]:
        """Go through the positions from left to right."""
        machine, size = self.machine, len(self.start)
        lengths = np.array([len(row.symbols) for row in self.rows])
        values = np.tile(self.start, (len(self.rows), 1))
        stops = len(machine.leave)
        log_scale = np.zeros(len(self.rows))
        last = np.arange(values.size)
        for t in range(lengths[0]):
            count = int((lengths > t).sum())
            values, log_scale = values[:count], log_scale[:count].copy()
            entries, owner, arcs, arc_owner, segments = self._alive(t, count)
            flat = values.reshape(-1)
            products = (
                flat[arc_owner * size + machine.entries.source[arcs]]
                * machine.entries.arc_weight[arcs]
            )
            alpha = np.add.reduceat(products, segments)
            states = machine.entries.state[entries]
            total = np.bincount(owner, alpha, minlength=count)
            with np.errstate(divide="ignore"):
                log_scale += np.log(total)
            alpha /= np.where(total > 0, total, 1.0)[owner]
            flat[last[last < flat.size]] = 0.0
            last = owner * size + states
            flat[last] = alpha
            values[:, machine.states :] = values[:, :stops] @ machine.inside
            yield Step(entries, states, owner, alpha, arcs, arc_owner, segments, log_scale)

    def backward(self, steps: list[Step]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Go back through the steps of a forward pass; give (position, beta of its entries, its log
        scale).
        """
        machine, size = self.machine, len(self.start)
        lengths = np.array([len(row.symbols) for row in self.rows])
        stops = len(machine.leave)
        values = np.zeros((len(self.rows), size))
        log_scale = np.zeros(len(self.rows))
        flat = values.reshape(-1)
        for t in reversed(range(lengths[0])):
            step = steps[t]
            count = int((lengths > t).sum())
            here = step.owner * size + step.states
            beta = np.where((lengths[:count] == t + 1)[step.owner], 1.0, flat[here])
            top = np.zeros(count)
            np.maximum.at(top, step.owner, beta)
            with np.errstate(divide="ignore"):
                log_scale[:count] += np.log(top)
            beta = beta / np.where(top > 0, top, 1.0)[step.owner]
            yield t, beta, log_scale[:count].copy()
            entry_of_arc = np.repeat(
                np.arange(len(beta)), np.diff(np.append(step.segments, len(step.arcs)))
            )
            target = step.arc_owner * size + machine.entries.source[step.arcs]
            values[:] = 0.0
            np.add.at(flat, target, machine.entries.arc_weight[step.arcs] * beta[entry_of_arc])
            values[:, :stops] += values[:, machine.states :] @ machine.inside.T

    def _alive(self, t: int, count: int) -> tuple[np.ndarray, ...]:
        """The entries of the symbols at position t with the arcs that lead into them, row after
        row.
        """
        machine = self.machine
        symbol = np.array([row.symbols[t] for row in self.rows[:count]])
        first, past = machine.entries.start[symbol], machine.entries.start[symbol + 1]
        entries, owner = spans(first, past - first), np.repeat(np.arange(count), past - first)
        arc_first, arc_past = machine.entries.arc[first], machine.entries.arc[past]
        arcs = spans(arc_first, arc_past - arc_first)
        arc_owner = np.repeat(np.arange(count), arc_past - arc_first)
        counts = machine.entries.arc[entries + 1] - machine.entries.arc[entries]
        return entries, owner, arcs, arc_owner, np.cumsum(counts) - counts


def prefix_masses(machine: Machine, rows: list[Row], start: np.ndarray) -> list[np.ndarray]:
    """Log of the summed weight of every prefix of every row: [T, 2], free paths and paths bound to
    facts.
    """
    out: list[np.ndarray] = [np.zeros((0, 2))] * len(rows)
    for chunk in _chunks(machine, rows, keep=False):
        sums = Sums(machine, [rows[i] for i in chunk], start)
        masses = np.full((len(chunk), len(sums.rows[0].symbols), 2), -np.inf)
        for t, step in enumerate(sums.forward()):
            bound = machine.bound[step.states]
            for group in (0, 1):
                part = np.bincount(
                    step.owner, step.alpha * (bound == group), minlength=len(step.log_scale)
                )
                with np.errstate(divide="ignore"):
                    masses[: len(part), t, group] = np.log(part) + step.log_scale
        for number, i in enumerate(chunk):
            out[i] = masses[number, : len(rows[i].symbols)]
    return out


class Posterior(NamedTuple):
    """The weights of the states at one position given the whole row, on a common log scale."""

    states: np.ndarray
    weights: np.ndarray
    log_scale: float


def posteriors(
    machine: Machine, rows: list[Row], start: np.ndarray, wanted: list[list[int]]
) -> list[dict[int, Posterior]]:
    """For every row, the weights of the states at the wanted positions: forward times backward."""
    out: list[dict[int, Posterior]] = [{} for _ in rows]
    for chunk in _chunks(machine, rows, keep=True):
        sums = Sums(machine, [rows[i] for i in chunk], start)
        steps = list(sums.forward())
        want = [set(wanted[i]) for i in chunk]
        for t, beta, log_scale in sums.backward(steps):
            step = steps[t]
            if not any(t in positions for positions in want):
                continue
            weights = step.alpha * beta
            edges = np.searchsorted(step.owner, np.arange(len(log_scale) + 1))
            for number in range(len(log_scale)):
                if t in want[number]:
                    span = slice(edges[number], edges[number + 1])
                    scale = step.log_scale[number] + log_scale[number]
                    out[chunk[number]][t] = Posterior(
                        step.states[span], weights[span], float(scale)
                    )
    return out


def suffix_masses(machine: Machine, rows: list[Row], prior: np.ndarray) -> list[np.ndarray]:
    """Log of the summed weight of every suffix, when `prior` is the law of the state at its first
    word: [T, 2].
    """
    out: list[np.ndarray] = [np.zeros((0, 2))] * len(rows)
    start = np.zeros(machine.states + len(machine.sections))
    for chunk in _chunks(machine, rows, keep=True):
        sums = Sums(machine, [rows[i] for i in chunk], start)
        steps = list(sums.forward())
        masses = np.full((len(chunk), len(steps), 2), -np.inf)
        for t, beta, log_scale in sums.backward(steps):
            step = steps[t]
            weights = prior[step.states] * machine.entries.weight[step.entries] * beta
            bound = machine.bound[step.states]
            for group in (0, 1):
                part = np.bincount(step.owner, weights * (bound == group), minlength=len(log_scale))
                with np.errstate(divide="ignore"):
                    masses[: len(part), t, group] = np.log(part) + log_scale
        for number, i in enumerate(chunk):
            out[i] = masses[number, : len(rows[i].symbols)]
    return out


def _chunks(machine: Machine, rows: list[Row], keep: bool) -> Iterator[list[int]]:
    """Rows of like length together, the longest first, as many as the memory for a pass allows."""
    counts = np.diff(machine.entries.start)
    chunk: list[int] = []
    kept = 0
    for i in sorted(
        (i for i in range(len(rows)) if len(rows[i].symbols)), key=lambda i: -len(rows[i].symbols)
    ):
        size = int(counts[rows[i].symbols].sum()) if keep else 0
        if chunk and (len(chunk) == ROWS or kept + size > KEPT):
            yield chunk
            chunk, kept = [], 0
        chunk.append(i)
        kept += size
    if chunk:
        yield chunk
