"""Models whose weights are not on this machine have random ones of the same sizes."""

import json

import pytest
import torch

from memlint.targets.known_configs import ARCHITECTURES, KNOWN_CONFIGS, known_config
from memlint.workloads import torchvision_schemas
from memlint.workloads.pretrained import untie
from tests.script.isolated import needs, run

PARAMETERS = {
    "all-minilm-l6-v2": 22_713_216,
    "bert-base-cased": 108_310_272,
    "bert-base-uncased": 109_482_240,
    "bert-large-uncased": 335_141_888,
    "deberta-v3-xsmall": 70_682_112,
    "distilbert-base-cased": 65_190_912,
    "distilbert-base-uncased": 66_362_880,
    "distilgpt2": 81_912_576,
    "flan-t5-base": 247_577_856,
    "flan-t5-small": 76_961_152,
    "gpt2": 124_439_808,
    "gpt2-large": 774_030_080,
    "gpt2-medium": 354_823_168,
    "gpt2-xl": 1_557_611_200,
    "llama-2-13b-hf": 13_015_864_320,
    "llama-2-7b-hf": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "meta-llama-3-8b": 8_030_261_248,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "opt-125m": 125_239_296,
    "qwen2-0.5b": 494_032_768,
    "qwen2-1.5b": 1_543_714_304,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "smollm-135m": 134_515_008,
    "smollm-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-small": 60_506_624,
    "tinyllama-1.1b-chat-v1.0": 1_100_048_384,
    "vit-base-patch16-224": 86_567_656,
    "vit-base-patch16-224-in21k": 86_389_248,
    "whisper-small": 241_734_912,
    "whisper-tiny": 37_760_640,
}
"""Of the model's page, without heads that are trained anew."""
OTHER_PARAMETERS = {
    "albert-base-v2": 11_683_584,
    "all-minilm-l12-v2": 33_360_000,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "bert-base-chinese": 102_267_648,
    "bert-base-multilingual-cased": 177_853_440,
    "bert-large-cased": 333_579_264,
    "bge-base-en-v1.5": 109_482_240,
    "bge-large-en-v1.5": 335_141_888,
    "bge-small-en-v1.5": 33_360_000,
    "clip-vit-base-patch16": 149_620_737,
    "clip-vit-base-patch32": 151_277_313,
    "clip-vit-large-patch14": 427_616_513,
    "clip-vit-large-patch14-336": 427_944_193,
    "codellama-34b-hf": 33_743_970_304,
    "codellama-7b-hf": 6_738_546_688,
    "deberta-v3-base": 183_831_552,
    "deberta-v3-large": 434_012_160,
    "deberta-v3-small": 141_304_320,
    "deepseek-r1": 671_026_404_352,
    "deepseek-r1-0528-qwen3-8b": 8_190_735_360,
    "deepseek-r1-distill-llama-70b": 70_553_706_496,
    "deepseek-r1-distill-llama-8b": 8_030_261_248,
    "deepseek-r1-distill-qwen-1.5b": 1_777_088_000,
    "deepseek-r1-distill-qwen-14b": 14_770_033_664,
    "deepseek-r1-distill-qwen-32b": 32_763_876_352,
    "deepseek-r1-distill-qwen-7b": 7_615_616_512,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_404_352,
    "dinov2-base": 86_580_480,
    "dinov2-large": 304_368_640,
    "dinov2-small": 22_056_576,
    "dinov2-with-registers-base": 86_583_552,
    "dinov2-with-registers-large": 304_372_736,
    "dinov2-with-registers-small": 22_058_112,
    "distilroberta-base": 82_118_400,
    "electra-base-discriminator": 108_891_648,
    "electra-small-discriminator": 13_483_008,
    "flan-t5-large": 783_150_080,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_432_406_640,
    "gemma-3-4b": 4_300_079_472,
    "gemma-7b": 8_537_680_896,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neo-1.3b": 1_315_575_808,
    "gpt-neo-125m": 125_198_592,
    "gpt-neo-2.7b": 2_651_307_520,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "hubert-base-ls960": 94_371_712,
    "llama-13b": 13_015_864_320,
    "llama-2-70b-hf": 68_976_648_192,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "llama-30b": 32_528_943_616,
    "llama-4-scout-17b-16e": 108_641_793_536,
    "llama-65b": 65_285_660_672,
    "llama-7b": 6_738_415_616,
    "meta-llama-3-70b": 70_553_706_496,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-nemo-base-2407": 12_247_782_400,
    "mistral-small-24b-base-2501": 23_572_403_200,
    "mistral-small-3.1-24b-base-2503": 24_011_361_280,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-small": 300_176_768,
    "opt-1.3b": 1_315_758_080,
    "opt-13b": 12_853_473_280,
    "opt-2.7b": 2_651_596_800,
    "opt-30b": 29_974_540_288,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "phi-1_5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-160m": 162_322_944,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "pythia-70m": 70_426_624,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-72b": 72_706_203_648,
    "qwen2.5-coder-0.5b": 494_032_768,
    "qwen2.5-coder-1.5b": 1_543_714_304,
    "qwen2.5-coder-14b": 14_770_033_664,
    "qwen2.5-coder-32b": 32_763_876_352,
    "qwen2.5-coder-3b": 3_085_938_688,
    "qwen2.5-coder-7b": 7_615_616_512,
    "qwen3-14b": 14_768_307_200,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-235b-a22b-instruct-2507": 235_093_634_560,
    "qwen3-235b-a22b-thinking-2507": 235_093_634_560,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-30b-a3b-instruct-2507": 30_532_122_624,
    "qwen3-30b-a3b-thinking-2507": 30_532_122_624,
    "qwen3-32b": 32_762_123_264,
    "qwen3-4b-instruct-2507": 4_022_468_096,
    "qwen3-4b-thinking-2507": 4_022_468_096,
    "qwen3-coder-30b-a3b-instruct": 30_532_122_624,
    "qwq-32b": 32_763_876_352,
    "siglip-base-patch16-224": 203_155_970,
    "siglip-so400m-patch14-384": 877_960_498,
    "t5-3b": 2_851_598_336,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-xl": 2_849_757_184,
    "t5-v1_1-xxl": 11_135_332_352,
    "vicuna-13b-v1.5": 13_015_864_320,
    "vicuna-7b-v1.5": 6_738_415_616,
    "vit-large-patch16-224": 304_326_632,
    "wav2vec2-base": 94_371_712,
    "wav2vec2-base-960h": 94_371_712,
    "whisper-base": 72_593_920,
    "whisper-large-v2": 1_543_304_960,
    "whisper-large-v3": 1_543_490_560,
    "whisper-medium": 763_857_920,
    "xlm-roberta-base": 278_043_648,
    "xlm-roberta-large": 559_890_432,
}
"""The same of models that take longer to make."""
HEADS = {
    **dict.fromkeys(("T5Config", "MT5Config"), "AutoModelForSeq2SeqLM"),
    "WhisperConfig": "AutoModelForSpeechSeq2Seq",
    **dict.fromkeys(
        (
            *("GPT2Config", "GPTNeoConfig", "GPTNeoXConfig", "GPTJConfig", "GemmaConfig", "LlamaConfig"),
            *("MistralConfig", "MixtralConfig", "OPTConfig", "PhiConfig", "Phi3Config", "Qwen2Config", "Qwen3Config"),
            *("Gemma2Config", "Gemma3TextConfig", "GptOssConfig", "Qwen2MoeConfig", "Qwen3MoeConfig"),
            *("DeepseekV2Config", "DeepseekV3Config"),
        ),
        "AutoModelForCausalLM",
    ),
    **dict.fromkeys(("Gemma3Config", "Llama4Config", "Mistral3Config"), "AutoModelForImageTextToText"),
}


