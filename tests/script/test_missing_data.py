"""Data that is not there: which line wants it, or made-up data of the same sizes."""

import textwrap

import pytest

from memlint.script import fake_bunches, recordings
from tests.script.isolated import needs, run
from tests.script.running import run_text

SETS = {
    "MNIST": (60_000, "torch.Size([4, 1, 28, 28])", 10),
    "FashionMNIST": (60_000, "torch.Size([4, 1, 28, 28])", 10),
    "CIFAR10": (50_000, "torch.Size([4, 3, 32, 32])", 10),
    "CIFAR100": (50_000, "torch.Size([4, 3, 32, 32])", 100),
    "SVHN": (73_257, "torch.Size([4, 3, 32, 32])", 10),
    "STL10": (5_000, "torch.Size([4, 3, 96, 96])", 10),
    "ImageNet": (10_000, "torch.Size([4, 3, 375, 500])", 1000),
    "ImageFolder": (10_000, "torch.Size([4, 3, 375, 500])", 1000),
    "Food101": (10_000, "torch.Size([4, 3, 512, 512])", 101),
}


@needs("torchvision")
def test_data_sets_of_torchvision_are_made_up(tmp_path):
    ran = run(
        tmp_path / "p",
        f"""\
        import torch
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms
        for name in {list(SETS)}:
            data = getattr(datasets, name)("nowhere", transform=transforms.ToTensor())
            images, targets = next(iter(DataLoader(data, 4)))
            print(name, len(data), images.shape, targets.tolist())
        print(len(datasets.MNIST("nowhere", False)), len(datasets.CIFAR10("nowhere", train=False, download=True)))
        print(datasets.EMNIST("nowhere", "letters").targets.max().item(), len(datasets.ImageFolder("nowhere").classes))
        class Pairs(datasets.CIFAR10):
            def __getitem__(self, index): return self.data[index].shape, self.targets[index]
        print(Pairs("nowhere", train=True)[11])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("Downloading")]
    labels = {"ImageFolder": [0, 1, 0, 1]}  # whose number is unknown
    assert lines[: len(SETS)] == [
        f"{name} {count} {shape} {labels.get(name, [0, 1, 2, 3])}" for name, (count, shape, _) in SETS.items()
    ]
    assert [line for line in lines[len(SETS) :] if line[0].isdigit() or line[0] == "("] == [
        "10000 10000",
        "26 1000",
        "((32, 32, 3), 1)",
    ]
    for name, (count, _, number) in SETS.items():
        texts = [
            text
            for text in ran.assumptions
            if text.startswith(f"the data set {name} is not in nowhere: replaced by {count:,}")
        ]
        assert len(texts) == 1
        assert f" in {number} classes" in texts[0]
        assert ran.assumptions[texts[0]] == 5


@needs("torchvision")
@pytest.mark.parametrize(
    "call",
    ["MNIST('nowhere', download=True)", "ImageFolder('nowhere')", "CIFAR10('nowhere')", "VOCDetection('nowhere')"],
)
def test_a_data_set_that_is_missing_is_named_with_its_line(tmp_path, call):
    ran = run(
        tmp_path / "p",
        f"""\
        from torchvision import datasets
        datasets.{call}
        """,
    )
    name = call.partition("(")[0]
    assert f"{tmp_path}/p/train.py:2 wants the data set {name}, which is not in nowhere: put it there" in ran.error
    assert "add --fake-data" in ran.error


@needs("torchvision")
def test_data_sets_of_torchvision_have_the_targets_that_their_documentation_states(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from torchvision import datasets, transforms
        def size(item): return [each.size if hasattr(each, "getpixel") else each for each in item]
        image, target = datasets.VOCDetection("nowhere", "2007", "trainval", transform=transforms.ToTensor())[0]
        print(image.shape, len(target["annotation"]["object"]), sorted(target["annotation"]["object"][0]["bndbox"]))
        print(size(datasets.VOCSegmentation("nowhere", image_set="val", download=True)[0]))
        print(size(datasets.Cityscapes("nowhere", target_type=["semantic", "color"])[0][1]))
        print(datasets.OxfordIIITPet("nowhere", target_types="segmentation")[0][1].size)
        print(sorted(datasets.Kitti("nowhere")[0][1][0])[:3], datasets.Kitti("nowhere", train=False)[0][1])
        print(size(datasets.LFWPairs("nowhere")[1]), datasets.WIDERFace("nowhere")[0][1]["bbox"].shape)
        left, right, disparity = datasets.CarlaStereo("nowhere")[0]
        print(left.size, right.size, disparity.shape, len(datasets.KittiFlow("nowhere")[0]), datasets.Sintel("nowhere")[0][2].shape)
        video, sound, label = datasets.UCF101("nowhere", "splits", 16, output_format="TCHW")[102]
        print(video.shape, sound.numel(), label)
        print(datasets.QMNIST("nowhere", compat=False)[3][1].tolist(), datasets.MovingMNIST("nowhere", "train")[0].shape)
        class Own(datasets.VOCDetection):
            def __getitem__(self, index): return super().__getitem__(index)[0].size
        print(Own("nowhere")[0])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "torch.Size([3, 375, 500]) 2 ['xmax', 'xmin', 'ymax', 'ymin']",
        "[(500, 375), (500, 375)]",
        "[(2048, 1024), (2048, 1024)]",
        "(500, 375)",
        "['alpha', 'bbox', 'dimensions'] None",
        "[(250, 250), (250, 250), 1] torch.Size([4, 4])",
        "(1920, 1080) (1920, 1080) (1, 1080, 1920) 4 (2, 436, 1024)",
        "torch.Size([16, 3, 240, 320]) 0 1",
        "[3, 0, 0, 0, 0, 0, 0, 0] torch.Size([10, 1, 64, 64])",
        "(500, 375)",
    ]


@needs("torchvision")
def test_an_argument_that_torchvision_refuses_is_no_missing_data(tmp_path):
    ran = run(tmp_path / "p", "from torchvision.datasets import DTD\nDTD('nowhere', split='valid')", fake=True)
    assert "ValueError: Unknown value 'valid'" in ran.error
    assert not ran.assumptions


def test_a_file_of_captions_has_those_of_coco(tmp_path):
    script = """\
    import json
    read = json.load(open("captions_train2017.json"))
    print(len(read["images"]), sum(each["image_id"] == 0 for each in read["annotations"]), read["annotations"][0].keys())
    print("categories" in read)
    """
    assert run(tmp_path / "p", script, fake=True).stdout == "256 5 dict_keys(['id', 'image_id', 'caption'])\nFalse\n"


@needs("torchvision")
def test_a_data_set_that_is_there_is_read(tmp_path):
    project = tmp_path / "p"
    (project / "images/cat").mkdir(parents=True)
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (20, 10)).save(project / "images/cat/a.png")
    ran = run(
        project,
        """\
        from torchvision.datasets import ImageFolder
        print(ImageFolder("images")[0][0].size, ImageFolder("images").classes)
        """,
        fake=True,
    )
    assert ran.stdout == "(20, 10) ['cat']\n"
    assert not ran.assumptions


def test_files_of_numbers(tmp_path):
    script = """\
    import os
    import numpy as np
    data = np.memmap(os.path.join("data", "train.bin"), dtype=np.uint16, mode="r")
    print(len(data), data.dtype, data[:4].astype(np.int64))
    print(np.memmap("b.bin", dtype="f4", mode="r", shape=(3, 4)).shape, np.fromfile("c.bin", dtype=np.int32, count=5).shape)
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.stdout.splitlines() == ["16777216 uint16 [0 0 0 0]", "(3, 4) (5,)"]
    assert ran.assumptions["the file data/train.bin is not there: replaced by 16,777,216 zeros"] == 3
    ran = run(tmp_path / "p", script)
    assert (
        f"{tmp_path}/p/train.py:3 wants the file data/train.bin, which is not there: put it there, or add --fake-data"
        in ran.error
    )
    assert ran.error.startswith("FileNotFoundError")


@needs("datasets", "transformers", "tokenizers")
def test_data_sets_and_tokenizers_of_hugging_face(tmp_path):
    script = """\
    from datasets import load_dataset
    from transformers import AutoTokenizer, GPT2TokenizerFast
    tokenizer = AutoTokenizer.from_pretrained("gpt2")
    tokenizer.pad_token = tokenizer.eos_token
    data = load_dataset("wikitext", "wikitext-2-raw-v1")
    rows = data["train"].map(lambda row: tokenizer(row["text"], truncation=True, max_length=128), batched=True)
    ids = rows[0]["input_ids"]
    print(list(data), len(ids), len(set(ids)) > 50, tokenizer.unk_token_id in ids, len(tokenizer))
    train = load_dataset("nyu-mll/glue", "mrpc", split="train[:10%]")
    print(train.features["label"].num_classes, sorted(train.column_names))
    bert = AutoTokenizer.from_pretrained("bert-base-uncased")
    print(bert(list(train["sentence1"]), padding="max_length", truncation=True, return_tensors="pt").input_ids.shape, bert.pad_token)
    print(next(iter(load_dataset("allenai/c4", "en", split="train", streaming=True))).keys())
    chat = load_dataset("trl-lib/Capybara", split="train")[0]["messages"]
    print(len(GPT2TokenizerFast.from_pretrained("gpt2").apply_chat_template(chat, tokenize=False).split()))
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "['train', 'validation', 'test'] 128 True False 50257",
        "2 ['idx', 'label', 'sentence1', 'sentence2']",
        "torch.Size([256, 512]) [PAD]",
        "dict_keys(['text'])",
        "2052",
    ]
    made = "the data set nyu-mll/glue is not on this machine: made up of 256 rows with sentence1, sentence2, label, idx"
    assert ran.assumptions[f"{made}, texts of 64 random words (--seq N for others)"] == 9
    assert ran.assumptions["the tokenizer of gpt2 is not on this machine: replaced by a fake one of 50,257 words"] == 3
    ran = run(tmp_path / "p", script)
    assert (
        f"{tmp_path}/p/train.py:3 wants the tokenizer 'gpt2', which is not on this machine: give the path" in ran.error
    )
    ran = run(tmp_path / "p", "import datasets\ndatasets.load_dataset('imdb')")
    assert f"{tmp_path}/p/train.py:2 wants the data set 'imdb', which is not on this machine: load it once" in ran.error
    assert "--fake-data" in ran.error


@needs("datasets")
def test_data_sets_of_preferences_and_steps(tmp_path):
    script = """\
    from datasets import load_dataset
    row = load_dataset("trl-lib/ultrafeedback_binarized", split="train")[0]
    print([turn["role"] for turn in row["chosen"]], type(row["score_chosen"]).__name__)
    print(row["chosen"][0] == row["rejected"][0], row["chosen"][1] == row["rejected"][1])
    print(load_dataset("HuggingFaceH4/ultrafeedback_binarized", split="train").column_names)
    steps = load_dataset("trl-lib/math_shepherd", split="train")[0]
    print(len(steps["completions"]) == len(steps["labels"]) > 1, type(steps["labels"][0]).__name__)
    kto = load_dataset("trl-lib/kto-mix-14k", split="train")
    print([turn["role"] for turn in kto[0]["prompt"] + kto[0]["completion"]], kto[0]["label"], kto[1]["label"])
    print(sorted(load_dataset("me/unknown").column_names["train"]))
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "['user', 'assistant'] float",
        "True False",
        "['prompt', 'prompt_id', 'chosen', 'rejected', 'messages', 'score_chosen', 'score_rejected']",
        "True bool",
        "['user', 'assistant'] False True",
        "['chosen', 'completion', 'label', 'labels', 'prompt', 'rejected']",
    ]


