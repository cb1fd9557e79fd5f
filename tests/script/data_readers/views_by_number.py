"""Views of a scene, each by its number, with four channels and a size that the reader has for them."""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image


class Scene:
    def __init__(self, root, split):
        self.root, self.img_wh = Path(root), (64, 48)
        with (self.root / f"transforms_{split}.json").open() as file:
            self.meta = json.load(file)
        width, height = self.img_wh
        self.focal = 0.5 * width / np.tan(0.5 * self.meta["camera_angle_x"])
        poses, colors = [], []
        for i in range(len(self.meta["frames"])):
            frame = self.meta["frames"][i]
            poses.append(torch.tensor(frame["transform_matrix"]))
            image = np.array(Image.open(self.root / f"{frame['file_path']}.png")) / 255.0
            image = torch.from_numpy(image).float().reshape(height * width, 4)
            colors.append(image[:, :3] * image[:, -1:] + (1 - image[:, -1:]))
        self.inverse = torch.inverse(torch.stack(poses))
        self.colors = torch.cat(colors).view(len(poses), height, width, 3)


scene = Scene("data/lego", "train")
held_out = Scene("data/lego", "test")
model = torch.nn.Linear(16, 3).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(4):
    number = torch.randint(len(scene.inverse), (24,))
    loss = (model(scene.inverse[number].flatten(1).cuda()) - scene.colors[number, 0, 0].cuda()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert len(held_out.inverse) == 100