def num_parameters(name):
    transformers = pytest.importorskip("transformers")
    torchvision_schemas.install()
    kind, arguments = KNOWN_CONFIGS[name]
    head = "AutoModelForImageClassification" if "num_labels" in arguments else HEADS.get(kind, "AutoModel")
    with torch.device("meta"):
        model = getattr(transformers, head).from_config(getattr(transformers, kind)(**arguments))
        untie(model, arguments)
    return sum(p.numel() for p in model.parameters())


@needs("transformers")
def test_known_models_have_as_many_parameters_as_their_pages_say():
    torchvision_schemas.install()
    transformers = pytest.importorskip("transformers")
    assert {*PARAMETERS, *OTHER_PARAMETERS} == set(KNOWN_CONFIGS)
    assert all(hasattr(transformers, name) for name in ARCHITECTURES.values())
    assert {kind for kind, _ in KNOWN_CONFIGS.values()} <= set(ARCHITECTURES)
    assert {name: num_parameters(name) for name in PARAMETERS} == PARAMETERS


@needs("transformers")
@pytest.mark.slow
def test_other_known_models_have_as_many_parameters_as_their_pages_say():
    assert {name: num_parameters(name) for name in OTHER_PARAMETERS} == OTHER_PARAMETERS


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("meta-llama/Llama-2-70b-chat-hf", "llama-2-70b-hf"),
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("NousResearch/Meta-Llama-3-8B", "meta-llama-3-8b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-v0.1"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini-4k"),
        ("google/gemma-7b-it", "gemma-7b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b-base-2501"),
        ("mistralai/Mistral-Nemo-Instruct-2407", "mistral-nemo-base-2407"),
        ("decapoda-research/llama-7b-hf", "llama-7b"),
        ("decapoda-research/llama-7b-hf/", "llama-7b"),
        ("me/mine", None),
    ],
)
def test_a_tuned_model_has_the_sizes_of_its_base(name, known):
    assert known_config(name) == (known and KNOWN_CONFIGS[known])


