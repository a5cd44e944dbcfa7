"""The forward and backward sums over all paths, for many rows of words at once.

A row is a text, some words of which may be hidden.  A word that is seen leaves few states alive, so
only those are carried on: each sends its weight over its arcs, and what does not say the next word
is dropped.

    forward    a_t(s) = sum over states r of  a_{t-1}(r) p(r -> s) p(w_t | s)
    backward   b_t(r) = sum over states s of  p(r -> s) p(w_{t+1} | s) b_{t+1}(s)

Both are scaled at every step, and the logarithms of the scales are added up: float64 all the way.
Where a word that is shown may be wrong, a state that says it with chance p counts keep * p + noise,
and every other state noise: so all stay alive, but those under `SMALLEST` of their row are dropped.
Rabiner (1989), "A tutorial on hidden Markov models", sections III and V.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from labkit.world.machine import Arcs, Machine, items_of

# So many rows go through the arrays together. With noise, and where a row may begin in any state,
# it has many more states alive.
ROWS, WIDE_ROWS = 256, 8
# A wrong word costs a factor of about 1e-5. A text that somebody typed may have several in a row,
# and what explains the rest of it must survive them.
SMALLEST = 1e-40


class Symbols(NamedTuple):
    """A text for the sums: one symbol a position (`machine.hidden` where nothing is seen).

    With `noise`, keep and noise of every position: [2, T].
    """

    symbols: np.ndarray
    noise: np.ndarray | None = None


class ReadingOrder(NamedTuple):
    """How rows are read: from their first word on, or from their last word back, turned round.

    `begin` weighs the states before the first word that is read, `prior` those of the last one.
    """

    arcs: Arcs
    begin: np.ndarray
    prior: np.ndarray


class Shown(NamedTuple):
    """What the rows show at one position, and how reliable it is."""

    symbols: np.ndarray
    keep: np.ndarray
    noise: np.ndarray


def _shown(rows: list[Symbols], t: int) -> Shown:
    here = [row for row in rows if len(row.symbols) > t]
    keep, noise = np.ones(len(here)), np.zeros(len(here))
    for n, row in enumerate(here):
        if row.noise is not None:
            keep[n], noise[n] = row.noise[:, t]
    return Shown(np.array([row.symbols[t] for row in here]), keep, noise)


class ForwardStep(NamedTuple):
    """The states alive at one position, with their rows, classes and weights.

    `source`, `target` and `weight` are the arcs by which the states were entered: from number
    `source` of the step before to number `target` of this one.
    """

    states: np.ndarray
    owner: np.ndarray
    classes: np.ndarray
    alpha: np.ndarray
    log_scale: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray


def forward(
    machine: Machine, rows: list[Symbols], arcs: Arcs, begin: np.ndarray
) -> Iterator[ForwardStep]:
    """Go over rows, the longest first; `begin` weighs every state before the first word."""
    step = _enter(machine, _shown(rows, 0), begin)
    yield step
    for t in range(1, len(rows[0].symbols)):
        if len(step.states):
            step = _advance(machine, step, _shown(rows, t), arcs)
        else:  # no row has been possible up to here, so none is with one more word
            going = sum(len(row.symbols) > t for row in rows)
            step = step._replace(log_scale=step.log_scale[:going])
        yield step


def _enter(machine: Machine, shown: Shown, begin: np.ndarray) -> ForwardStep:
    """Begin in the states that say the first symbol; with noise, in all."""
    symbols = np.where(shown.noise > 0, machine.hidden, shown.symbols)
    index, owner = items_of(machine.entries.start, symbols)
    # Tens of thousands of states say a hidden word, and few of them begin a document.
    begins = begin[machine.entries.state[index]] > 0
    states, owner = machine.entries.state[index[begins]], owner[begins]
    every = np.full(len(states), machine.every_class)
    said = _emit(machine, shown, owner, states, every, begin[states])
    if shown.noise.any():
        order = np.argsort(said.owner, kind="stable")
        said = _Said(*(column[order] for column in said))
    scale, none = np.zeros(len(symbols)), np.zeros(0, int)
    entered = ForwardStep(
        said.states, said.owner, said.classes, said.value, scale, none, none, np.zeros(0)
    )
    return _scaled(entered, shown)


class _Said(NamedTuple):
    """The states that remain when a word is shown; `source` is the earlier number of each."""

    source: np.ndarray
    states: np.ndarray
    owner: np.ndarray
    classes: np.ndarray
    value: np.ndarray


def _emit(
    machine: Machine,
    shown: Shown,
    owner: np.ndarray,
    states: np.ndarray,
    classes: np.ndarray,
    value: np.ndarray,
) -> _Said:
    """Weigh states by what is shown.

    A state that emits the word in some classes only is split in two: in the other classes, the word
    is noise.
    """
    source, noisy = np.arange(len(states)), shown.noise.any()
    if not noisy:  # most states cannot emit the word: drop them early
        can = machine.can_say(shown.symbols[owner], states)
        if not can.all():
            [source] = np.nonzero(can)
            states, owner, classes, value = (x[source] for x in (states, owner, classes, value))
    says, mine = machine.says(shown.symbols[owner], states)
    keep, noise = shown.keep[owner], shown.noise[owner]
    said = _Said(source, states, owner, classes & mine, value * (keep * says + noise))
    if noisy:
        wrong = _Said(source, states, owner, classes & ~mine, value * noise)
        said = _Said(*(np.concatenate(pair) for pair in zip(said, wrong, strict=True)))
    kept = (said.value > 0) & (said.classes > 0)
    return said if kept.all() else _Said(*(column[kept] for column in said))


def _advance(machine: Machine, step: ForwardStep, shown: Shown, arcs: Arcs) -> ForwardStep:
    """Send every weight over its arcs, to the states that say the next symbol of its row."""
    # Rows that have ended are the last ones.
    going = int(np.searchsorted(step.owner, len(shown.symbols)))
    taken, source = items_of(arcs.start, step.states[:going])
    owner, classes = step.owner[source], step.classes[source]
    said = _emit(machine, shown, owner, arcs.target[taken], classes, arcs.weight[taken])
    source = source[said.source]
    sets = machine.every_class + 1
    key = (said.owner * sets + said.classes) * machine.states + said.states
    alive, target = np.unique(key, return_inverse=True)
    value = np.bincount(target, step.alpha[source] * said.value, minlength=len(alive))
    rest, states = np.divmod(alive, machine.states)
    owner, left = np.divmod(rest, sets)
    scale = step.log_scale[: len(shown.symbols)]
    return _scaled(
        ForwardStep(states, owner, left, value, scale, source, target, said.value), shown
    )


def _scaled(step: ForwardStep, shown: Shown) -> ForwardStep:
    """Make the weights of each row add up to 1; with noise, drop the smallest."""
    total = np.bincount(step.owner, step.alpha, minlength=len(step.log_scale))
    with np.errstate(divide="ignore"):
        log_scale = step.log_scale + np.log(total)
    kept = (step.alpha > SMALLEST * total[step.owner]) | (shown.noise[step.owner] == 0)
    if not kept.all():
        step = _only(step, kept)
    return step._replace(alpha=step.alpha / total[step.owner], log_scale=log_scale)


def _only(step: ForwardStep, kept: np.ndarray) -> ForwardStep:
    """The states that are kept, and the arcs by which they were entered."""
    arcs, number = kept[step.target], np.cumsum(kept) - 1
    return step._replace(
        states=step.states[kept],
        owner=step.owner[kept],
        classes=step.classes[kept],
        alpha=step.alpha[kept],
        source=step.source[arcs],
        target=number[step.target[arcs]],
        weight=step.weight[arcs],
    )


def backward(
    machine: Machine, rows: list[Symbols], steps: list[ForwardStep]
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Go back over a forward pass: the position, the weights [alive, class], their log scale."""
    lengths = np.array([len(row.symbols) for row in rows])
    scale = np.zeros(len(rows))
    after: ForwardStep | None = None
    beta: np.ndarray = np.zeros((0, 0))
    for t in reversed(range(len(steps))):
        step = steps[t]
        count, each = len(step.log_scale), len(machine.prior)
        last = (lengths == t + 1)[step.owner]
        # Behind a hidden word few of the states lead on: the others have no weight.
        leads = last.copy()
        if after is not None:
            leads[after.source] = True
        some = np.flatnonzero(leads)
        owner, now = step.owner[some], np.zeros((len(some), each))
        if after is not None:
            source = (np.cumsum(leads) - 1)[after.source]
            for c in range(each):
                sent = after.weight * beta[after.target, c]
                now[:, c] = np.bincount(source, sent, minlength=len(some))
        last = last[some]
        now[last] = step.classes[some[last], None] >> np.arange(each) & 1
        top, first = np.zeros(count), np.flatnonzero(np.diff(owner, prepend=-1))
        if len(some):
            top[owner[first]] = np.maximum.reduceat(now.max(axis=1), first)
        # A row that is impossible from here on has no weights left.
        top[top == 0] = 1.0
        scale[:count] += np.log(top)
        beta = np.zeros((len(step.states), each))
        beta[some] = now / top[owner, None]
        yield t, beta, scale[:count].copy()
        after = step


