"""An LSTM whose states are projected, by the kernel for LSTMs whose states are not.

A projected state W_r m is only ever multiplied: W_h (W_r m) = (W_h W_r) m. So the cells' outputs m
are those of an ordinary LSTM with the recurrent weights W_h W_r, for which oneDNN has a kernel that
runs a whole text, and the states are projected afterwards, all at once.
"""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

if TYPE_CHECKING:
    from labkit.models.elmo import OneBiasLSTM

State = tuple[Tensor, Tensor]


def run(
    lstm: "OneBiasLSTM", x: Tensor | PackedSequence, state: State
) -> tuple[Tensor, State] | None:
    """`labkit.models.elmo.run` on a CPU; None where W_h W_r has many more weights than the two."""
    if isinstance(x, PackedSequence) or x.device.type != "cpu":
        return None
    if lstm.hidden_size > 2 * lstm.proj_size:
        return None
    m_BF, c_BF = _first_word(lstm, x[:, 0], *(part[0] for part in state))
    m_BTF = m_BF[:, None]
    if x.shape[1] > 1:
        recurrent_weights = lstm.weight_hh_l0 @ lstm.weight_hr_l0
        weights = (lstm.weight_ih_l0, recurrent_weights, lstm.bias_ih_l0, lstm.bias_hh_l0)
        one_layer = (True, 1, 0.0, lstm.training, False)  # biases, layers, dropout, …, both ways
        start = m_BF[None].contiguous(), c_BF[None].contiguous()
        rest, _, after = torch.lstm(x[:, 1:], start, weights, *one_layer, True)
        m_BTF, c_BF = torch.cat([m_BTF, rest], dim=1), after[0]
    h_BTD = F.linear(m_BTF, lstm.weight_hr_l0)
    return h_BTD, (h_BTD[None, :, -1], c_BF[None])


def _first_word(
    lstm: "OneBiasLSTM", x_BD: Tensor, h_BD: Tensor, c_BF: Tensor
) -> tuple[Tensor, Tensor]:
    """Read one word with W_h itself, for the state before the text is projected already."""
    from_word = F.linear(x_BD, lstm.weight_ih_l0, lstm.bias_ih_l0)
    i, f, new, o = (from_word + F.linear(h_BD, lstm.weight_hh_l0)).chunk(4, dim=-1)
    c_BF = f.sigmoid() * c_BF + i.sigmoid() * new.tanh()
    return o.sigmoid() * c_BF.tanh(), c_BF