@needs("transformers")
def test_models_that_are_well_known_are_made(tmp_path):
    pytest.importorskip("accelerate", reason="device_map needs it")
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, GPT2LMHeadModel
        from transformers import GPT2Config, AutoModel
        model = AutoModelForCausalLM.from_pretrained("gpt2").cuda()
        print(type(model).__name__, model.num_parameters(), model.dtype, model.name_or_path, model.config._name_or_path)
        model = GPT2LMHeadModel.from_pretrained("openai-community/gpt2-medium", device_map="cuda", dtype=torch.bfloat16)
        print(model.num_parameters(), model.dtype, model.device)
        model = AutoModelForSequenceClassification.from_pretrained("google-bert/bert-base-uncased", num_labels=7)
        print(model.classifier.weight.shape, model.num_parameters())
        model = AutoModelForCausalLM.from_pretrained("meta-llama/Llama-2-7b-chat-hf")
        print(model.dtype, model.num_parameters())
        model = AutoModelForCausalLM.from_pretrained("me/my-own", config=GPT2Config(n_layer=1))
        print(len(model.transformer.h))
        from transformers import AutoConfig, OPTForCausalLM
        print(AutoConfig.from_pretrained("Qwen/Qwen3-0.6B").architectures)
        print(OPTForCausalLM.from_pretrained("facebook/opt-125m").dtype)
        from transformers import CLIPModel
        print(CLIPModel.from_pretrained("openai/clip-vit-base-patch32").num_parameters())
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == [
        "GPT2LMHeadModel 124439808 torch.float32 gpt2 gpt2",
        "354823168 torch.bfloat16 cuda:0",
        f"torch.Size([7, 768]) {109_482_240 + 7 * 769}",
        "torch.float16 6738415616",
        "1",
        "['Qwen3ForCausalLM']",
        "torch.float16",
        "151277313",
    ]
    assert ran.assumptions["the weights of gpt2 are not on this machine: they are random, in float32"] == 4
    assert (
        ran.assumptions[
            "the weights of meta-llama/Llama-2-7b-chat-hf are not on this machine: they are random, in float16"
        ]
        == 10
    )
    assert not ran.writes
    assert not ran.outside


