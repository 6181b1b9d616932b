"""Small random models of `transformers`, saved as folders with a tokenizer, and texts of several scripts."""

import contextlib
import os
from pathlib import Path
from typing import Any

import torch
import transformers as hf
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXTS = [
    "The keys to the cabinet are on the table.",
    "Żółw i jeż nie śpią: „dobranoc”, mówi kot.",
    "Мама мыла раму, а папа читал газету!",
    "今天天气很好，我们去公园散步。",
    "東京タワーはとても高いです。",
    "هذا كتاب جديد، أليس كذلك؟",
    "यह एक नई किताब है।",
    "Naïve café — façade, 100 % déjà-vu…",
    "한국어 문장도 있습니다.",
    "\tTabs,  two  blanks and 🙂 emoji\u200d!",
    "don't [stop] <here> ##now",
    "",
]
SIZE = 400
BODY = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}
DECODER = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
ROBERTA = BODY | {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "pad_token_id": 1}
MARIAN = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
    "activation_function": "swish",
    "scale_embedding": True,
}
BART = MARIAN | {"activation_function": "gelu", "scale_embedding": False}
XLNET = {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "mem_len": 7}
# name: config, class, sizes, tokenizer, Auto class
KINDS: dict[str, tuple[Any, Any, dict[str, Any], str, Any]] = {
    "bert": (hf.BertConfig, hf.BertForPreTraining, BODY, "wordpiece", hf.AutoModelForPreTraining),
    "bert-masked": (hf.BertConfig, hf.BertForMaskedLM, BODY, "wordpiece", hf.AutoModelForMaskedLM),
    "roberta": (hf.RobertaConfig, hf.RobertaForMaskedLM, ROBERTA, "bytes", hf.AutoModelForMaskedLM),
    "xlm-r": (hf.XLMRobertaConfig, hf.XLMRobertaForMaskedLM, ROBERTA, "unigram", hf.AutoModelForMaskedLM),
    "albert": (
        hf.AlbertConfig,
        hf.AlbertForPreTraining,
        BODY | {"embedding_size": 16},
        "wordpiece",
        hf.AutoModelForPreTraining,
    ),
    "albert-masked": (
        hf.AlbertConfig,
        hf.AlbertForMaskedLM,
        BODY | {"embedding_size": 32},
        "wordpiece",
        hf.AutoModelForMaskedLM,
    ),
    "electra": (
        hf.ElectraConfig,
        hf.ElectraForPreTraining,
        BODY | {"embedding_size": 16},
        "wordpiece",
        hf.AutoModelForPreTraining,
    ),
    "electra-generator": (
        hf.ElectraConfig,
        hf.ElectraForMaskedLM,
        BODY | {"embedding_size": 32},
        "wordpiece",
        hf.AutoModelForMaskedLM,
    ),
    "ernie": (hf.ErnieConfig, hf.ErnieForPreTraining, BODY | {"hidden_act": "relu"}, "wordpiece", None),
    "gpt": (hf.OpenAIGPTConfig, hf.OpenAIGPTLMHeadModel, DECODER, "bytes", hf.AutoModelForCausalLM),
    "gpt2": (hf.GPT2Config, hf.GPT2LMHeadModel, DECODER | {"n_inner": 48}, "bytes", hf.AutoModelForCausalLM),
    "marian": (hf.MarianConfig, hf.MarianMTModel, MARIAN, "unigram", hf.AutoModelForSeq2SeqLM),
    "xlnet": (hf.XLNetConfig, hf.XLNetLMHeadModel, XLNET, "unigram", hf.AutoModelForPreTraining),
    "bart": (hf.BartConfig, hf.BartForConditionalGeneration, BART, "bytes", hf.AutoModelForSeq2SeqLM),
}
SPECIALS = {
    "wordpiece": ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"],
    "bytes": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "unigram": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
}


def tokenizer(kind: str) -> Tokenizer:
    """As the public ones are built, learnt from the texts."""
    specials: Any = SPECIALS[kind]
    if kind == "wordpiece":
        made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece()
        trainer: Any = trainers.WordPieceTrainer(vocab_size=SIZE, special_tokens=specials, show_progress=False)
        made.train_from_iterator(TEXTS * 3, trainer)
        cls, sep = made.token_to_id("[CLS]"), made.token_to_id("[SEP]")
        made.post_processor = processors.BertProcessing(("[SEP]", sep), ("[CLS]", cls))
        return made
    if kind == "bytes":
        made = Tokenizer(models.BPE())
        made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=SIZE,
            special_tokens=specials,
            show_progress=False,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        )
        made.train_from_iterator(TEXTS * 3, trainer)
        made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
        return made
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.NFKC()
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=SIZE, special_tokens=specials, unk_token="<unk>", show_progress=False)
    made.train_from_iterator(TEXTS * 3, trainer)
    return made


def build(name: str, **changes: Any) -> tuple[Any, Tokenizer]:
    config, cls, sizes, kind, _ = KINDS[name]
    words = tokenizer(kind)
    extra: dict[str, Any] = {"vocab_size": words.get_vocab_size()}
    if name == "marian":
        extra |= {"eos_token_id": 2, "pad_token_id": 1, "decoder_start_token_id": 1, "forced_eos_token_id": 2}
    elif kind == "bytes" or name == "xlm-r":
        extra |= {"bos_token_id": 0, "eos_token_id": 2}
    torch.manual_seed(0)
    model = cls(config(**(sizes | extra | changes))).eval()
    strength = 0.3 if name in ("marian", "bart") else 0.05  # what is written must hang on what was read
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" not in key or name == "bart":
                parameter.add_(strength * torch.randn_like(parameter))
        for key, buffer in model.named_buffers():
            if key == "final_logits_bias":
                buffer.normal_()
    return model, words


def save(name: str, folder: Path, **changes: Any) -> Any:
    """A folder as `transformers` writes it, and the model in it."""
    model, words = build(name, **changes)
    with open(os.devnull, "w") as quiet, contextlib.redirect_stderr(quiet):
        model.save_pretrained(folder)
        fast(words, KINDS[name][3]).save_pretrained(folder)
    return model


def fast(words: Tokenizer, kind: str) -> Any:
    if kind == "wordpiece":
        roles = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
    else:
        roles = {"bos": "<s>", "pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
    return hf.PreTrainedTokenizerFast(
        tokenizer_object=words, **{f"{role}_token": token for role, token in roles.items()}
    )