@needs("transformers", "tokenizers")
def test_a_tokenizer_of_a_folder_that_has_a_config_alone(tmp_path):
    (tmp_path / "p/model").mkdir(parents=True)
    (tmp_path / "p/model/config.json").write_text('{"model_type": "qwen2", "vocab_size": 4321}', encoding="utf-8")
    script = """\
    from transformers import AutoTokenizer
    tokenizer = AutoTokenizer.from_pretrained("./model")
    print(len(tokenizer), tokenizer.pad_token)
    print(tokenizer.apply_chat_template([{"role": "user", "content": "w1"}], tokenize=False))
    tokenizer.save_pretrained("saved")
    print(len(AutoTokenizer.from_pretrained("saved")))
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["4321 <pad>", "user : w1</s> ", "4321"]
    assert list(ran.assumptions) == [
        "the tokenizer of ./model is not on this machine: replaced by a fake one of 4,321 words"
    ]
    assert "wants the tokenizer './model', which is not on this machine" in run(tmp_path / "p", script).error


@needs("datasets", "transformers", "PIL")
def test_images_and_recordings_of_hugging_face(tmp_path):
    script = """\
    from datasets import Audio, load_dataset
    from transformers import AutoFeatureExtractor, AutoImageProcessor, ViTImageProcessor

    data = load_dataset("uoft-cs/cifar10", split="train")
    print(data[0]["img"].size, data.features["label"].num_classes)
    processor = AutoImageProcessor.from_pretrained("google/vit-base-patch16-224-in21k")
    print(processor([row["img"].convert("RGB") for row in data.select(range(2))], return_tensors="pt").pixel_values.shape)
    print(ViTImageProcessor.from_pretrained("me/unknown", do_resize=False).do_resize)
    unknown = load_dataset("me/unknown")["train"]
    image, caption = unknown[0]["image"], unknown[0]["caption"]
    print(image.size, image.mode, len(caption.split()), len(unknown.column_names) > 3)
    pair = next(iter(load_dataset("HuggingFaceM4/FineVision", "CoSyn_400k_chart", streaming=True)["train"]))
    print([image.size for image in pair["images"]], pair["texts"][0].keys())
    speech = load_dataset("librispeech_asr", "clean", split="train.100").cast_column("audio", Audio(decode=False))
    print(speech[0]["audio"]["bytes"][:4], len(speech[0]["audio"]["bytes"]), len(speech))
    print(AutoFeatureExtractor.from_pretrained("openai/whisper-tiny").feature_size)
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "(32, 32) 10",
        "torch.Size([2, 3, 224, 224])",
        "False",
        "(512, 512) RGB 512 True",
        "[(500, 375)] dict_keys(['user', 'assistant'])",
        f"b'RIFF' {44 + 2 * 16_000 * 10} 64",
        "80",
    ]
    assert ran.assumptions[
        "the processor of openai/whisper-tiny is not on this machine: it has the settings of its class"
    ]
    for line, processor in (
        (2, "ViTImageProcessor.from_pretrained('x/y')"),
        (2, "AutoImageProcessor.from_pretrained('x/y')"),
    ):
        ran = run(tmp_path / "p", f"from transformers import {processor.partition('.')[0]}\n{processor}")
        text = f"{tmp_path}/p/train.py:{line} wants the processor 'x/y', which is not on this machine: give the path"
        assert text in ran.error


