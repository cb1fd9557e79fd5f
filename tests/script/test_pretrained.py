"""Models whose weights are not on this machine have random ones of the same sizes."""

import json

import pytest
import torch

from memlint.targets.known_configs import ARCHITECTURES, KNOWN_CONFIGS, SAME, known_config, likeness
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
    "albert-large-v2": 17_683_968,
    "all-minilm-l12-v2": 33_360_000,
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "bart-large-cnn": 406_290_432,
    "bert-base-chinese": 102_267_648,
    "bert-base-multilingual-cased": 177_853_440,
    "bert-base-multilingual-uncased": 167_356_416,
    "bert-large-cased": 333_579_264,
    "bert-medium": 41_373_184,
    "bert-mini": 11_170_560,
    "bert-small": 28_763_648,
    "bert-tiny": 4_385_920,
    "bge-base-en-v1.5": 109_482_240,
    "bge-large-en-v1.5": 335_141_888,
    "bge-m3": 567_754_752,
    "bge-small-en-v1.5": 33_360_000,
    "blip2-opt-2.7b": 3_744_679_936,
    "bloom": 176_247_271_424,
    "bloom-1b1": 1_065_314_304,
    "bloom-1b7": 1_722_408_960,
    "bloom-3b": 3_002_557_440,
    "bloom-560m": 559_214_592,
    "bloom-7b1": 7_069_016_064,
    "byt5-base": 581_653_248,
    "byt5-small": 299_637_760,
    "cerebras-gpt-1.3b": 1_315_723_264,
    "cerebras-gpt-111m": 111_050_496,
    "cerebras-gpt-256m": 255_977_024,
    "cerebras-gpt-590m": 590_310_912,
    "chinese-roberta-wwm-ext-large": 325_522_432,
    "clip-vit-base-patch16": 149_620_737,
    "clip-vit-base-patch32": 151_277_313,
    "clip-vit-h-14-laion2b-s32b-b79k": 986_109_441,
    "clip-vit-large-patch14": 427_616_513,
    "clip-vit-large-patch14-336": 427_944_193,
    "codegen-350m-mono": 356_712_448,
    "codellama-13b-hf": 13_016_028_160,
    "codellama-34b-hf": 33_743_970_304,
    "codellama-7b-hf": 6_738_546_688,
    "codet5-base": 222_882_048,
    "codet5-small": 60_492_288,
    "convnext-base-224": 88_591_464,
    "convnext-large-224": 197_767_336,
    "convnext-small-224": 50_223_688,
    "convnext-tiny-224": 28_589_128,
    "deberta-base": 138_601_728,
    "deberta-large": 405_163_008,
    "deberta-v3-base": 183_831_552,
    "deberta-v3-large": 434_012_160,
    "deberta-v3-small": 141_304_320,
    "deepseek-coder-1.3b": 1_346_471_936,
    "deepseek-coder-33b": 33_342_991_360,
    "deepseek-coder-6.7b": 6_740_512_768,
    "deepseek-llm-7b": 6_910_365_696,
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
    "deit-small-patch16-224": 22_050_664,
    "deit-tiny-patch16-224": 5_717_416,
    "dialogpt-small": 124_439_808,
    "dinov2-base": 86_580_480,
    "dinov2-giant": 1_136_480_768,
    "dinov2-large": 304_368_640,
    "dinov2-small": 22_056_576,
    "dinov2-with-registers-base": 86_583_552,
    "dinov2-with-registers-large": 304_372_736,
    "dinov2-with-registers-small": 22_058_112,
    "dinov3-vitb16-pretrain-lvd1689m": 85_660_416,
    "dinov3-vitl16-pretrain-lvd1689m": 303_129_600,
    "dinov3-vits16-pretrain-lvd1689m": 21_596_544,
    "distil-large-v3": 756_405_760,
    "distilbart-cnn-12-6": 305_510_400,
    "distilbert-base-multilingual-cased": 134_734_080,
    "distilroberta-base": 82_118_400,
    "electra-base-discriminator": 108_891_648,
    "electra-large-discriminator": 334_092_288,
    "electra-small-discriminator": 13_483_008,
    "esm2_t12_35m_ur50d": 33_500_401,
    "esm2_t30_150m_ur50d": 148_138_841,
    "esm2_t33_650m_ur50d": 651_040_661,
    "esm2_t36_3b_ur50d": 2_839_000_481,
    "esm2_t6_8m_ur50d": 7_511_801,
    "falcon-40b": 41_303_293_952,
    "falcon-7b": 6_921_720_704,
    "falcon-rw-1b": 1_311_625_216,
    "falcon3-7b": 7_455_550_464,
    "flan-t5-large": 783_150_080,
    "flan-t5-xl": 2_849_757_184,
    "flan-t5-xxl": 11_135_332_352,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2b": 2_506_172_416,
    "gemma-3-12b": 12_187_325_040,
    "gemma-3-1b": 999_885_952,
    "gemma-3-270m": 268_098_176,
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
    "hubert-large-ll60k": 315_438_720,
    "led-base-16384": 161_844_480,
    "llama-13b": 13_015_864_320,
    "llama-160m": 162_417_408,
    "llama-2-70b-hf": 68_976_648_192,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "llama-30b": 32_528_943_616,
    "llama-4-scout-17b-16e": 108_641_793_536,
    "llama-65b": 65_285_660_672,
    "llama-68m": 68_030_208,
    "llama-7b": 6_738_415_616,
    "llava-1.5-13b-hf": 13_351_494_656,
    "llava-1.5-7b-hf": 7_063_427_072,
    "llemma_7b": 6_738_546_688,
    "longformer-base-4096": 148_659_456,
    "longformer-large-4096": 434_600_960,
    "mamba-1.4b-hf": 1_372_178_432,
    "mamba-130m-hf": 129_135_360,
    "mamba-2.8b-hf": 2_768_345_600,
    "mamba-370m-hf": 371_516_416,
    "mamba-790m-hf": 793_204_224,
    "mbart-large-50": 610_879_488,
    "mbart-large-cc25": 610_851_840,
    "mdeberta-v3-base": 278_218_752,
    "meta-llama-3-70b": 70_553_706_496,
    "mistral-7b-v0.2": 7_241_732_096,
    "mistral-nemo-base-2407": 12_247_782_400,
    "mistral-small-24b-base-2501": 23_572_403_200,
    "mistral-small-3.1-24b-base-2503": 24_011_361_280,
    "mit-b0": 3_319_392,
    "mit-b1": 13_151_424,
    "mit-b2": 24_196_288,
    "mit-b3": 44_072_128,
    "mit-b4": 60_842_688,
    "mit-b5": 81_443_008,
    "mixtral-8x22b-v0.1": 140_620_634_112,
    "mixtral-8x7b-v0.1": 46_702_792_704,
    "modernbert-large": 394_781_696,
    "mpnet-base": 109_486_464,
    "mpt-7b": 6_649_286_656,
    "mt5-base": 582_401_280,
    "mt5-large": 1_229_581_312,
    "mt5-small": 300_176_768,
    "mt5-xl": 3_742_619_648,
    "nllb-200-1.3b": 1_370_638_336,
    "nllb-200-3.3b": 3_344_863_232,
    "nllb-200-distilled-600m": 615_073_792,
    "olmo-1b-hf": 1_176_764_416,
    "olmo-2-0425-1b": 1_484_916_736,
    "olmo-2-1124-7b": 7_298_617_344,
    "olmo-7b-hf": 6_888_095_744,
    "open_llama_13b": 13_015_864_320,
    "open_llama_3b": 3_426_473_600,
    "open_llama_7b": 6_738_415_616,
    "openai-gpt": 116_534_784,
    "opt-1.3b": 1_315_758_080,
    "opt-13b": 12_853_473_280,
    "opt-2.7b": 2_651_596_800,
    "opt-30b": 29_974_540_288,
    "opt-350m": 331_196_416,
    "opt-6.7b": 6_658_473_984,
    "opt-66b": 65_719_701_504,
    "opus-mt-en-de": 74_410_496,
    "opus-mt-en-es": 77_943_296,
    "opus-mt-en-fr": 75_133_952,
    "opus-mt-en-ru": 76_672_000,
    "paligemma-3b-pt-224": 2_923_466_480,
    "paraphrase-minilm-l3-v2": 17_389_824,
    "paraphrase-multilingual-minilm-l12-v2": 117_653_760,
    "pegasus-large": 570_797_056,
    "pegasus-xsum": 569_748_480,
    "phi-1": 1_418_270_720,
    "phi-1_5": 1_418_270_720,
    "phi-2": 2_779_683_840,
    "phi-3-medium-4k": 13_960_238_080,
    "phi-3-mini-4k": 3_821_079_552,
    "phi-3.5-mini": 3_821_079_552,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "prot_bert": 419_931_136,
    "pythia-1.4b": 1_414_647_808,
    "pythia-12b": 11_846_072_320,
    "pythia-14m": 14_067_712,
    "pythia-160m": 162_322_944,
    "pythia-1b": 1_011_781_632,
    "pythia-2.8b": 2_775_208_960,
    "pythia-31m": 30_494_720,
    "pythia-410m": 405_334_016,
    "pythia-6.9b": 6_857_302_016,
    "pythia-70m": 70_426_624,
    "qwen1.5-0.5b": 463_987_712,
    "qwen1.5-1.8b": 1_836_828_672,
    "qwen1.5-14b": 14_167_290_880,
    "qwen1.5-4b": 3_950_369_280,
    "qwen1.5-7b": 7_721_324_544,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "qwen2-72b": 72_706_203_648,
    "qwen2-7b": 7_615_616_512,
    "qwen2-vl-2b": 2_208_985_600,
    "qwen2-vl-7b": 8_291_375_616,
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
    "qwen2.5-vl-3b": 3_754_622_976,
    "qwen2.5-vl-7b": 8_292_166_656,
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
    "qwen3-embedding-0.6b": 595_776_512,
    "qwq-32b": 32_763_876_352,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "sam-vit-base": 93_735_728,
    "sam-vit-huge": 641_090_864,
    "sam-vit-large": 312_343_088,
    "scibert_scivocab_cased": 109_938_432,
    "scibert_scivocab_uncased": 109_918_464,
    "segformer-b0-finetuned-ade-512-512": 3_752_694,
    "segformer-b1-finetuned-ade-512-512": 13_715_798,
    "segformer-b2-finetuned-ade-512-512": 27_461_974,
    "segformer-b3-finetuned-ade-512-512": 47_337_814,
    "segformer-b4-finetuned-ade-512-512": 64_108_374,
    "sheared-llama-1.3b": 1_345_423_360,
    "siglip-base-patch16-224": 203_155_970,
    "siglip-so400m-patch14-384": 877_960_498,
    "siglip2-base-patch16-224": 375_187_970,
    "siglip2-base-patch16-256": 375_234_050,
    "siglip2-so400m-patch14-384": 1_136_008_498,
    "stablelm-2-1_6b": 1_644_515_328,
    "starcoder": 15_517_456_384,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "swin-base-patch4-window7-224": 87_768_224,
    "swin-large-patch4-window7-224": 196_532_476,
    "swin-small-patch4-window7-224": 49_606_258,
    "swin-tiny-patch4-window7-224": 28_288_354,
    "t5-11b": 11_307_321_344,
    "t5-3b": 2_851_598_336,
    "t5-v1_1-base": 247_577_856,
    "t5-v1_1-large": 783_150_080,
    "t5-v1_1-small": 76_961_152,
    "t5-v1_1-xl": 2_849_757_184,
    "t5-v1_1-xxl": 11_135_332_352,
    "tinystories-33m": 68_514_048,
    "vicuna-13b-v1.5": 13_015_864_320,
    "vicuna-7b-v1.5": 6_738_415_616,
    "vit-base-patch16-384": 86_859_496,
    "vit-base-patch32-224-in21k": 88_045_824,
    "vit-base-patch32-384": 88_297_192,
    "vit-huge-patch14-224-in21k": 632_404_480,
    "vit-large-patch16-224": 304_326_632,
    "vit-large-patch16-224-in21k": 304_351_232,
    "vit-large-patch16-384": 304_715_752,
    "wav2vec2-base": 94_371_712,
    "wav2vec2-base-960h": 94_371_712,
    "wav2vec2-large": 315_428_992,
    "wav2vec2-large-xlsr-53": 315_438_720,
    "wav2vec2-xls-r-1b": 962_497_408,
    "wavlm-base": 94_381_936,
    "wavlm-large": 315_456_704,
    "whisper-base": 72_593_920,
    "whisper-base.en": 72_593_408,
    "whisper-large-v2": 1_543_304_960,
    "whisper-large-v3": 1_543_490_560,
    "whisper-large-v3-turbo": 808_878_080,
    "whisper-medium": 763_857_920,
    "whisper-medium.en": 763_856_896,
    "whisper-small.en": 241_734_144,
    "whisper-tiny.en": 37_760_256,
    "xlm-roberta-base": 278_043_648,
    "xlm-roberta-large": 559_890_432,
    "xlnet-base-cased": 116_718_336,
    "xlnet-large-cased": 360_268_800,
    "yi-1.5-9b": 8_829_407_232,
    "yi-34b": 34_388_917_248,
    "yi-6b": 6_061_035_520,
    "zephyr-7b-beta": 7_241_732_096,
}
"""The same of models that take longer to make; of Marian's, and of SegFormer's encoders alone, what is computed."""
HEADS = {
    **dict.fromkeys(
        (*("T5Config", "MT5Config", "PegasusConfig", "MBartConfig", "MarianConfig", "M2M100Config", "LEDConfig"),),
        "AutoModelForSeq2SeqLM",
    ),
    "WhisperConfig": "AutoModelForSpeechSeq2Seq",
    "SamConfig": "AutoModelForMaskGeneration",
    **dict.fromkeys(
        (
            *("GPT2Config", "GPTNeoConfig", "GPTNeoXConfig", "GPTJConfig", "GemmaConfig", "LlamaConfig"),
            *("MistralConfig", "MixtralConfig", "OPTConfig", "PhiConfig", "Phi3Config", "Qwen2Config", "Qwen3Config"),
            *("Gemma2Config", "Gemma3TextConfig", "GptOssConfig", "Qwen2MoeConfig", "Qwen3MoeConfig"),
            *("DeepseekV2Config", "DeepseekV3Config", "FalconConfig", "BloomConfig", "MptConfig", "StableLmConfig"),
            *("OlmoConfig", "Olmo2Config", "GPTBigCodeConfig", "Starcoder2Config", "CodeGenConfig", "MambaConfig"),
            "OpenAIGPTConfig",
        ),
        "AutoModelForCausalLM",
    ),
    **dict.fromkeys(
        (
            *("Gemma3Config", "Llama4Config", "Mistral3Config", "LlavaConfig", "Qwen2VLConfig", "Qwen2_5_VLConfig"),
            *("PaliGemmaConfig", "Blip2Config"),
        ),
        "AutoModelForImageTextToText",
    ),
}
LABELS = {150: "AutoModelForSemanticSegmentation", 1000: "AutoModelForImageClassification"}


