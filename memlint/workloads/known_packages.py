"""Names of packages: under which names they are installed, and which of them no tensor passes through.

Sources: the pages of the packages on PyPI, as of November 2026.
"""

from typing import Literal

Kind = Literal["quiet", "progress", "metric"]
"""The way in which a placeholder stands for a package that no tensor passes through.

`quiet` does nothing, `progress` gives what it is to iterate over, and the results of `metric` count as zero.
"""

_DISTRIBUTIONS = {
    "Bio": "biopython",
    "Crypto": "pycryptodome",
    "IPython": "ipython",
    "Levenshtein": "python-Levenshtein",
    "OpenGL": "PyOpenGL",
    "PIL": "Pillow",
    "absl": "absl-py",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "clip": "git+https://github.com/openai/CLIP.git",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "dora": "dora-search",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "google": "protobuf",
    "google.cloud": "google-cloud-storage",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "jose": "python-jose",
    "jwt": "PyJWT",
    "lightning_fabric": "lightning",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "osgeo": "GDAL",
    "patoolib": "patool",
    "OpenSSL": "pyOpenSSL",
    "pkg_resources": "setuptools<81",  # as its own warning says: later ones have it no more
    "pl_bolts": "lightning-bolts",
    "pylab": "matplotlib",
    "pynvml": "nvidia-ml-py",
    "pywt": "PyWavelets",
    "ruamel": "ruamel.yaml",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "sksparse": "scikit-sparse",
    "slugify": "python-slugify",
    "skvideo": "scikit-video",
    "socks": "PySocks",
    "tap": "typed-argument-parser",
    "torch.utils.tensorboard": "tensorboard",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
"""Distributions by the package that a program imports, where their names differ by more than `_` and `-`."""
STOOD_FOR = {
    "ruamel_yaml": "yaml",
    "pkg_resources": "memlint.workloads.older_versions.former_pkg_resources",
}
"""Packages that can no longer be installed, or not beside others, and the modules that have their functions.

Conda called ruamel.yaml so; setuptools has no pkg_resources since version 81.
"""
_LOGGERS = {
    "wandb": "wandb",
    "comet": "comet_ml",
    "mlflow": "mlflow",
    "neptune": "neptune",
    "tensorboard": "tensorboard",
}
"""Modules of Lightning's loggers, and the packages that they want."""
NEEDS = {
    "torch.utils.tensorboard": "tensorboard",
    **{f"lightning.pytorch.loggers.{name}": package for name, package in _LOGGERS.items()},
    **{f"pytorch_lightning.loggers.{name}": package for name, package in _LOGGERS.items()},
}
"""Modules of installed packages that cannot be imported, or do nothing, without another one."""
_QUIET = """
    IPython adjustText aim alibabacloud_oss_v2 azure beartype bokeh boto3 botocore clearml codecarbon coloredlogs
    colorlog colorama comet_ml debugpy deprecated dotenv dvclive gpustat graphviz google.cloud icecream ipdb
    line_profiler logfire loguru matplotlib memory_profiler mlflow mpl_toolkits neptune nvitop oss2 overrides plotly
    prettytable pretty_errors pudb py3nvml pydot pylab pynvml pyvista seaborn sentry_sdk setproctitle slack_sdk snoop
    structlog swanlab tensorboard tensorboardX tensorboard_logger termcolor torchinfo torchsummary torchviz
    trackio typeguard visdom viztracer wandb wordcloud
"""
_PROGRESS = "alive_progress enlighten fastprogress prefetch_generator progress progressbar rich tqdm"
_METRIC = """
    bert_score calflops editdistance evaluate jiwer motmetrics nltk.translate ptflops pycocoevalcap pycocotools.cocoeval
    pystoi pesq rouge rouge_score sacrebleu seqeval sklearn.metrics thop
"""
_KINDS: dict[str, Kind] = {
    **dict.fromkeys([*_QUIET.split(), *NEEDS], "quiet"),
    **dict.fromkeys(_PROGRESS.split(), "progress"),
    **dict.fromkeys(_METRIC.split(), "metric"),
}
"""Loggers, trackers, plots, clients of clouds, checks of types, progress bars, metrics, and what reads ahead."""


def kind_of(name: str) -> Kind | None:
    """Return the kind of the package that the dotted `name` is in; None if tensors may pass through it."""
    parts = name.split(".")
    return next((_KINDS[each] for end in range(len(parts), 0, -1) if (each := ".".join(parts[:end])) in _KINDS), None)


def distribution_of(name: str) -> str:
    """Return what to type after `pip install` for the package that the dotted `name` is in."""
    parts = name.split(".")
    known = (_DISTRIBUTIONS.get(".".join(parts[:end])) for end in range(len(parts), 0, -1))
    return next(filter(None, known), parts[0].replace("_", "-"))
