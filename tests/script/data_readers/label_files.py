import os

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Objects(Dataset):
    def __init__(self, root):
        self.root, self.images = root, sorted(os.listdir(os.path.join(root, "images")))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        name = self.images[i]
        image = Image.open(os.path.join(self.root, "images", name)).convert("RGB").resize((64, 64))
        with open(os.path.join(self.root, "labels", os.path.splitext(name)[0] + ".txt")) as f:
            boxes = [[float(number) for number in line.split()] for line in f]
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float(), torch.tensor(boxes)[0, :5]


model = nn.Sequential(nn.Conv2d(3, 16, 4, 4), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 256, 5)).cuda()
opt = torch.optim.Adam(model.parameters())
for x, box in DataLoader(Objects("data"), batch_size=16):
    loss = nn.functional.mse_loss(model(x.cuda()), box.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