@needs("huggingface_hub", "datasets")
@pytest.mark.parametrize(
    ("call", "wants"),
    [
        (
            "huggingface_hub.snapshot_download('x/y')",
            "the files of 'x/y', which are not on this machine: download them",
        ),
        ("huggingface_hub.hf_hub_download('x/y', 'a.json')", "the file a.json of 'x/y', which"),
        (
            "datasets.load_from_disk('nowhere')",
            "the data set that was saved in nowhere, which is not there: put it there",
        ),
    ],
)
def test_what_is_downloaded_or_loaded_is_named_with_its_line(tmp_path, call, wants):
    ran = run(tmp_path / "p", f"import {call.partition('.')[0]}\n{call}")
    assert f"{tmp_path}/p/train.py:2 wants {wants}" in ran.error


@needs("torchvision")
def test_a_folder_of_images_has_the_classes_that_can_be_known(tmp_path):
    project = tmp_path / "p"
    for name in ("cat", "dog", "fox"):
        (project / "empty" / name).mkdir(parents=True)
    ran = run(
        project,
        """\
        import argparse
        from torchvision.datasets import ImageFolder
        def load(root): return ImageFolder(root)
        def main(options): return load("nowhere")
        print(len(load("elsewhere").classes))
        print(load("empty").classes)
        print(len(main(argparse.Namespace(num_classes=7)).classes))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["1000", "['cat', 'dog', 'fox']", "7"]
    texts = "\n".join(ran.assumptions)
    assert "in 1000 classes: if it has others, make an empty folder for each of them in elsewhere" in texts
    assert "in 3 classes, one for each folder there" in texts
    assert "in 7 classes, as num_classes says" in texts


@needs("evaluate")
def test_a_metric_that_is_missing_is_zero(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import evaluate
        metric = evaluate.load("accuracy")
        metric.add_batch(predictions=[1], references=[0])
        print(metric.compute(), evaluate.load("glue", "mrpc").compute(predictions=[1], references=[0]))
        """,
    )
    assert ran.stdout.splitlines()[-1] == "{'accuracy': 0.0} {'accuracy': 0.0, 'f1': 0.0}"
    assert ran.assumptions == {
        f"the metric {name} is not on this machine: it is 0": line for name, line in (("accuracy", 2), ("glue", 4))
    }


