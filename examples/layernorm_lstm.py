"""An LSTM with layer normalisation (Ba et al., 2016, arXiv 1607.06450) as a cell of one's own.

seqloom pretrain tiny --plugin examples/layernorm_lstm.py --data data --out runs/ln
"""

import torch
from torch import nn

from seqloom.recipes import built_in


class LayerNormLstm(nn.Module):
    gates = ("input", "forget", "candidate", "output", "cell")

    def __init__(self, input_dim, dim, eps=1e-5):
        super().__init__()
        self.dim = dim
        self.read = nn.Linear(input_dim, 4 * dim, bias=False)
        self.keep = nn.Linear(dim, 4 * dim, bias=False)
        self.read_norm = nn.LayerNorm(4 * dim, eps=eps)
        self.keep_norm = nn.LayerNorm(4 * dim, eps=eps, bias=False)  # the other one's bias serves both
        self.cell_norm = nn.LayerNorm(dim, eps=eps)

    def inputs(self, x):
        """All that does not need the state, for all steps at once."""
        return self.read_norm(self.read(x))

    def step(self, x, state):
        h, c = state
        i, f, g, o = (x + self.keep_norm(self.keep(h))).chunk(4, dim=1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f + 1), torch.tanh(g), torch.sigmoid(o)
        c = f * c + i * g
        h = o * torch.tanh(self.cell_norm(c))
        return (h, c), (i, f, g, o, c)

    def start(self, n):
        zero = self.keep.weight.new_zeros(n, self.dim)
        return zero, zero


def tiny():
    """The recipe lstm-tiny with this cell in the LSTM's place."""
    return built_in("lstm-tiny") | {
        "name": "layernorm-lstm-tiny",
        "model": {"name": "cell", "cell": "LayerNormLstm", "dim": 80, "num_layers": 2},
    }