def num_parameters(name):
    transformers = pytest.importorskip("transformers")
    torchvision_schemas.install()
    kind, arguments = KNOWN_CONFIGS[name]
    head = LABELS.get(arguments.get("num_labels")) or HEADS.get(kind, "AutoModel")
    with torch.device("meta"):
        model = getattr(transformers, head).from_config(getattr(transformers, kind)(**arguments))
        untie(model, arguments)
    return sum(p.numel() for p in model.parameters())


@needs("transformers")
def test_known_models_have_as_many_parameters_as_their_pages_say():
    torchvision_schemas.install()
    transformers = pytest.importorskip("transformers")
    assert {*PARAMETERS, *OTHER_PARAMETERS} == set(KNOWN_CONFIGS) - set(SAME)
    assert set(ARCHITECTURES.values()) <= {*dir(transformers)}  # without an import of each
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
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b"),
        ("sentence-transformers/all-mpnet-base-v2", "mpnet-base"),
        ("me/mine", None),
    ],
)
def test_a_tuned_model_has_the_sizes_of_its_base(name, known):
    assert known_config(name) == (known and KNOWN_CONFIGS[known])


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("deepset/roberta-base-squad2", "roberta-base"),
        ("google/vit-base-patch16-224-in21k-mine", "vit-base-patch16-224-in21k"),
        ("EleutherAI/pythia-70m-deduped", "pythia-70m"),
        ("me/bloom-of-mine", ""),
        ("me/gpt2xl", ""),
        ("me/gpt2-awq", ""),
        ("deepseek-ai/DeepSeek-V3.2", ""),
    ],
)
def test_a_name_that_begins_with_a_known_one_is_like_it_and_it_is_said(name, known):
    assert known_config(name) == (KNOWN_CONFIGS[known] if known else None)
    assert known_config(name, exact=True) is None
    assert likeness(name) == (f"that of {known} is taken, with which its name begins" if known else "")


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
    wants = f"{tmp_path}/p/train.py:6 wants the model 'nobody/knows-this', which is not on this machine: "
    assert f"{wants}download it once (hf download nobody/knows-this config.json), or give the path" in ran.error


