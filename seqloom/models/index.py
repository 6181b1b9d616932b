"""The names of all models and presets, how many parameters each has, and what each model is and learns: read without torch.

Written by `python tools/make_index.py`; a test keeps it true. The count is of a model with what it is pre-trained by, in its
published vocabulary or one of 8,192; 0: it depends on what is counted.
"""

from pathlib import Path
from typing import Any

from seqloom.config import unknown_name
from seqloom.errors import UsageError

PARAMETERS: dict[str, dict[str, int]] = {
    "ngram": {"tiny": 0, "small": 0},
    "nnlm": {"tiny": 938048, "small": 7492042, "bengio-brown": 5762483},
    "word2vec": {"tiny": 819200, "small": 1638400, "google-news": 1800000000},
    "glove": {"tiny": 835584, "small": 1654784, "6b": 240800000},
    "fasttext": {"tiny": 969200, "small": 21638400, "wiki": 2100000000},
    "rnn": {"tiny": 689472, "small": 7025592},
    "irnn": {"tiny": 689472, "small": 7025592},
    "jordan": {"tiny": 813152, "small": 6178642},
    "gru": {"tiny": 741312, "small": 10410792},
    "lstm": {"tiny": 767232, "small": 12103392, "zaremba-medium": 13280400, "zaremba-large": 51034000},
    "awd-lstm": {"tiny": 913792, "small": 23496592, "ptb": 24221600, "wt2": 33556078},
    "big-lstm": {"tiny": 771936, "small": 8060736, "jozefowicz-2016": 1036223935},
    "elmo": {"tiny": 958816, "small": 12795712, "original": 500717007},
    "gpt": {"tiny": 899120, "small": 13890816, "base": 116534784},
    "gpt2": {"tiny": 899280, "small": 124439808, "medium": 354823168, "large": 774030080, "xl": 1557611200},
    "transformer-xl": {
        "tiny": 907280,
        "small": 14668800,
        "standard": 151107127,
        "large": 519965145,
        "enwik8": 41055232,
    },
    "xlnet": {"tiny": 916592, "small": 14688128, "base": 116750336, "large": 360300800},
    "bert": {
        "tiny": 920914,
        "small": 14197762,
        "turc-tiny": 4433468,
        "turc-mini": 11267900,
        "turc-small": 29058876,
        "turc-medium": 41668412,
        "base": 110106428,
        "multilingual": 178566653,
        "large": 336226108,
    },
    "roberta": {"tiny": 914112, "small": 14048384, "base": 124695129, "large": 355408985},
    "xlm": {"tiny": 915312, "small": 14054144, "base": 250123032, "en": 671319489},
    "xlm-r": {"tiny": 914112, "small": 14048384, "base": 278292882, "large": 560139410},
    "albert": {
        "tiny": 772674,
        "small": 4638082,
        "base": 11813810,
        "large": 17847474,
        "xlarge": 59021490,
        "xxlarge": 223158450,
    },
    "electra": {"tiny": 800017, "small": 14196475, "base": 115150843, "large": 354657339},
    "ernie": {"tiny": 920752, "small": 14196992, "base": 100475472},
    "bilstm-cnn": {"tiny": 617728, "small": 1096960, "ma-hovy-2016": 1361920},
    "text-cnn": {"tiny": 542816, "small": 1202476, "kim-2014": 2817900},
    "bytenet": {"tiny": 778800, "small": 8501376, "enwik8": 56496128},
    "seq2seq": {"tiny": 870912, "small": 12607488, "sutskever-2014": 544224000, "cho-2014": 14547200},
    "bahdanau": {"tiny": 846816, "small": 6176256, "bahdanau-2015": 80451000},
    "luong": {"tiny": 915712, "small": 8916992, "luong-2015": 221114000},
    "gnmt": {"tiny": 839232, "small": 8284416, "gnmt": 248160512},
    "bytenet-mt": {"tiny": 608384, "small": 11253504, "wmt": 275022400},
    "convs2s": {
        "tiny": 748288,
        "small": 5648384,
        "wmt-en-ro": 96104448,
        "wmt-en-de": 140177408,
        "wmt-en-fr": 183207936,
    },
    "transformer": {"tiny": 757760, "small": 6050816, "base": 63082496, "big": 214245376},
    "bart": {"tiny": 774400, "small": 15767040, "base": 139417344, "large": 406287360},
}

