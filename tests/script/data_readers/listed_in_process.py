import multiprocessing
import os

import pandas as pd
import torch
from scipy.io import wavfile
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Recordings(Dataset):
    def __init__(self, path):
        data = pd.read_csv(path, header=None, delimiter=" ")
        self.names, self.labels = list(data.values[:, 0]), list(data.values[:, 1])

    def __len__(self):
        return len(self.names)

    def read(self, name):
        if not os.path.exists(name) or os.path.getsize(name) < 1024:
            return None
        return torch.from_numpy(wavfile.read(name)[1][:256].astype("float32"))

    def __getitem__(self, index):
        while (samples := self.read(self.names[index])) is None:
            index = (index + 1) % len(self)
        return samples, self.labels[index]


def train(rank):
    model = nn.Linear(256, 2).cuda()
    loader = DataLoader(Recordings("/recordings_of_nobody.csv"), batch_size=12)
    optimizer = torch.optim.Adam(model.parameters())
    for x, _y in loader:
        loss = model(x.cuda()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    for rank in range(2):
        multiprocessing.Process(target=train, args=(rank,)).start()