@needs("transformers")
def test_what_was_downloaded_from_the_hub_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    kept, revision = tmp_path / "home/hub/models--me--tiny", "0" * 40
    (kept / "snapshots" / revision).mkdir(parents=True)
    (kept / "snapshots" / revision / "config.json").write_text('{"model_type": "gpt2", "n_layer": 2, "n_embd": 24}')
    (kept / "refs").mkdir()
    (kept / "refs/main").write_text(revision)
    text = """\
        from transformers import AutoConfig
        print(AutoConfig.from_pretrained("me/tiny").n_embd)
        """
    assert run(tmp_path / "p", text).stdout == "24\n"


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
    assert (
        "wants the config of 'me/open', which is not on this machine: download it once (hf download me/open"
        in ran.error
    )


PARTS = {
    ("ddpm-celebahq-256", ""): 113_673_219,
    ("ddpm-cifar10-32", "unet"): 35_746_307,
    ("flux.1-dev", "transformer"): 11_901_408_320,
    ("flux.1-schnell", "transformer"): 11_891_178_560,
    ("flux.1-schnell", "vae"): 83_819_683,
    ("sd-vae-ft-mse", ""): 83_653_863,
    ("stable-diffusion-2-1", "text_encoder"): 340_387_840,
    ("stable-diffusion-2-1", "unet"): 865_910_724,
    ("stable-diffusion-3-medium-diffusers", "transformer"): 2_028_328_000,
    ("stable-diffusion-3.5-large", "text_encoder_3"): 4_762_310_656,
    ("stable-diffusion-3.5-large", "transformer"): 8_056_627_520,
    ("stable-diffusion-3.5-medium", "transformer"): 2_243_171_520,
    ("stable-diffusion-v1-4", "unet"): 859_520_964,
    ("stable-diffusion-xl-base-1.0", "text_encoder_2"): 694_659_840,
    ("stable-diffusion-xl-base-1.0", "unet"): 2_567_463_684,
    ("sdxl-turbo", "vae"): 83_653_863,
}
"""Numbers on the pages of the pipelines; SD3.5's without its table of positions, which is no parameter."""


