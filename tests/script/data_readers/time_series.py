import pandas as pd
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn
from torch.utils.data import DataLoader, Dataset

SEQ, PRED = 96, 24


class Series(Dataset):
    def __init__(self, path, target="OT"):
        df = pd.read_csv(path)
        df["date"] = pd.to_datetime(df["date"])
        df["hour"] = df.date.apply(lambda d: d.hour)
        cols = [c for c in df.columns if c not in ("date", target)]
        df = df[cols + [target]]
        n = int(len(df) * 0.7)
        scaler = StandardScaler().fit(df[:n].values)
        self.data = torch.tensor(scaler.transform(df.values), dtype=torch.float32)

    def __len__(self):
        return len(self.data) - SEQ - PRED + 1

    def __getitem__(self, i):
        return self.data[i : i + SEQ], self.data[i + SEQ : i + SEQ + PRED, -1]


ds = Series("dataset/ETTh1.csv")
loader = DataLoader(ds, batch_size=32, shuffle=True)
n_features = ds.data.shape[1]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(n_features, 64, batch_first=True), nn.Linear(64, PRED)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


model = Model().cuda()
opt = torch.optim.Adam(model.parameters())
for x, y in loader:
    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())
    opt.zero_grad()
    loss.backward()
    opt.step()
