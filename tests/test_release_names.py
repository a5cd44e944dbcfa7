"""The table of the releases' names loses no tensor and no bit, in either direction."""

import pytest
import torch
from parity import bert, gpt, xlnet
from parity.releases import named, rows

FAMILIES = ["openai-gpt", "gpt2", "bert", "roberta", "albert", "distilbert", "xlnet"]


def _pair(family: str):
    """A release with random weights, and our backbone and heads with the same."""
    dtype = torch.float32
    if family in ("openai-gpt", "gpt2"):
        reference, model = gpt.pair(family, 4, dtype)
        return reference, model.backbone, {}
    if family == "xlnet":
        reference, backbone, words = xlnet.pair(4, dtype)
        return reference, backbone, {"words": words}
    reference, backbone, words, label = bert.pair(family, 4, dtype)
    return reference, backbone, {"words": words, "label": label}


@pytest.mark.parametrize("family", FAMILIES)
def test_written_back_a_release_is_the_same_bit_for_bit(family: str) -> None:
    reference, backbone, heads = _pair(family)
    theirs, written = named(reference), {}
    for module, row in rows(family, backbone, heads):
        parts = row.views(module.get_parameter(row.ours).detach(), backbone.config.heads)
        written |= dict(zip(row.theirs, parts, strict=True))
    for name, tensor in written.items():
        assert torch.equal(tensor, theirs[name]), name
    assert {id(theirs[name]) for name in written} == {id(tensor) for tensor in theirs.values()}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_tensor_of_ours_is_in_the_table(family: str) -> None:
    _, backbone, heads = _pair(family)
    listed = {id(module.get_parameter(row.ours)) for module, row in rows(family, backbone, heads)}
    ours = [*backbone.parameters(), *(p for h in heads.values() if h for p in h.parameters())]
    assert listed == {id(parameter) for parameter in ours}
