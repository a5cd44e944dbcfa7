"""Each model equals an implementation that is not ours: layers, loss and gradients."""

import parity
import pytest
import torch


@pytest.mark.parametrize("dtype", parity.TOLERANCE, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("case", parity.cases(), ids=str)
def test_equals_the_reference(case: parity.Case, dtype: torch.dtype) -> None:
    differences = case.compare(dtype)
    assert differences
    for kind, difference in differences.items():
        assert difference <= parity.TOLERANCE[dtype], kind
