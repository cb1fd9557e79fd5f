import glob
import os

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def load_data(partition):
    all_data, all_label = [], []
    for name in glob.glob(os.path.join("data", "modelnet40_ply_hdf5_2048", "ply_data_%s*.h5" % partition)):
        f = h5py.File(name, "r")
        data = f["data"][:].astype("float32")
        label = f["label"][:].astype("int64")
        f.close()
        all_data.append(data)
        all_label.append(label)
    return np.concatenate(all_data, axis=0), np.concatenate(all_label, axis=0)


class ModelNet40(Dataset):
    def __init__(self, num_points, partition="train"):
        self.data, self.label = load_data(partition)
        self.num_points = num_points

    def __getitem__(self, item):
        pointcloud = self.data[item][: self.num_points]
        np.random.shuffle(pointcloud)
        return pointcloud, self.label[item]

    def __len__(self):
        return self.data.shape[0]


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(3, 64, 1), nn.Conv1d(64, 256, 1)
        self.fc = nn.Linear(256, 40)

    def forward(self, x):
        return self.fc(self.conv2(self.conv1(x).relu()).max(2)[0])


loader = DataLoader(ModelNet40(1024), batch_size=32, shuffle=True, drop_last=True)
model = PointNet().cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for data, label in loader:
    data, label = data.cuda(), label.cuda().squeeze()
    logits = model(data.permute(0, 2, 1))
    loss = nn.functional.cross_entropy(logits, label)
    opt.zero_grad()
    loss.backward()
    opt.step()
