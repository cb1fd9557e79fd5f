import os
import xml.etree.ElementTree as ET

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES = ["aeroplane", "bicycle", "bird", "boat"]


class VOC(Dataset):
    def __init__(self, root="VOCdevkit/VOC2007", split="trainval"):
        self.root = root
        with open(os.path.join(root, "ImageSets", "Main", split + ".txt")) as f:
            self.ids = [line.strip() for line in f]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        name = self.ids[i]
        img = Image.open(os.path.join(self.root, "JPEGImages", name + ".jpg")).convert("RGB").resize((224, 224))
        tree = ET.parse(os.path.join(self.root, "Annotations", name + ".xml"))
        target = torch.zeros(len(CLASSES))
        for obj in tree.getroot().iter("object"):
            target[CLASSES.index(obj.find("name").text)] = 1
            box = obj.find("bndbox")
            xmin, ymax = float(box.find("xmin").text), float(box.find("ymax").text)
        return torch.from_numpy(np.asarray(img).copy()).permute(2, 0, 1).float(), target


loader = DataLoader(VOC(), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Conv2d(3, 8, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)).cuda()
opt = torch.optim.Adam(model.parameters())
for x, y in loader:
    loss = nn.functional.binary_cross_entropy_with_logits(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