def prefix_masses(
    machine: Machine, rows: list[Symbols], order: ReadingOrder, last: int | None = None
) -> list[np.ndarray]:
    """Log of the weight of every prefix (or of the last ones): [T, group, class]."""
    shape = len(machine.members), len(machine.prior)
    out: list[np.ndarray] = [np.zeros((0, *shape))] * len(rows)
    for chunk in chunks(machine, rows):
        lengths = [len(rows[i].symbols) for i in chunk]
        masses = np.full((len(chunk), lengths[0], *shape), -np.inf)
        some = [rows[i] for i in chunk]
        for t, step in enumerate(forward(machine, some, order.arcs, order.begin)):
            if last is None or t >= lengths[len(step.log_scale) - 1] - last:
                logs = _by_class(machine, step, order.prior)
                masses[: len(logs), t] = logs + step.log_scale[:, None, None]
        for number, i in enumerate(chunk):
            whole = masses[number, : lengths[number]]
            out[i] = whole if last is None else whole[-last:]
    return out


def _by_class(machine: Machine, step: ForwardStep, prior: np.ndarray) -> np.ndarray:
    """Log of the weight of each row: [row, group, class]."""
    value, groups = step.alpha * prior[step.states], len(machine.members)
    rows, each = len(step.log_scale), len(machine.prior)
    key = groups * step.owner + machine.group[step.states]
    out = np.zeros((groups * rows, each))
    for bits in np.unique(step.classes):
        mine = step.classes == bits
        part = np.bincount(key[mine], value[mine], minlength=groups * rows)
        out += part[:, None] * (bits >> np.arange(each) & 1)
    with np.errstate(divide="ignore"):
        return np.log(out).reshape(rows, groups, each)


