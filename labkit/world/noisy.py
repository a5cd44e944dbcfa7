"""The sums when every word that is shown may be wrong: then all states stay alive, and dense
columns are best.

A position shows a word y; a state that emits y with probability p counts keep * p + noise.  A
hidden word is keep = 0, noise = 1, and a word seen for certain keep = 1, noise = 0, so one rule
covers all.
"""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from labkit.world.machine import Machine, spans
from labkit.world.sums import Posterior

COLUMNS = 32


class NoisyRow(NamedTuple):
    """What is shown at each position, how far it is to be believed, and the document's class."""

    symbols: np.ndarray
    keep: np.ndarray
    noise: np.ndarray
    of_class: int


def noisy_posteriors(
    machine: Machine, rows: list[NoisyRow], start: np.ndarray, wanted: list[list[int]]
) -> list[dict[int, Posterior]]:
    """For every row, the weights of the states at the wanted positions, whatever is shown right
    there.
    """
    order = sorted(range(len(rows)), key=lambda i: -len(rows[i].symbols))
    chunks = [order[first : first + COLUMNS] for first in range(0, len(order), COLUMNS)]

    def work(chunk: list[int]) -> list[dict[int, Posterior]]:
        columns = _Columns(machine, [rows[i] for i in chunk])
        return columns.posteriors(start, [set(wanted[i]) for i in chunk])

    out: list[dict[int, Posterior]] = [{} for _ in rows]
    # numpy works on arrays of this size without Python's lock, so threads do use the cores.
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        for chunk, found in zip(chunks, pool.map(work, chunks), strict=True):
            for i, positions in zip(chunk, found, strict=True):
                out[i] = positions
    return out


class _Columns:
    """A chunk of rows, the longest first, as the columns of matrices [states, rows]."""

    def __init__(self, machine: Machine, rows: list[NoisyRow]) -> None:
        self.machine, self.rows = machine, rows
        self.lengths = np.array([len(row.symbols) for row in rows])
        nodes = machine.states + len(machine.sections)
        self.into = _Arcs(
            machine.arc_source, machine.arc_target, machine.arc_weight, machine.states
        )
        self.back = _Arcs(machine.arc_target, machine.arc_source, machine.arc_weight, nodes)

    def posteriors(self, start: np.ndarray, wanted: list[set[int]]) -> list[dict[int, Posterior]]:
        """Forward times backward, without what is shown at the wanted position itself."""
        before: list[dict[int, tuple[np.ndarray, float]]] = [{} for _ in self.rows]
        for t, values, scale in self._forward(start):
            for row in range(len(scale)):
                if t in wanted[row]:
                    before[row][t] = (values[:, row].copy(), float(scale[row]))
        out: list[dict[int, Posterior]] = [{} for _ in self.rows]
        every = np.arange(self.machine.states)
        for t, values, scale in self._backward():
            for row in range(len(scale)):
                if t in wanted[row]:
                    left, left_scale = before[row].pop(t)
                    weights = left * values[:, row]
                    out[row][t] = Posterior(every, weights, left_scale + float(scale[row]))
        return out

    def _forward(self, start: np.ndarray) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """At every position: what the words before it say about each state, and the log of its
        scale.
        """
        stops = len(self.machine.inside)
        nodes = np.repeat(start[:, None], len(self.rows), axis=1)
        scale = np.zeros(len(self.rows))
        for t in range(self.lengths[0]):
            count = int((self.lengths > t).sum())
            values, scale = self.into.times(nodes[:, :count]), scale[:count]
            yield t, values, scale
            values = self._shown(t, values)
            total = np.maximum(values.sum(axis=0), 1e-300)
            values /= total
            scale = scale + np.log(total)
            nodes = np.concatenate([values, self.machine.inside.T @ values[:stops]])

    def _backward(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """At every position: what the words after it say about each state, and the log of its
        scale.
        """
        size, stops = self.machine.states, len(self.machine.inside)
        values = np.ones((size, len(self.rows)))
        scale = np.zeros(len(self.rows))
        for t in reversed(range(self.lengths[0])):
            count = int((self.lengths > t).sum())
            yield t, values[:, :count], scale[:count]
            nodes = self.back.times(self._shown(t, values[:, :count]))
            here = nodes[:size]
            here[:stops] += self.machine.inside @ nodes[size:]
            top = np.maximum(here.max(axis=0), 1e-300)
            values[:, :count] = here / top
            scale[:count] += np.log(top)

    def _shown(self, t: int, values: np.ndarray) -> np.ndarray:
        """Weigh every state by how likely it shows what is shown at t: [states, rows]."""
        machine, rows = self.machine, self.rows[: values.shape[1]]
        symbol = np.array([row.symbols[t] for row in rows])
        keep = np.array([row.keep[t] for row in rows])
        of_class = np.array([row.of_class for row in rows])
        first = machine.entries.start[symbol]
        number = np.where(keep > 0, machine.entries.start[symbol + 1] - first, 0)
        entries, owner = spans(first, number), np.repeat(np.arange(len(rows)), number)
        states = machine.entries.state[entries]
        counted = machine.entries.classes[entries] >> of_class[owner] & 1
        kept = values[states, owner] * keep[owner] * machine.entries.weight[entries] * counted
        out = values * np.array([row.noise[t] for row in rows])
        out[states, owner] += kept
        return out


class _Arcs:
    """A sparse matrix: sums what comes over the arcs into each target."""

    def __init__(
        self, source: np.ndarray, target: np.ndarray, weight: np.ndarray, size: int
    ) -> None:
        order = np.argsort(target, kind="stable")
        source, target, weight = source[order], target[order], weight[order, None]
        self.size = size
        self.targets, first = np.unique(target, return_index=True)
        self.source, self.weight = source[first], weight[first]
        # Most states have one arc only: the few others add the rest of theirs to the first.
        rest = np.delete(np.arange(len(target)), first)
        self.more_source, self.more_weight = source[rest], weight[rest]
        self.more_targets, self.more_first = np.unique(target[rest], return_index=True)

    def times(self, columns: np.ndarray) -> np.ndarray:
        """The sums for many columns at once."""
        out = np.zeros((self.size, columns.shape[1]))
        out[self.targets] = columns[self.source] * self.weight
        if len(self.more_first):
            more = columns[self.more_source] * self.more_weight
            out[self.more_targets] += np.add.reduceat(more, self.more_first, axis=0)
        return out
