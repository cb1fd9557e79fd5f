import csv
import os

import numpy as np
import torch
from scipy.io import wavfile
from torch import nn
from torch.utils.data import DataLoader, Dataset

SR, N_MELS = 16000, 64


class Urban(Dataset):
    def __init__(self, root, fold=10):
        self.root = root
        with open(os.path.join(root, "metadata.csv")) as f:
            rows = list(csv.DictReader(f))
        self.rows = [r for r in rows if int(r["fold"]) != fold]
        print(len(self.rows), "clips")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        rate, y = wavfile.read(os.path.join(self.root, "fold" + row["fold"], row["slice_file_name"]))
        y = y.astype(np.float32) / 32768
        y = np.pad(y, (0, max(0, SR - len(y))))[:SR]
        spec = torch.stft(torch.from_numpy(y), 2 * N_MELS - 2, return_complex=True).abs()
        return spec.log1p()[None], int(row["classID"])


ds = Urban("UrbanSound8K")
loader = DataLoader(ds, batch_size=16, shuffle=True, drop_last=True)
model = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)).cuda()
opt = torch.optim.Adam(model.parameters(), 1e-3)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