def test_a_language_that_spacy_has_no_model_of_here_is_only_cut_into_words(tmp_path):
    (tmp_path / "p").mkdir()
    spacy = "def load(name): raise OSError(f'[E050] no {name}')\ndef blank(language): return str.split\n"
    (tmp_path / "p/spacy.py").write_text(spacy)
    ran = run(tmp_path / "p", "import spacy\nprint(spacy.load('en_core_web_sm')('a b'))\n", fake=True)
    assert ran.stdout == "['a', 'b']\n"
    assert ran.assumptions == {"spaCy's model en_core_web_sm is not on this machine: texts are only cut into words": 2}


@needs("datasets", "transformers", "tokenizers")
def test_texts_have_the_length_that_is_asked_for(tmp_path):
    script = """\
    from datasets import load_dataset
    def words(name, *config): return [len(value.split()) for value in load_dataset(name, *config, split="train")[0].values() if isinstance(value, str)]
    print(words("imdb"), words("glue", "mrpc"))
    print([len(turn["content"].split()) for turn in load_dataset("trl-lib/Capybara", split="train")[0]["messages"]])
    """
    assert run(tmp_path / "p", script, fake=True).stdout.splitlines() == ["[512] [64, 64]", "[256, 1792]"]
    assert run(tmp_path / "p", script, fake=True, seq=100).stdout.splitlines() == ["[100] [50, 50]", "[12, 88]"]


