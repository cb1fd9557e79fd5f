"""Spectra and units of speech, an array in each file: only the layers say how wide they are."""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Speech(Dataset):
    def __init__(self, root):
        self.root = root
        self.paths = sorted((root / "mels").glob("*.npy"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        mel = np.load(path).T
        units = np.load(self.root / "units" / path.name)
        return torch.from_numpy(mel[: 2 * units.shape[0], :]), torch.from_numpy(units)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.mel, self.unit = nn.LSTM(128, 64, batch_first=True), nn.Linear(256, 64)

    def forward(self, mel, units):
        return self.mel(mel)[0].mean() + self.unit(units).mean()


net = Net().cuda()
optimizer = torch.optim.Adam(net.parameters())
for mel, units in DataLoader(Speech(Path("data")), batch_size=6):
    net(mel.cuda(), units.cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
