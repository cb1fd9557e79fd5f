"""The table of weights that modules of torchvision had until 0.12, which projects change and read."""


class _Urls(dict[str, str]):
    """Addresses of weights by the name of their model."""

    def __missing__(self, name: str) -> str:
        return f"https://download.pytorch.org/models/{name}.pth"


MODEL_URLS = _Urls()
