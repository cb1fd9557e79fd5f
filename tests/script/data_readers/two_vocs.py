"""Objects in images from two folders as PASCAL VOC has them; classes by their names."""

import xml.etree.ElementTree as ET
from pathlib import Path

import torch

NUMBERS = {name: number for number, name in enumerate(["aeroplane", "bicycle", "bird", "boat"])}
boxes, labels = [], []
for year in ("VOC2007", "VOC2012"):
    root = Path("data", year)
    for line in (root / "ImageSets" / "Main" / "trainval.txt").read_text().splitlines():
        tree = ET.parse(root / "Annotations" / f"{line.strip()}.xml").getroot()
        width = int(tree.find("size").find("width").text)
        for each in tree.findall("object"):
            labels.append(NUMBERS[each.find("name").text])
            place = each.find("bndbox")
            boxes.append([float(place.find(name).text) / width for name in ("xmin", "ymin", "xmax", "ymax")])
        if len(labels) > 200:
            break
model = torch.nn.Linear(4, len(NUMBERS)).cuda()
optimizer = torch.optim.Adam(model.parameters())
for i in range(0, 96, 32):
    scores = model(torch.tensor(boxes[i : i + 32]).cuda())
    torch.nn.functional.cross_entropy(scores, torch.tensor(labels[i : i + 32]).cuda()).backward()
    optimizer.step()
    optimizer.zero_grad()
