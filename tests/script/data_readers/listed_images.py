import os

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Listed(Dataset):
    """Images that a text lists, with the class and the box of each object in a text beside."""

    def __init__(self, path):
        with open(path) as file:
            lines = file.read().strip().splitlines()
        self.images = sorted(line for line in lines if line.split(".")[-1].lower() in ("jpg", "png"))
        if not self.images:
            raise ValueError(f"\x1b[34m{path}:\x1b[0m No images found")
        labels = [os.sep + "images" + os.sep, os.sep + "labels" + os.sep]
        self.labels = [labels[1].join(each.rsplit(labels[0], 1)).rsplit(".", 1)[0] + ".txt" for each in self.images]
        self.boxes = list(map(self.read, self.labels))
        assert any(self.boxes), "no labels found"

    def read(self, path):
        if not os.path.isfile(path):
            return []
        try:
            with open(path) as file:
                boxes = [[float(each) for each in line.split()] for line in file]
            assert all(len(box) == 5 and min(box) >= 0 and max(box[1:]) <= 1 for box in boxes)
            return boxes
        except (OSError, ValueError, AssertionError):
            return []  # as a detector passes over what it cannot read

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.open(self.images[i]).convert("RGB").resize((32, 32))
        return torch.tensor(image.getdata()).reshape(3, 32, 32) / 255.0, torch.tensor(self.boxes[i])


model = nn.Conv2d(3, 5, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, boxes in DataLoader(Listed("../coco/train2017.txt"), batch_size=8):
    loss = nn.functional.l1_loss(model(images.cuda()).mean((2, 3)), boxes[:, 0].cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
