"""GPUtil where it is not installed."""

from pathlib import Path

from tests.script.running import run_text, stdout_of

TEXT = """
    import GPUtil
    import torch

    GPUtil.showUtilization()
    model = torch.nn.Linear(4, 4).cuda()
    (gpu,) = GPUtil.getGPUs()
    print(GPUtil.getAvailable(order="memory", limit=8), GPUtil.getFirstAvailable(), gpu.id, gpu.memoryTotal)
    assert gpu.memoryTotal == gpu.memoryFree + gpu.memoryUsed
"""


def test_the_gpus_of_the_machine_are_all_free(tmp_path: Path) -> None:
    assert stdout_of(run_text(tmp_path, TEXT)).split() == ["[0]", "[0]", "0", "81155"]
