import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Series(Dataset):
    """Series of an archive, flattened and brought back into their steps and features."""

    def __init__(self, path):
        self.X = np.load(path)["X"]

    def __len__(self):
        return len(self.X)

    def __getitem__(self, i):
        flat = np.nan_to_num(self.X[i].reshape(-1))
        return torch.from_numpy(flat.reshape(48, 37).astype("float32"))


model = nn.Linear(37, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for series in DataLoader(Series("data/series.npz"), batch_size=24):
    optimizer.zero_grad()
    model(series.cuda()).mean().backward()
    optimizer.step()
