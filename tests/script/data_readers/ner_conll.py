import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC", "B-ORG", "I-ORG"]
tag2idx = {t: i for i, t in enumerate(TAGS)}


def read_conll(path):
    sents, words, tags = [], [], []
    for line in open(path, encoding="utf8"):
        line = line.strip()
        if not line:
            if words:
                sents.append((words, tags))
            words, tags = [], []
            continue
        word, pos, chunk, tag = line.split()
        words.append(word)
        tags.append(tag2idx[tag])
    if words:
        sents.append((words, tags))
    return sents


train = read_conll("data/conll2003/eng.train.txt")
vocab = {"<pad>": 0}
for words, _ in train:
    for w in words:
        vocab.setdefault(w, len(vocab))


def collate(batch):
    x = pad_sequence([torch.tensor([vocab[w] for w in ws]) for ws, _ in batch], batch_first=True)
    y = pad_sequence([torch.tensor(ts) for _, ts in batch], batch_first=True, padding_value=-100)
    return x, y


loader = DataLoader(train, batch_size=32, shuffle=True, collate_fn=collate)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(len(vocab), 100, padding_idx=0)
        self.lstm = nn.LSTM(100, 128, bidirectional=True, batch_first=True)
        self.out = nn.Linear(256, len(TAGS))

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


model = Tagger().cuda()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    loss = nn.functional.cross_entropy(model(x.cuda()).transpose(1, 2), y.cuda(), ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
