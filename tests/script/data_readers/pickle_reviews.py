import json
import os
import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Reviews(Dataset):
    def __init__(self, folder):
        with open(os.path.join(folder, "train.pkl"), "rb") as f:
            self.samples = pickle.load(f)
        with open(os.path.join(folder, "word2idx.json")) as f:
            self.word2idx = json.load(f)
        self.vocab_size = len(self.word2idx)

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        s = self.samples[i]
        ids = [self.word2idx.get(w, 0) for w in s["text"].split()][:64]
        ids = ids + [0] * (64 - len(ids))
        return torch.LongTensor(ids), torch.tensor(int(s["label"]))


ds = Reviews("data/imdb")
loader = DataLoader(ds, batch_size=16, shuffle=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.fc = nn.EmbeddingBag(ds.vocab_size + 2, 100), nn.Linear(100, 2)

    def forward(self, x):
        return self.fc(self.emb(x))


model = Net().cuda()
opt = torch.optim.Adam(model.parameters())
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
