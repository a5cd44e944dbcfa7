"""From a pre-trained model to a task: another head, and a say in which layers learn."""

from labkit.transfer.groups import (
    both_orders,
    classifier,
    discriminative,
    features_only,
    freeze,
    labels_of,
    language_model_of,
    layer_groups,
    one_text,
    span_finder,
    tagger,
    two_texts,
    unfreeze_from_top,
    with_choices,
)

__all__ = [
    "both_orders",
    "classifier",
    "discriminative",
    "features_only",
    "freeze",
    "labels_of",
    "language_model_of",
    "layer_groups",
    "one_text",
    "span_finder",
    "tagger",
    "two_texts",
    "unfreeze_from_top",
    "with_choices",
]
