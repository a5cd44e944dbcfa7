"""From a pre-trained model to a task: another head, and control over which layers learn."""

from labkit.transfer.groups import (
    classifier,
    discriminative,
    features_only,
    freeze,
    labels_of,
    language_model_of,
    layer_groups,
    span_finder,
    tagger,
    unfreeze_from_top,
)

__all__ = [
    "classifier",
    "discriminative",
    "features_only",
    "freeze",
    "labels_of",
    "language_model_of",
    "layer_groups",
    "span_finder",
    "tagger",
    "unfreeze_from_top",
]
