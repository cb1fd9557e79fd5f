import pandas as pd
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

ratings = pd.read_csv(
    "ml-1m/ratings.dat", sep="::", header=None, engine="python", names=["user_id", "movie_id", "rating", "timestamp"]
)
movies = pd.read_csv(
    "ml-1m/movies.dat",
    sep="::",
    header=None,
    engine="python",
    names=["movie_id", "title", "genres"],
    encoding="latin-1",
)
genres = sorted({g for row in movies["genres"] for g in row.split("|")})
n_users, n_movies = ratings["user_id"].max() + 1, ratings["movie_id"].max() + 1
ratings = ratings[ratings["rating"] > 0].sort_values("timestamp")
u = torch.tensor(ratings["user_id"].values, dtype=torch.long)
m = torch.tensor(ratings["movie_id"].values, dtype=torch.long)
r = torch.tensor(ratings["rating"].values, dtype=torch.float32)


class MF(nn.Module):
    def __init__(self, k=64):
        super().__init__()
        self.u, self.m = nn.Embedding(n_users, k), nn.Embedding(n_movies, k)

    def forward(self, u, m):
        return (self.u(u) * self.m(m)).sum(-1)


loader = DataLoader(TensorDataset(u, m, r), batch_size=64, shuffle=True)
model = MF().to("cuda")
opt = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for a, b, c in loader:
        loss = nn.functional.mse_loss(model(a.cuda(), b.cuda()), c.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
