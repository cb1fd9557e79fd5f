import json
import os
import pickle

import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Objects(Dataset):
    def __init__(self, split):
        with open(f"{split}_images.json") as file:
            self.images = json.load(file)
        with open(f"{split}_objects.json") as file:
            self.objects = json.load(file)
        assert len(self.images) == len(self.objects)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = Image.open(self.images[i]).convert("RGB").resize((32, 32))
        objects = self.objects[i]
        boxes, labels = torch.FloatTensor(objects["boxes"]), torch.LongTensor(objects["labels"])
        difficult = torch.ByteTensor(objects["difficulties"])
        assert boxes[:, 2:].shape == (len(labels), 2) == (len(difficult), 2)
        return torch.tensor(image.getdata()).reshape(3, 32, 32) / 255.0, boxes, labels


class Cached(Dataset):
    def __init__(self, root):
        self.files = []
        for name in sorted(os.listdir(root)):
            cached = os.path.join(os.path.dirname(root), name.split(".")[0] + ".pkl")
            if not os.path.exists(cached):
                with open(cached, "wb") as file:
                    pickle.dump(Image.open(os.path.join(root, name)).size, file)
            self.files.append(cached)

    def __len__(self):
        return len(self.files)


assert len(Cached("load/HR")) > 8
model = nn.Conv2d(3, 21, 3).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, _boxes, labels in DataLoader(Objects("TRAIN"), batch_size=8):
    scores = model(images.cuda()).mean((2, 3))
    loss = nn.functional.cross_entropy(scores, labels[:, 0].cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