@needs("diffusers", "transformers")
@pytest.mark.slow
def test_parts_of_known_pipelines_have_as_many_parameters_as_their_pages_say():
    diffusers, transformers = pytest.importorskip("diffusers"), pytest.importorskip("transformers")
    torchvision_schemas.install()

    def number(name, folder):
        kind, values = known_config(name, folder)
        with torch.device("meta"):
            if not kind.endswith("Config"):
                return getattr(diffusers, kind)(**values)
            made = known_config(name, "model_index")[1][folder][1]
            return getattr(transformers, made)(getattr(transformers, kind)(**values))

    assert {key: sum(each.numel() for each in number(*key).parameters()) for key in PARTS} == PARTS


@needs("transformers", "torchvision", "PIL")
def test_a_conversation_with_an_image_has_the_tokens_that_its_model_looks_for(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from PIL import Image
        from transformers import AutoProcessor
        image = Image.new("RGB", (336, 336))
        content = [{"type": "image"}, {"type": "text", "text": "What is this?"}]
        for name in ("Qwen/Qwen2.5-VL-3B-Instruct", "llava-hf/llava-1.5-7b-hf"):
            processor = AutoProcessor.from_pretrained(name)
            text = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
            ids = processor(text=[text], images=[image], padding=True, return_tensors="pt").input_ids
            print(*(int((ids == number).sum()) for number in (151652, 151655, 32000)))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    # 24 x 24 patches of 14 pixels each: Qwen merges four of them, and sets a token before
    assert ran.stdout.splitlines() == ["1 144 0", "0 0 576"]


@needs("transformers")
def test_a_small_vocabulary_has_a_token_for_each_letter(tmp_path):
    ran = run(
        tmp_path / "p",
        """\
        from transformers import AutoTokenizer
        tokenizer = AutoTokenizer.from_pretrained("facebook/esm2_t6_8M_UR50D")
        print(len(tokenizer("MKTAYIAKQR").input_ids), len(tokenizer("M K T A").input_ids), len(tokenizer))
        """,
        fake=True,
    )
    assert ran.error is None, ran.stderr
    assert ran.stdout == "12 6 33\n"


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
    assert known_config("facebook/detr-resnet-50", exact=True) is None
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
