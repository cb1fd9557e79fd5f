import pickle

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def load_pickle(path):
    with open(path, "rb") as f:
        return pickle.load(f)


class Pictures(Dataset):
    def __init__(self, path):
        self.images, self.labels, _ = load_pickle(path)

    def __len__(self):
        return 64

    def __getitem__(self, i):
        image = torch.from_numpy(self.images).permute(2, 0, 1)
        return image, torch.as_tensor(self.labels).reshape(-1)[0]


image_size = 32
model = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)).cuda()
opt = torch.optim.Adam(model.parameters())
for x, y in DataLoader(Pictures("data/pictures.pkl"), batch_size=16):
    loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
