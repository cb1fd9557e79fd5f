import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

MAX = 200


class Pairs(Dataset):
    def __init__(self, path):
        self.rows = json.load(open(path))["data"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        ids = [hash(w) % 1000 for w in self.rows[i]["translation"]["en"].split()]
        if len(ids) > MAX:
            raise ValueError("Sentence is too long")
        return torch.tensor(ids + [0] * (MAX - len(ids)))


loader = DataLoader(Pairs("data/pairs.json"), batch_size=8)
model = nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 1000)).cuda()
opt = torch.optim.Adam(model.parameters())
for x in loader:
    x = x.cuda()
    loss = nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
