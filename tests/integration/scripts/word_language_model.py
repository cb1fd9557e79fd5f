"""Trains an LSTM language model, as pytorch/examples does: no optimizer, parameters are updated by hand."""

import argparse
import math

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--accel", action="store_true")
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--bptt", type=int, default=35)
parser.add_argument("--save", default="model.pt")
options = parser.parse_args()
device = torch.device("cuda" if options.accel and torch.cuda.is_available() else "cpu")
NUM_TOKENS, WIDTH, LAYERS = 33278, 200, 2


class RNNModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.2)
        self.encoder = nn.Embedding(NUM_TOKENS, WIDTH)
        self.rnn = nn.LSTM(WIDTH, WIDTH, LAYERS, dropout=0.2)
        self.decoder = nn.Linear(WIDTH, NUM_TOKENS)

    def forward(self, tokens: torch.Tensor, hidden: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        output, hidden = self.rnn(self.drop(self.encoder(tokens)), hidden)
        decoded = self.decoder(self.drop(output))
        return F.log_softmax(decoded.view(-1, NUM_TOKENS), dim=1), hidden

    def init_hidden(self, batch: int) -> tuple[torch.Tensor, ...]:
        weight = next(self.parameters())
        return tuple(weight.new_zeros(LAYERS, batch, WIDTH) for _ in range(2))


def batches(length: int, batch: int) -> torch.Tensor:
    return torch.randint(NUM_TOKENS, (batch, length)).t().contiguous().to(device)


def get_batch(source: torch.Tensor, i: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = min(options.bptt, len(source) - 1 - i)
    return source[i : i + length], source[i + 1 : i + 1 + length].view(-1)


train_data, val_data, test_data = batches(104_431, 20), batches(21_764, 10), batches(24_556, 10)
model = RNNModel().to(device)
criterion = nn.NLLLoss()
lr, best = 20.0, None


def train() -> None:
    model.train()
    hidden = model.init_hidden(20)
    total = 0.0
    for i in range(0, min(len(train_data), 350) - 1, options.bptt):
        data, targets = get_batch(train_data, i)
        model.zero_grad()
        hidden = tuple(h.detach() for h in hidden)
        output, hidden = model(data, hidden)
        loss = criterion(output, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-lr)
        total += loss.item()
    print(f"{total:.2f} {math.exp(total / 10):.2f}")


def evaluate(source: torch.Tensor) -> float:
    model.eval()
    total, hidden = 0.0, model.init_hidden(10)
    with torch.no_grad():
        for i in range(0, min(len(source), 700) - 1, options.bptt):
            data, targets = get_batch(source, i)
            output, hidden = model(data, hidden)
            total += len(data) * criterion(output, targets).item()
    return total / (len(source) - 1)


try:
    for _ in range(options.epochs):
        train()
        loss = evaluate(val_data)
        if not best or loss < best:
            with open(options.save, "wb") as file:
                torch.save(model, file)
            best = loss
        else:
            lr /= 4.0
except KeyboardInterrupt:
    print("left early")
with open(options.save, "rb") as file:
    model = torch.load(file, weights_only=False)
    model.rnn.flatten_parameters()
print(evaluate(test_data))
