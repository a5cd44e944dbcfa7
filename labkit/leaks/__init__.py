"""What does a prediction depend on?  Measured, beside what the objective allows.

Each prediction of a model is traced back to each word of the batch in two ways: by gradients (does
the score move with the vector at that position?) and by exchange (does it move when another word
stands there?). What the objective allows is computed from its masks alone, composed layer by layer:
a position sees what those see that it looks at. Outside of that, the gradient must be exactly zero,
and an exchanged word may move a score by rounding only.

    found = trace(model, objective, batch)
    found.leaks                     # [] when nothing leaks

Give several batches to trace memory: the predictions are those of the last one. Read `trace` first.
"""

from labkit.leaks.measured import Dependence, Leak, trace

__all__ = ["Dependence", "Leak", "trace"]
