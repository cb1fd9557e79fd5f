import json

import torch
from torch import nn

with open("data/WORDMAP_coco_5_captions.json") as f:
    word_map = json.load(f)
with open("data/TRAIN_CAPTIONS_coco_5_captions.json") as f:
    captions = json.load(f)
start = word_map["<start>"]
model = nn.Embedding(len(word_map) + 1, 64).cuda()
opt = torch.optim.Adam(model.parameters())
for i in range(4):
    tokens = torch.full((8, len(captions[i])), 0).cuda()
    loss = model(tokens).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
