import json

import torch
from torch import nn

with open("data/users.json") as f:
    users = json.load(f)
samples = [(items[:-1], items[-1]) for _, items in users.items() if len(items) > 1]
model = nn.Sequential(nn.EmbeddingBag(1000, 64), nn.Linear(64, 1000)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for first in range(0, 72, 24):
    some = samples[first : first + 24]
    items, wanted = torch.tensor([each for each, _ in some]), torch.tensor([each for _, each in some])
    loss = nn.functional.cross_entropy(model(items.cuda()), wanted.cuda())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