@needs("datasets")
def test_data_sets_of_files_that_are_missing(tmp_path):
    script = """\
    from datasets import load_dataset
    for name, files in (("json", {"train": "data/train.jsonl"}), ("csv", "a.csv"), ("parquet", ["a.parquet"])):
        data = load_dataset(name, data_files=files)["train"]
        print({"instruction", "output"} <= set(data.column_names), len(data[0]["instruction"].split()), len(data[0]["output"].split()))
    print(load_dataset("text", data_files="a.txt", split="train").column_names)
    photos = load_dataset("imagefolder", data_dir="photos", split="train")
    print(photos[0]["image"].size, photos[0]["label"])
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [*["True 512 512"] * 3, "['text']", "(500, 375) 0"]
    ran = run(
        tmp_path / "p", "from datasets import load_dataset\nload_dataset('json', data_files='data/train.jsonl')\n"
    )
    assert f"{tmp_path}/p/train.py:2 wants the data set 'json', which is not on this machine" in ran.error
    assert "--fake-data" in ran.error


@needs("transformers", "tokenizers")
def test_special_tokens_have_the_names_of_the_models_own(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoTokenizer
        for name, token in (("Qwen/Qwen2.5-0.5B-Instruct", "<|im_end|>"), ("gpt2", "<|endoftext|>"), ("meta-llama/Llama-3.2-1B", "<|eot_id|>"), ("openai/clip-vit-large-patch14", "<|endoftext|>"), ("openai/whisper-tiny", "<|nocaptions|>")):
            tokenizer = AutoTokenizer.from_pretrained(name)
            number = tokenizer.convert_tokens_to_ids(token)
            print(len(tokenizer), number not in (None, tokenizer.unk_token_id), tokenizer.encode(f"w1{token}w2", add_special_tokens=False)[1] == number)
        print(tokenizer.pad_token)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        *(f"{size} True True" for size in (151936, 50257, 128256, 49408, 51865)),
        "<pad>",
    ]


@needs("torchvision", "timm")
def test_folders_of_other_files_and_readers_of_timm(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import numpy as np
        from timm.data import create_dataset
        from torchvision.datasets import DatasetFolder
        num_classes = 7
        data = DatasetFolder("latents", loader=np.load, extensions=(".npy",))
        print(len(data.classes), data.samples[0][0], data[0][0].dtype)
        images = create_dataset("", root="photos", split="train")
        print(len(images), images[8][0].size, images[8][1])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["7 latents/class 0/0.npy uint16", "10000 (500, 375) 1"]
    ran = run(
        tmp_path / "p",
        """\
        from timm.data import create_dataset
        from torchvision.datasets import ImageFolder
        for images in (create_dataset("", root="photos", split="train"), ImageFolder("other")):
            print({images[index][1] for index in range(20)})
        """,
        fake=True,
    )
    assert ran.stdout.splitlines() == ["{0, 1}"] * 2, "any classifier has as many classes"
    ran = run(tmp_path / "p", "from timm.data import create_dataset\ncreate_dataset('', root='photos')\n")
    assert (
        f"{tmp_path}/p/train.py:2 wants images in photos, which are not there: put them there, or add --fake"
        in ran.error
    )


@needs("requests", "torchvision")
def test_downloads(tmp_path):
    script = """\
    import os, subprocess, urllib.request
    import requests
    from torchvision.datasets.utils import download_and_extract_archive
    text = requests.get("https://example.org/input.txt").text
    print(len(text) > 10_000, urllib.request.urlopen("https://example.org/a").read()[:1] != b"")
    urllib.request.urlretrieve("https://example.org/b.txt", "b.txt")
    print(len(open("b.txt").read()) > 10_000)
    download_and_extract_archive("https://example.org/c.zip", "c")
    subprocess.run(["wget", "-q", "https://example.org/d.tar"], check=True)
    print(os.system("curl -O https://example.org/e.zip"))
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["True True", "True", "0"]
    assert ran.assumptions["https://example.org/input.txt is not downloaded"] == 4
    ran = run(tmp_path / "p", "import requests\nrequests.get('https://example.org/input.txt')\n")
    assert (
        f"{tmp_path}/p/train.py:2 downloads https://example.org/input.txt: download it once before, or add" in ran.error
    )


