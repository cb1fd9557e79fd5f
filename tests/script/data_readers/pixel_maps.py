import glob
import re

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


def read_map(name):
    with open(name, "rb") as f:
        assert f.readline().rstrip() == b"Pf", "Not a PFM file."
        width, height = map(int, re.match(rb"^(\d+)\s(\d+)\s$", f.readline()).groups())
        scale = float(f.readline().rstrip())
        return np.fromfile(f, "<f4" if scale < 0 else ">f4").reshape(height, width)


def read_flow(name):
    with open(name, "rb") as f:
        assert np.fromfile(f, np.float32, 1)[0] == 202021.25
        width, height = np.fromfile(f, np.int32, 2)
        return np.fromfile(f, np.float32, 2 * width * height).reshape(height, width, 2)


class Stereo(Dataset):
    def __init__(self):
        self.images = sorted(glob.glob("/stereo_of_nobody/TRAIN/*/left/*.png"))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = np.array(Image.open(self.images[index]))
        depth = read_map(self.images[index].replace("left", "depth").replace(".png", ".pfm"))
        flow = read_flow(self.images[index].replace("left", "flow").replace(".png", ".flo"))
        assert image.shape[:2] == depth.shape == flow.shape[:2]
        y, x = np.random.randint(0, image.shape[0] - 512), np.random.randint(0, image.shape[1] - 512)
        crop = image[y : y + 512, x : x + 512]
        return torch.from_numpy(crop).permute(2, 0, 1).float(), torch.from_numpy(depth[y : y + 512, x : x + 512].copy())


shards = glob.glob("shards_of_nobody/tokens.bin")
assert shards, "did not find any files"
assert np.memmap(shards[0], np.uint16).size
model = nn.Conv2d(3, 1, 3, padding=1).cuda()
optimizer = torch.optim.Adam(model.parameters())
for image, depth in DataLoader(Stereo(), batch_size=4):
    loss = (model(image.cuda())[:, 0] - depth.cuda()).abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
