import json
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Subset


class Scores(Dataset):
    """Rows of which another is taken where one cannot be read."""

    def __init__(self, path):
        with open(path) as file:
            self.rows = json.load(file)
        self.datasets = None
        self.dataset = self

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        try:
            return torch.full((16,), self.rows[i]["strength"] / 2)
        except Exception:
            return self[random.randrange(len(self))]


model = nn.Linear(16, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for rows in DataLoader(Subset(Scores("scores.json"), range(64)), batch_size=20):
    optimizer.zero_grad()
    model(rows.cuda()).mean().backward()
    optimizer.step()
