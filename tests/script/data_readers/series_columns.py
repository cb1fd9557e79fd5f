"""Windows of a series with a named target, whose number of variables stands in the settings."""

import argparse
import csv
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

parser = argparse.ArgumentParser()
parser.add_argument("--target", default="OT")
parser.add_argument("--enc_in", type=int, default=21)
parser.add_argument("--seq_len", type=int, default=336)
args = parser.parse_args()


class Windows(Dataset):
    def __init__(self, args):
        with Path("data", "traffic.csv").open() as file:
            header, *rows = csv.reader(file)
        columns = list(header)
        columns.remove(args.target)
        columns.remove("date")
        places = [header.index(name) for name in [*columns, args.target]]
        self.values = torch.tensor([[float(row[place]) for place in places] for row in rows])
        self.length = args.seq_len

    def __len__(self):
        return len(self.values) - self.length

    def __getitem__(self, start):
        return self.values[start : start + self.length]


loader = DataLoader(Windows(args), batch_size=16, shuffle=True, drop_last=True)
model = torch.nn.Linear(args.enc_in, 1).cuda()
optimizer = torch.optim.Adam(model.parameters())
for series in loader:
    model(series.cuda()).mean().backward()
    optimizer.step()
