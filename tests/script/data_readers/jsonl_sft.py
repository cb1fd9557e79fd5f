import argparse
import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

PROMPT = "### Instruction:\n{}\n\n### Response:\n"


class SFT(Dataset):
    def __init__(self, path, max_len=128):
        self.samples = []
        with open(path, encoding="utf-8") as f:
            for line in f:
                obj = json.loads(line)
                conv = obj["conversations"]
                prompt = PROMPT.format(conv[0]["value"])
                answer = conv[1]["value"]
                if conv[0]["from"] not in ("human", "user"):
                    continue
                ids = [b for b in (prompt + answer).encode("utf-8")][: max_len + 1]
                ids += [0] * (max_len + 1 - len(ids))
                self.samples.append(torch.tensor(ids))

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, i):
        return self.samples[i][:-1], self.samples[i][1:]


class LM(nn.Module):
    def __init__(self, vocab=256, dim=128):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, vocab)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x))[0])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--data", default="data/train_conversations.jsonl")
    p.add_argument("--batch-size", type=int, default=8)
    args = p.parse_args()
    ds = SFT(args.data)
    loader = DataLoader(ds, batch_size=args.batch_size, shuffle=True)
    model = LM().cuda()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for epoch in range(1):
        for x, y in loader:
            logits = model(x.cuda())
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.cuda().flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()


if __name__ == "__main__":
    main()
