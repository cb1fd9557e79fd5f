import os

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, root):
        names = os.listdir(root)
        self._check(names)
        self.files = [os.path.join(root, name) for name in names]

    @staticmethod
    def _check(names):
        for name in names:
            if name.split(".")[-1] not in ["png", "jpg"]:
                raise ValueError

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        image = Image.open(self.files[index]).convert("L")
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        return pixels.reshape(1, image.height, image.width) / 255.0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.ConvTranspose2d(4, 1, 2, stride=2)

    def forward(self, x):
        return x + self.up(self.down(x))


model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(Pictures("pictures"), batch_size=2):
    loss = model(x.cuda()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