class Posterior(NamedTuple):
    """The weights [state, class] at one position given the whole row, on a common log scale."""

    states: np.ndarray
    weights: np.ndarray
    log_scale: float


def posteriors(
    machine: Machine, rows: list[Symbols], start: np.ndarray, wanted: list[list[int]]
) -> list[dict[int, Posterior]]:
    """For every row, the weights of the states at the wanted positions, given all that is seen.

    What a wanted position shows itself does not count where it may be wrong.
    """
    begin = machine.enter(start)
    out: list[dict[int, Posterior]] = [{} for _ in rows]
    for chunk in chunks(machine, rows):
        mine = [rows[i] for i in chunk]
        steps = list(forward(machine, mine, machine.onward, begin))
        want = [set(wanted[i]) for i in chunk]
        for t, beta, log_scale in backward(machine, mine, steps):
            step = steps[t]
            asked = [n for n in range(len(log_scale)) if t in want[n]]
            edges = np.searchsorted(step.owner, np.arange(len(log_scale) + 1))
            for n in asked:
                span = slice(edges[n], edges[n + 1])
                scale = float(step.log_scale[n] + log_scale[n])
                weights = (step.alpha[span] / _shares(machine, mine[n], t, step, span))[:, None]
                weights = weights * beta[span]
                out[chunk[n]][t] = Posterior(step.states[span], weights, scale)
    return out


def _shares(machine: Machine, row: Symbols, t: int, step: ForwardStep, span: slice) -> np.ndarray:
    """By how much the states alive were weighed for what a noisy position shows; else 1."""
    states, classes = step.states[span], step.classes[span]
    if row.noise is None or not row.noise[1, t]:
        return np.ones(len(states))
    says, mine = machine.says(np.full(len(states), row.symbols[t]), states)
    keep, noise = row.noise[:, t]
    return keep * says * ((classes & mine) > 0) + noise


def chunks(machine: Machine, rows: list[Symbols]) -> Iterator[list[int]]:
    """Rows of similar length together, the longest first; empty rows are left out."""
    wide: list[int] = []
    narrow: list[int] = []
    for i, row in enumerate(rows):
        if len(row.symbols):
            many = row.noise is not None or row.symbols[0] == machine.hidden
            (wide if many else narrow).append(i)
    for some, size in ((wide, WIDE_ROWS), (narrow, ROWS)):
        order = sorted(some, key=lambda i: -len(rows[i].symbols))
        for first in range(0, len(order), size):
            yield order[first : first + size]
