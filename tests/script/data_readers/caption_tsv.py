import os

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Flickr(Dataset):
    def __init__(self, root):
        self.root, self.items = root, []
        with open(os.path.join(root, "results_20130124.token")) as f:
            for line in f:
                key, caption = line.rstrip("\n").split("\t")
                name, number = key.split("#")
                self.items.append((name, caption.lower().split()))
        self.vocab = {w: i for i, w in enumerate(sorted({w for _, c in self.items for w in c}))}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        name, words = self.items[i]
        image = Image.open(os.path.join(self.root, "flickr30k-images", name)).convert("RGB").resize((64, 64))
        ids = [self.vocab[w] for w in words][:12]
        ids += [0] * (12 - len(ids))
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float(), torch.tensor(ids)


ds = Flickr("flickr30k")
loader = DataLoader(ds, batch_size=16, shuffle=True)


class Net(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 256, 64))
        self.emb, self.out = nn.Embedding(n, 64), nn.Linear(64, n)

    def forward(self, x, t):
        return self.out(self.emb(t) + self.enc(x)[:, None])


model = Net(len(ds.vocab)).cuda()
opt = torch.optim.Adam(model.parameters())
for x, t in loader:
    out = model(x.cuda(), t[:, :-1].cuda())
    loss = nn.functional.cross_entropy(out.flatten(0, 1), t[:, 1:].cuda().flatten())
    opt.zero_grad()
    loss.backward()
    opt.step()
