import json
import os
from collections import defaultdict

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Boxes(Dataset):
    def __init__(self, root, ann):
        self.root = root
        with open(ann) as f:
            data = json.load(f)
        self.images = data["images"]
        self.cats = {c["id"]: i for i, c in enumerate(data["categories"])}
        self.by_image = defaultdict(list)
        for a in data["annotations"]:
            if a.get("iscrowd", 0):
                continue
            self.by_image[a["image_id"]].append(a)
        self.images = [im for im in self.images if len(self.by_image[im["id"]]) > 0]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        info = self.images[i]
        img = Image.open(os.path.join(self.root, info["file_name"])).convert("RGB").resize((256, 256))
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255
        box = torch.tensor(self.by_image[info["id"]][0]["bbox"], dtype=torch.float32)
        return x, box / torch.tensor([info["width"], info["height"], info["width"], info["height"]])


train = Boxes("data/shapes/images", "data/shapes/labels.json")
loader = DataLoader(train, batch_size=4, shuffle=True)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 4)
).cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for x, b in loader:
    loss = nn.functional.smooth_l1_loss(model(x.cuda()), b.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
