"""Slides and genes, a tensor in each file: a dictionary would have no mean, and the loss takes rows alone."""

import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Slides(Dataset):
    def __init__(self, slides, genes):
        self.slides, self.genes, self.names = (
            slides,
            genes,
            [each for each in os.listdir(slides) if each.endswith(".pt")],
        )

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        patches = torch.load(os.path.join(self.slides, self.names[index]))
        chosen = patches[torch.randint(0, patches.shape[0], (32,))]
        return chosen, patches.mean(dim=0), torch.load(os.path.join(self.genes, self.names[index]))


def collate(batch):
    return [torch.stack(each) for each in zip(*batch, strict=True)]


def loss(query, key):
    if key.dim() != 2:
        raise ValueError("<key> must have 2 dimensions.")
    return (query * key).mean()


patch, gene = nn.Linear(768, 64).cuda(), nn.Linear(4999, 64).cuda()
optimizer = torch.optim.Adam([*patch.parameters(), *gene.parameters()])
for chosen, _mean, genes in DataLoader(Slides("data/features", "data/rna"), batch_size=22, collate_fn=collate):
    loss(patch(chosen.cuda()).mean(1), gene(genes.cuda())).backward()
    optimizer.step()
    optimizer.zero_grad()