@needs("transformers")
def test_weights_that_are_made_up_are_said_to_be_in_the_dtype_they_have(tmp_path):
    ran = run(
        tmp_path / "p",
        """
        import torch
        from transformers import AutoModelForCausalLM
        named = {"pretrained_model_name_or_path": "Qwen/Qwen2-0.5B", "dtype": torch.float32}
        print(AutoModelForCausalLM.from_pretrained(**named).dtype)
        """,
    )
    assert ran.stdout == "torch.float32\n", ran.stderr
    assert "the weights of Qwen/Qwen2-0.5B are not on this machine: they are random, in float32" in ran.assumptions


@needs("transformers")
def test_a_config_without_weights_is_enough(tmp_path):
    project = tmp_path / "p"
    (project / "tiny").mkdir(parents=True)
    text = '{"model_type": "gpt2", "n_layer": 1, "n_embd": 64, "n_head": 2, "vocab_size": 99, "architectures": ["GPT2LMHeadModel"]}'
    (project / "tiny/config.json").write_text(text, encoding="utf-8")
    ran = run(
        project,
        """\
        from transformers import AutoModelForCausalLM
        print(AutoModelForCausalLM.from_pretrained("tiny").transformer.wte.weight.shape)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "torch.Size([99, 64])\n"
    assert list(ran.assumptions.values()) == [2]


@needs("transformers")
def test_a_model_that_nobody_knows_is_named_with_its_line(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoModel
        try:
            AutoModel.from_pretrained("nobody/knows-this")
        except OSError:
            print("a script may go on")
        AutoModel.from_pretrained("nobody/knows-this")
        """,
    )
    assert ran.stdout == "a script may go on\n"
    assert "OSError" in ran.error
    assert (
        f"{tmp_path}/p/train.py:6 wants the model 'nobody/knows-this', which is not on this machine: give" in ran.error
    )
    assert "config.json" in ran.error