LINEAGE: dict[str, dict[str, Any]] = {
    "ngram": {
        "paper": "Chen & Goodman, An empirical study of smoothing techniques (after Kneser & Ney, 1995)",
        "year": 1998,
        "kind": "counts",
        "causal": True,
        "objectives": ["counts"],
        "tasks": [],
    },
    "nnlm": {
        "paper": "Bengio et al., A neural probabilistic language model",
        "year": 2003,
        "kind": "feed-forward",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "word2vec": {
        "paper": "Mikolov et al., Efficient estimation of word representations in vector space",
        "year": 2013,
        "kind": "static",
        "causal": True,
        "objectives": ["skip-gram", "cbow"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "glove": {
        "paper": "Pennington et al., GloVe: Global vectors for word representation",
        "year": 2014,
        "kind": "static",
        "causal": True,
        "objectives": ["glove"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "fasttext": {
        "paper": "Bojanowski et al., Enriching word vectors with subword information",
        "year": 2017,
        "kind": "static",
        "causal": True,
        "objectives": ["skip-gram", "cbow"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "rnn": {
        "paper": "Mikolov et al., Recurrent neural network based language model (after Elman, 1990)",
        "year": 2010,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "irnn": {
        "paper": "Le et al., A simple way to initialize recurrent networks of rectified linear units",
        "year": 2015,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "jordan": {
        "paper": "Jordan, Serial order: a parallel distributed processing approach",
        "year": 1986,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "gru": {
        "paper": "Cho et al., Learning phrase representations using RNN encoder–decoder",
        "year": 2014,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "lstm": {
        "paper": "Zaremba et al., Recurrent neural network regularization (after Hochreiter & Schmidhuber, 1997)",
        "year": 2014,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "awd-lstm": {
        "paper": "Merity et al., Regularizing and optimizing LSTM language models",
        "year": 2017,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "big-lstm": {
        "paper": "Józefowicz et al., Exploring the limits of language modeling",
        "year": 2016,
        "kind": "recurrent",
        "causal": True,
        "objectives": ["next-token", "scheduled-sampling", "regularized"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "elmo": {
        "paper": "Peters et al., Deep contextualized word representations",
        "year": 2018,
        "kind": "two LSTMs, one each way",
        "causal": False,
        "objectives": ["bidirectional"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "gpt": {
        "paper": "Radford et al., Improving language understanding by generative pre-training",
        "year": 2018,
        "kind": "transformer",
        "causal": True,
        "objectives": ["next-token"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "gpt2": {
        "paper": "Radford et al., Language models are unsupervised multitask learners",
        "year": 2019,
        "kind": "transformer",
        "causal": True,
        "objectives": ["next-token"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "transformer-xl": {
        "paper": "Dai et al., Transformer-XL: attentive language models beyond a fixed-length context",
        "year": 2019,
        "kind": "transformer",
        "causal": True,
        "objectives": ["next-token"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "xlnet": {
        "paper": "Yang et al., XLNet: Generalized autoregressive pretraining",
        "year": 2019,
        "kind": "transformer",
        "causal": False,
        "objectives": ["permuted"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "bert": {
        "paper": "Devlin et al., BERT: Pre-training of deep bidirectional transformers",
        "year": 2018,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "roberta": {
        "paper": "Liu et al., RoBERTa: A robustly optimized BERT pretraining approach",
        "year": 2019,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "xlm": {
        "paper": "Lample & Conneau, Cross-lingual language model pretraining",
        "year": 2019,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translation-lm", "entity-lm"],
    },
    "xlm-r": {
        "paper": "Conneau et al., Unsupervised cross-lingual representation learning at scale",
        "year": 2020,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "albert": {
        "paper": "Lan et al., ALBERT: A lite BERT for self-supervised learning",
        "year": 2020,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "electra": {
        "paper": "Clark et al., ELECTRA: Pre-training text encoders as discriminators",
        "year": 2020,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order", "replaced-token"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "ernie": {
        "paper": "Sun et al., ERNIE: Enhanced representation through knowledge integration",
        "year": 2019,
        "kind": "transformer",
        "causal": False,
        "objectives": ["masked", "next-sentence", "sentence-order"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "entity-lm"],
    },
    "bilstm-cnn": {
        "paper": "Ma & Hovy, End-to-end sequence labeling via bi-directional LSTM-CNNs-CRF",
        "year": 2016,
        "kind": "bidirectional LSTM",
        "causal": False,
        "objectives": [],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "text-cnn": {
        "paper": "Kim, Convolutional neural networks for sentence classification",
        "year": 2014,
        "kind": "convolutional",
        "causal": False,
        "objectives": [],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "bytenet": {
        "paper": "Kalchbrenner et al., Neural machine translation in linear time",
        "year": 2016,
        "kind": "convolutional",
        "causal": True,
        "objectives": ["next-token"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span"],
    },
    "seq2seq": {
        "paper": "Sutskever et al., Sequence to sequence learning with neural networks",
        "year": 2014,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "bahdanau": {
        "paper": "Bahdanau et al., Neural machine translation by jointly learning to align and translate",
        "year": 2015,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "luong": {
        "paper": "Luong et al., Effective approaches to attention-based neural machine translation",
        "year": 2015,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "gnmt": {
        "paper": "Wu et al., Google's neural machine translation system",
        "year": 2016,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "bytenet-mt": {
        "paper": "Kalchbrenner et al., Neural machine translation in linear time",
        "year": 2016,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "convs2s": {
        "paper": "Gehring et al., Convolutional sequence to sequence learning",
        "year": 2017,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "transformer": {
        "paper": "Vaswani et al., Attention is all you need",
        "year": 2017,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
    "bart": {
        "paper": "Lewis et al., BART: Denoising sequence-to-sequence pre-training",
        "year": 2019,
        "kind": "encoder–decoder",
        "causal": True,
        "objectives": ["denoising"],
        "tasks": ["classify", "regress", "pair", "choose", "tag", "span", "translate"],
    },
}


def recipe_names() -> list[str]:
    return [f"{model}-{preset}" for model, presets in PARAMETERS.items() for preset in presets]


def split_name(name: str) -> tuple[str, str]:
    """The model and the preset of a recipe's name."""
    model = max((model for model in PARAMETERS if name.startswith(f"{model}-")), key=len, default=None)
    if model is None:
        raise UsageError(f"{name} is no name of a built-in recipe")
    return model, name.removeprefix(f"{model}-")


def check_recipe_name(name: str) -> None:
    """Raises UsageError for a name that is neither a built-in recipe nor a file."""
    if name.endswith(".toml") and not Path(name).exists():
        raise UsageError(f"{name}: no such recipe file: 'seqloom recipes gpt2-tiny --toml > {name}' makes one to edit")
    if not name.endswith(".toml") and not Path(name).is_file() and name not in recipe_names():
        raise UsageError(unknown_name("recipe", name, name, recipe_names()) + "; a TOML file is taken too")