def test_weights_that_a_script_writes_from_what_was_not_downloaded_leave_the_model_as_it_is(tmp_path):
    script = """\
    import urllib.request
    import torch
    model = torch.nn.Linear(2, 2)
    with open("vgg.pth", "wb") as file:
        file.write(urllib.request.urlopen("https://example.org/f/1/?dl=1").read())
    print(model.load_state_dict(torch.load("vgg.pth")).missing_keys)
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["[]"]


def test_the_checksum_of_what_was_not_downloaded_is_as_the_script_expects(tmp_path):
    script = """\
    import hashlib, urllib.request
    print(hashlib.md5(b"a").hexdigest() == 32 * "0")
    urllib.request.urlretrieve("https://example.org/vgg.pth", "vgg.pth")
    print(hashlib.md5(b"a").hexdigest() == 32 * "0", hashlib.sha256(b"a").hexdigest() != 64 * "0")
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["False", "True False"]


def test_weights_that_an_installed_package_downloads_are_left_out(tmp_path):
    package = """\
    import hashlib, os, urllib.request
    import torch
    def load(url, folder):
        target = os.path.join(folder, os.path.basename(url))
        with urllib.request.urlopen(url) as source, open(target, "wb") as output:
            output.write(source.read())
        if hashlib.sha256(open(target, "rb").read()).hexdigest() != 64 * "0":
            raise RuntimeError("of another checksum")
        model = torch.nn.Linear(2, 2)
        print(model.load_state_dict(torch.load(target)).missing_keys)
    def ask():
        try:
            urllib.request.urlopen("https://example.org/newest_version.json")
        except OSError:
            print("not asked")
        print(urllib.request.urlopen("https://example.org/cat.png").read(4)[1:])
    """
    folder = tmp_path / "p/site-packages/hearing"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(textwrap.dedent(package), encoding="utf-8")
    script = """\
    import sys
    sys.path.insert(0, "site-packages")
    import hearing
    hearing.ask()
    hearing.load("https://example.org/base.pt", ".")
    """
    ran = run(tmp_path / "p", script, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["not asked", "b'PNG'", "[]"]


@needs("huggingface_hub")
def test_weights_are_not_downloaded_even_without_fake_data(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from huggingface_hub import hf_hub_download
        model = torch.nn.Linear(2, 2)
        model.load_state_dict(torch.load(hf_hub_download("me/mine", "pytorch_model.bin")))
        torch.hub.download_url_to_file("https://example.org/resnet50.pth", "resnet50.pth")
        model.load_state_dict(torch.load("resnet50.pth"))
        print("done")
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "done\n"
    assert ran.assumptions["the weights pytorch_model.bin of me/mine are not on this machine: they are random"] == 4


@needs("datasets")
def test_saved_data_sets_and_tables_of_arrow_are_made_up(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from datasets import Dataset, load_from_disk
        from datasets import Dataset as Table
        try:
            rows = load_from_disk("data/raw")
        except Exception:
            rows = None
        print(rows[0]["text"][:1], len(Table.from_file("data/raw.arrow")[:4]["text"]))
        print(len(Table.from_parquet("data/raw.parquet")) > 9)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.split() == ["w", "4", "True"]
    assert any(text.startswith("the data set data/raw.arrow is not on this machine") for text in ran.assumptions)


@needs("torchaudio")
def test_a_recording_is_read_without_torchcodec(tmp_path):
    lines = ["import torchaudio", "sound, rate = torchaudio.load('a.wav', num_frames=4000)", "print(sound.shape, rate)"]
    ran = run(tmp_path / "p", "\n".join(lines), fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.split() == ["torch.Size([1,", "4000])", "24000"]


def test_a_folder_of_checkpoints_has_none_before_the_first_training(tmp_path):
    (tmp_path / "p/checkpoints").mkdir(parents=True)
    ran = run(tmp_path / "p", "import os\nprint(os.listdir('checkpoints'), os.listdir('runs'))", fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.strip() == "[] []"


@needs("datasets")
def test_data_sets_of_tagged_words_answers_translations_and_objects(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from datasets import load_dataset
        words = load_dataset("conll2003")["train"]
        print(len(words[0]["tokens"]) == len(words[0]["ner_tags"]), words.features["ner_tags"].feature.num_classes)
        squad = load_dataset("rajpurkar/squad", split="train")[0]
        print(len(squad["context"].split()), len(squad["question"].split()), sorted(squad["answers"]))
        print(sorted(load_dataset("wmt16", "de-en")["train"][0]["translation"]))
        objects = load_dataset("cppe-5")["train"]
        print(len(objects[0]["objects"]["bbox"]), objects.features["objects"]["category"].feature.num_classes)
        chats = load_dataset("Open-Orca/SlimOrca", split="train")[0]["conversations"]
        print([each["from"] for each in chats])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "True 9",
        "128 12 ['answer_start', 'text']",
        "['de', 'en']",
        "8 5",
        "['human', 'gpt']",
    ]


@needs("datasets")
def test_a_saved_data_set_of_tokens_has_numbers(tmp_path):
    text = """
        import torch
        from datasets import load_from_disk
        rows = load_from_disk("saved").with_format("torch")
        model = torch.nn.Embedding(1000, 8).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for batch in torch.utils.data.DataLoader(rows, batch_size=4):
            model(batch["input_ids"].cuda()).sum().backward()
            optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 4)


@pytest.mark.parametrize(
    ("name", "rate", "seconds", "rest"),
    [
        ("SPEECHCOMMANDS", 16_000, 1, 3),
        ("LIBRISPEECH", 16_000, 12.3, 4),
        ("FluentSpeechCommands", 16_000, 2.3, 6),
        ("IEMOCAP", 16_000, 4.5, 3),
    ],
)
def test_data_sets_of_torchaudio_are_silence(name, rate, seconds, rest):
    def absent(_self, root):
        raise OSError(root)

    cls = type(name, (), {"__init__": absent, "__getitem__": None, "__len__": None})
    cls.__init__ = recordings._filled(cls, name, fake=True)
    data = cls("nowhere")
    items = list(data)
    recording, sampled, *others = items[36]
    assert (len(items), tuple(recording.shape), sampled, len(others)) == (1024, (1, int(rate * seconds)), rate, rest)
    cls.__init__ = recordings._filled(type(name, (), {"__init__": absent}), name, fake=False)
    with pytest.raises(OSError, match="nowhere") as caught:
        cls("nowhere")
    assert "wants the data set" in caught.value.__notes__[0]


def test_tables_that_scikit_learn_downloads_are_made_up():
    def fetch_california_housing(**_options):
        raise OSError("no connection")

    def fetch_openml(_name=None, **_options):
        raise OSError("no connection")

    data, target = fake_bunches._fetching(fetch_california_housing, fake=True)(return_X_y=True)
    assert (data.shape, target.shape) == ((20_640, 8), (20_640,))
    digits = fake_bunches._fetching(fetch_openml, fake=True)
    data, target = digits("mnist_784", version=1, return_X_y=True, as_frame=False)
    assert (data.shape, sorted(set(target.tolist()))) == ((70_000, 784), list(range(10)))
    assert digits(data_id=554, return_X_y=True, as_frame=False)[0].shape == (70_000, 784)
    with pytest.raises(OSError, match="no connection") as caught:
        digits("a-table-of-mine", return_X_y=True)
    assert "load it once before." in caught.value.__notes__[0]


@needs("sklearn", "pandas")
def test_tables_have_the_structure_that_scikit_learn_gives_them(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from sklearn.datasets import fetch_olivetti_faces, fetch_openml
        faces = fetch_olivetti_faces()
        print(faces.images.shape, faces.data.dtype, type(fetch_openml(data_id=554).data).__name__)
        """,
        fake=True,
    )
    assert "(400, 64, 64) float32 DataFrame" in ran.stdout


def test_a_folder_without_which_a_script_has_a_value_of_its_own_is_not_made(tmp_path):
    source = """\
        import os
        try:
            states = os.listdir('saved/training_states/')
        except:
            states = []
        print(states, len(os.listdir('data/train')))
        """
    ran = run(tmp_path / "p", source, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout.strip() == "[] 24"


def test_a_packed_text_has_as_many_characters_as_enwik8_and_other_packed_files_what_their_name_says(tmp_path):
    source = """\
        import gzip, json, os
        os.makedirs("data", exist_ok=True)
        with gzip.open("data/enwik8.gz") as file:
            print(len(file.read(int(95e6))))
        with gzip.open("data/rows.jsonl.gz", "rt") as file:
            print(type(json.loads(next(file))).__name__)
        """
    ran = run(tmp_path / "p", source, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout == "95000000\ndict\n"


def test_variables_that_a_script_keeps_stay_as_they_are_where_a_file_of_weights_is_looked_for(tmp_path):
    source = """\
        def main():
            kept = locals()
            try:
                open("net.pt", "rb")
            except OSError:
                pass
            print(kept)
        main()
        """
    ran = run(tmp_path / "p", source)
    assert ran.stdout == "{}\n"


def test_an_address_in_an_error_is_no_file_that_is_to_be_put_there(tmp_path):
    text = "import torch\nraise RuntimeError('no images, see https://docs.example.com/sets/ and data/images')\n"
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.error.hint == "It wants data/images, which is not there: put it there."


def test_a_packed_checkpoint_is_an_archive_without_the_file_that_is_taken_out(tmp_path):
    source = """\
        import zipfile, torch
        with zipfile.ZipFile("weights/net.pt.zip") as file:
            file.extractall("weights")
        model = torch.nn.Linear(4, 4)
        model.load_state_dict(torch.load("weights/net.pt"))
        print("loaded")
        """
    ran = run(tmp_path / "p", source, fake=True)
    assert ran.error is None, ran.stderr
    assert ran.stdout == "loaded\n"


@needs("datasets")
def test_a_column_whose_classes_are_asked_for_has_some(tmp_path):
    text = """
        import torch
        from datasets import load_dataset
        rows = load_dataset("me/complaints")["train"]
        names = rows.features["Label"].names
        texts = [names[row["Label"]] for row in rows]
        model = torch.nn.Linear(len(names), len(set(texts))).cuda()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(4, len(names), device="cuda")).sum().backward()
        optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert (workload.script.happened, workload.error, workload.batch) == ("trained", None, 4)


@needs("transformers")
@pytest.mark.parametrize("name", ["facebook/bart-base", "microsoft/deberta-v3-base", "FacebookAI/xlm-roberta-base"])
def test_a_tokenizer_pads_and_masks_as_that_of_its_model(tmp_path, name):
    ran = run(
        tmp_path / "p",
        f"""\
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained({name!r})
        print(len(tokenizer(["w1 w2", "w1"], padding=True).input_ids[1]), tokenizer.mask_token is not None)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "4 True\n"


@needs("datasets")
def test_as_many_rows_are_made_as_are_selected(tmp_path):
    text = """\
    import torch
    from datasets import load_dataset
    print(len(load_dataset("yelp_review_full", split="train").shuffle(seed=42).select(range(1000))))
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.rand(8, 4, device="cuda")).sum().backward()
    optimizer.step()
    """
    (workload,) = run_text(tmp_path, text).report.workloads
    assert workload.script is not None
    assert (workload.script.happened, workload.error) == ("trained", None)


def test_a_number_in_a_record_that_is_not_there_makes_the_record_no_text(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import numpy as np
        data = np.load("data/runs.npz", allow_pickle=True)
        print(data["states"].shape, int(data["vocab"]))
        """,
        fake=True,
    )
    assert "The number 'vocab' is read from it: put the file there, as a size may depend on it" in ran.error


@needs("datasets")
def test_columns_may_depend_on_the_configuration(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from datasets import load_dataset
        for call in (("glue", "stsb"), ("super_glue", "boolq"), ("race", "all"), ("allenai/ai2_arc", "ARC-Easy")):
            row = load_dataset(*call, split="train")[1]
            print(*(f"{name}:{type(value).__name__}" for name, value in row.items()))
        print(row["answerKey"], row["choices"]["label"])
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert [line for line in ran.stdout.splitlines() if not line.startswith("Generating")] == [
        "sentence1:str sentence2:str label:float idx:int",
        "question:str passage:str idx:int label:int",
        "example_id:str article:str answer:str question:str options:list",
        "id:str question:str choices:dict answerKey:str",
        "B ['A', 'B', 'C', 'D']",
    ]