@needs("transformers")
def test_configs_that_are_well_known_are_made(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoConfig, AutoModelForCausalLM, GPT2Config
        config = AutoConfig.from_pretrained("openai-community/gpt2", n_layer=1, cache_dir="cache")
        print(type(config).__name__, config.n_layer, config.n_embd)
        print(AutoModelForCausalLM.from_config(config).num_parameters())
        print(GPT2Config.from_pretrained("gpt2-medium").n_embd)
        config, rest = AutoConfig.from_pretrained("distilgpt2", return_unused_kwargs=True, mine=3)
        print(config.n_layer, rest)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["GPT2Config 1 768", "46473216", "1024", "6 {'mine': 3}"]
    known = "the config of {} is not on this machine: it is the one that is known by this name"
    lines = {"openai-community/gpt2": 2, "gpt2-medium": 5, "distilgpt2": 6}
    assert {name: ran.assumptions[known.format(name)] for name in lines} == lines


@needs("transformers")
def test_a_config_that_nobody_knows_is_named_with_its_line(tmp_path):
    text = "from transformers import AutoConfig\nAutoConfig.from_pretrained('nobody/knows-this')\n"
    ran = run(tmp_path / "p", text)
    assert f"{tmp_path}/p/train.py:2 wants the config 'nobody/knows-this', which is not on this machine" in ran.error


@needs("torchvision")
def test_weights_of_torchvision_and_of_addresses(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch, torchvision
        model = torchvision.models.resnet18(weights="IMAGENET1K_V1").cuda()
        print(model(torch.zeros(2, 3, 64, 64, device="cuda")).shape)
        state = torch.hub.load_state_dict_from_url("https://example.org/model.pth")
        print(torch.nn.Linear(3, 3).load_state_dict(state["model"]))
        """,
    )
    assert ran.error is None, ran.stderr
    lines = [line for line in ran.stdout.splitlines() if not line.startswith("Downloading")]
    assert lines == ["torch.Size([2, 1000])", "<All keys matched successfully>"]
    assert ran.assumptions["the weights at https://example.org/model.pth are not on this machine: they are random"] == 4


@needs("torchvision")
def test_models_of_a_hub_are_built_or_named_with_how_to_fetch_them(tmp_path):
    ran = run(tmp_path / "p", "import torch\nprint(type(torch.hub.load('pytorch/vision', 'resnet18')).__name__)\n")
    assert (ran.stdout, ran.error) == ("ResNet\n", None)
    ran = run(tmp_path / "p", "import torch\ntorch.hub.load('nobody/nets', 'small_net')\n")
    assert (
        f"{tmp_path}/p/train.py:2 loads small_net of nobody/nets, which is not on this machine: fetch it" in ran.error
    )


@needs("timm")
def test_weights_of_timm(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import timm
        print(timm.create_model("resnet18", pretrained=True, num_classes=7).fc.weight.shape)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "torch.Size([7, 512])\n"
    assert "the weights of ResNet are not on this machine: they are random" in ran.assumptions


@needs("diffusers", "transformers")
def test_the_parts_of_stable_diffusion_are_made(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch
        from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
        from transformers import CLIPTextModel, CLIPTokenizer
        name = "CompVis/stable-diffusion-v1-4"
        print(DDPMScheduler.from_pretrained(name, subfolder="scheduler").config.beta_end)
        print(len(CLIPTokenizer.from_pretrained(name, subfolder="tokenizer")))
        for cls, folder in ((CLIPTextModel, "text_encoder"), (AutoencoderKL, "vae"), (UNet2DConditionModel, "unet")):
            model = cls.from_pretrained(name, subfolder=folder, variant=None)
            print(sum(p.numel() for p in model.parameters()))
        print(sum(p.numel() for p in AutoencoderKL.from_pretrained("stabilityai/sd-vae-ft-ema").parameters()))
        print(UNet2DConditionModel.from_pretrained("me/other", subfolder="unet"))
        """,
        fake=True,
    )
    assert ran.stdout.split() == ["0.012", "49408", "123060480", "83653863", "859520964", "83653863"]
    assert f"{tmp_path}/p/train.py:11 wants the config of 'me/other', unet, which is not on this machine" in ran.error


@needs("diffusers", "transformers")
@pytest.mark.slow
def test_the_pipeline_of_stable_diffusion_is_made_of_its_parts(tmp_path):
    text = """
        import torch
        from diffusers import DiffusionPipeline
        pipe = DiffusionPipeline.from_pretrained("stable-diffusion-v1-5/stable-diffusion-v1-5", torch_dtype=torch.float16)
        parts = (pipe.text_encoder, pipe.unet, pipe.vae, pipe.safety_checker)
        print(type(pipe).__name__, *(sum(p.numel() for p in part.parameters()) for part in parts))
        print({p.dtype for part in parts for p in part.parameters()}, pipe.tokenizer.model_max_length)
        print(pipe.to("cuda")("a squirrel", num_inference_steps=4, output_type="pt").images.shape)
    """
    ran = run(tmp_path / "p", text, fake=True)
    assert ran.error is None, ran.stderr
    # as the repository's files and the pages of its parts say
    assert ran.stdout.splitlines() == [
        "StableDiffusionPipeline 123060480 859520964 83653863 303981588",
        "{torch.float16} 77",
        "torch.Size([1, 3, 512, 512])",
    ]


@needs("transformers")
def test_older_versions_of_transformers_report_missing_files_otherwise(tmp_path):
    # transformers 4.46 goes on without the file of weights.
    ran = run(
        tmp_path / "p",
        """\
        import transformers.modeling_utils
        from transformers import GPT2LMHeadModel
        files = transformers.modeling_utils._get_resolved_checkpoint_files
        def resolved(pretrained_model_name_or_path, **options):
            name = None if pretrained_model_name_or_path == "gpt2" else pretrained_model_name_or_path
            return files(pretrained_model_name_or_path=name[:], **options) if name else None.endswith
        transformers.modeling_utils._get_resolved_checkpoint_files = resolved
        print(sum(each.numel() for each in GPT2LMHeadModel.from_pretrained("gpt2").parameters()))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["124439808"]


@needs("transformers")
def test_a_part_of_a_known_model_has_the_config_and_images_of_that_part(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import numpy as np
        from transformers import CLIPImageProcessor, CLIPVisionModel
        name = "openai/clip-vit-large-patch14-336"
        pixels = CLIPImageProcessor.from_pretrained(name)(np.zeros((500, 375, 3), np.uint8), return_tensors="pt")
        print(sum(each.numel() for each in CLIPVisionModel.from_pretrained(name).parameters()), pixels.pixel_values.shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["303507456 torch.Size([1, 3, 336, 336])"]


@needs("diffusers")
def test_a_pipeline_that_is_stated_is_made_of_its_parts(tmp_path):
    blocks = {
        "block_out_channels": [32, 32],
        "down_block_types": ["DownBlock2D"] * 2,
        "up_block_types": ["UpBlock2D"] * 2,
    }
    stated = {
        "model_index": {
            "_class_name": "DDPMPipeline",
            "unet": ["diffusers", "UNet2DModel"],
            "scheduler": ["diffusers", "DDPMScheduler"],
        },
        "unet": {"_class_name": "UNet2DModel", "sample_size": 16, **blocks},
        "scheduler": {"_class_name": "DDPMScheduler", "beta_end": 0.5},
    }
    text = """
        import torch
        from diffusers import DiffusionPipeline
        pipe = DiffusionPipeline.from_pretrained("me/pipe", torch_dtype=torch.float16)
        print(type(pipe).__name__, pipe.unet.conv_in.weight.shape, pipe.unet.dtype, pipe.scheduler.config.beta_end)
        DiffusionPipeline.from_pretrained("me/other")
    """
    ran = run(tmp_path / "p", text, config_of=[[f"me/pipe/{name}", json.dumps(each)] for name, each in stated.items()])
    assert ran.stdout == "DDPMPipeline torch.Size([32, 3, 3, 3]) torch.float16 0.5\n"
    assert not any("known by this name" in text for text in ran.assumptions)
    assert "add --config-of me/other=FOLDER" in ran.error


@needs("huggingface_hub")
def test_a_model_that_huggingface_hub_loads_has_the_stated_config(tmp_path):
    text = """
        from huggingface_hub import PyTorchModelHubMixin
        from torch import nn
        class Net(nn.Module, PyTorchModelHubMixin):
            def __init__(self, width=2):
                super().__init__()
                self.layer = nn.Linear(width, 3)
        class Open(Net):
            def __init__(self, width):
                super().__init__(width)
        for kind, name in ((Net, "me/net"), (Net, "me/other"), (Open, "me/open")):
            print(kind.from_pretrained(name).layer.weight.shape)
    """
    ran = run(tmp_path / "p", text, config_of=[["me/net", json.dumps({"width": 5})]])
    assert ran.stdout == "torch.Size([3, 5])\ntorch.Size([3, 2])\n"
    assert "the weights of me/net are not on this machine: they are random" in ran.assumptions
    assert "the config of me/other is not on this machine: Net has its own defaults" in ran.assumptions
    assert "wants the config of 'me/open', which is not on this machine: add --config-of me/open=" in ran.error


@needs("transformers", "PIL")
def test_the_processor_of_a_stated_model_gives_images_of_its_size(tmp_path):
    text = """
        from PIL import Image
        from transformers import AutoImageProcessor, BlipImageProcessor
        for kind in (AutoImageProcessor, BlipImageProcessor):
            image = Image.new("RGB", (80, 40))
            print(kind.from_pretrained("me/blip")(image, return_tensors="pt").pixel_values.shape)
    """
    config = json.dumps({"model_type": "blip", "vision_config": {"image_size": 32}})
    ran = run(tmp_path / "p", text, fake=True, config_of=[["me/blip", config]])
    assert ran.stdout == "torch.Size([1, 3, 32, 32])\n" * 2, ran.stderr


@needs("transformers")
def test_weights_of_eight_bits_are_asked_for_as_before_transformers_5(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import BitsAndBytesConfig, GPT2LMHeadModel
        print(GPT2LMHeadModel.from_pretrained("gpt2", load_in_8bit=False).config.n_layer)
        BitsAndBytesConfig.post_init = lambda self: print(self.load_in_8bit, self.load_in_4bit)
        try:
            GPT2LMHeadModel.from_pretrained("gpt2", load_in_8bit=True, load_in_4bit=False)
        except Exception as error:  # of the library, which may not be installed
            print("unexpected keyword" in str(error))
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["12", "True False", "False"]
    assert any("no argument load_in_8bit=True: it is a BitsAndBytesConfig of it" in text for text in ran.assumptions)


@needs("transformers")
def test_a_model_that_transformers_documents_has_the_defaults_of_its_class(tmp_path):
    assert known_config("facebook/detr-resnet-50") == ("DetrConfig", {})
    assert known_config("facebook/detr-resnet-50", documented=False) is None
    assert known_config("facebook/detr-resnet-50", "backbone") is None
    assert known_config("openai-community/gpt2")[0] == "GPT2Config"
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoConfig
        print(AutoConfig.from_pretrained("facebook/detr-resnet-50").num_queries)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "100\n"
    text = "the defaults of DetrConfig are taken, which transformers documents as like it"
    assert f"the config of facebook/detr-resnet-50 is not on this machine: {text}" in ran.assumptions


@needs("transformers")
def test_output_embeddings_are_the_models_own_where_its_config_says_so(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoModelForSeq2SeqLM
        for name in ("t5-small", "google/flan-t5-small"):
            model = AutoModelForSeq2SeqLM.from_pretrained(name)
            print(sum(p.numel() for p in model.parameters()), model.config.decoder_start_token_id)
        """,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines() == ["60506624 0", "76961152 0"]


@needs("transformers")
def test_the_tokenizer_of_a_part_is_made_whatever_class_is_asked_for(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained("CompVis/stable-diffusion-v1-4", subfolder="tokenizer", use_fast=False)
        print(len(tokenizer))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "49408\n"


@needs("transformers")
def test_a_model_of_unknown_sizes_of_which_only_the_state_is_taken_has_none(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        import torch, transformers
        from torch import nn
        model = nn.Linear(4, 3)
        model.load_state_dict(
            transformers.AutoModelForMaskedLM.from_pretrained(
                "somebody/unknown-model"
            ).state_dict()
        )
        print(model.weight.shape)
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout.splitlines()[-1] == "torch.Size([3, 4])"
    assert "the weights of somebody/unknown-model are not on this machine: they are random" in ran.assumptions


@needs("safetensors")
def test_a_model_is_loaded_by_safetensors_from_a_file_that_is_not_there(tmp_path):
    text = """
        import torch
        from safetensors.torch import load_model
        model = torch.nn.ModuleList([torch.nn.Linear(3, 3)] * 2)
        print(load_model(model, "large.safetensors"))
    """
    ran = run(tmp_path / "p", text)
    assert ran.error is None, ran.stderr
    assert ran.stdout == "(set(), [])\n"
    assert "the checkpoint large.safetensors is not there: the weights stay as they were initialized" in ran.assumptions
