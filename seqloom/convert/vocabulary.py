"""Tokenizers of other projects: tokenizer.json is taken as it is; older files are put together to one.

Where special tokens go around a text is ours to say: a post-processor in the file is not used here, and kept for others where
it does what our model reads (`frame`).
"""

import json
from pathlib import Path
from typing import Any

from seqloom.convert.frame import without_frame
from seqloom.convert.hub import read_object
from seqloom.errors import ModelError
from seqloom.files import explained
from seqloom.tokens.tokenizer import SIZE_LIMIT, Tokenizer, panics_as_errors

WORDPIECE = ("bert", "electra", "ernie")  # whose vocab.txt is BERT's
BYTE_LEVEL = ("gpt2", "roberta")  # whose vocab.json and merges.txt are GPT-2's
SENTENCEPIECE = ("spiece.model", "sentencepiece.bpe.model", "source.spm", "tokenizer.model")
OTHERS = (*SENTENCEPIECE, "vocab.json", "vocab.txt")


def read_tokenizer(folder: Path, model_type: str, vocab_size: int) -> Tokenizer:
    path = folder / "tokenizer.json"
    if path.is_file():
        Tokenizer.load(path)  # refuses what is none
        data = without_frame(read_object(path, SIZE_LIMIT))
    elif model_type in WORDPIECE and (folder / "vocab.txt").is_file():
        data, path = word_pieces(folder), folder / "vocab.txt"
    elif model_type in BYTE_LEVEL and (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        data, path = byte_pairs(folder, model_type), folder / "vocab.json"
    else:
        found = [name for name in OTHERS if (folder / name).is_file()]
        why = f"{', '.join(found)} of a {model_type} cannot be read" if found else "has no other vocabulary file"
        needs = " (which needs sentencepiece and protobuf for this)" if set(found) & set(SENTENCEPIECE) else ""
        raise ModelError(
            f"{folder} has no tokenizer.json, and {why}: write one with AutoTokenizer.from_pretrained(FOLDER).save_pretrained"
            f"(FOLDER) of transformers{needs}"
        )
    return with_spare_tokens(data, vocab_size, path)


def with_spare_tokens(data: dict[str, Any], vocab_size: int, path: Path) -> Tokenizer:
    """With a name for every row of the table: some models have more rows than words."""
    tokenizer = Tokenizer(data, str(path))
    if tokenizer.vocab_size > vocab_size:
        raise ModelError(
            f"{path} has {tokenizer.vocab_size:,} entries, but the model has {vocab_size:,} rows according to config.json: "
            "they do not belong together"
        )
    if tokenizer.vocab_size == vocab_size:
        return tokenizer
    spare = [special(f"<unused-{number}>", number) for number in range(tokenizer.vocab_size, vocab_size)]
    wider = Tokenizer(data | {"added_tokens": [*(data.get("added_tokens") or ()), *spare]}, str(path))
    if wider.vocab_size != vocab_size:
        raise ModelError(f"{path}: its ids have gaps, so the model has rows without a token")
    return wider


def special(content: str, number: int, lstrip: bool = False) -> dict[str, Any]:
    plain = {"single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **plain}


def word_pieces(folder: Path) -> dict[str, Any]:
    from tokenizers import Tokenizer as Rust
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    path = folder / "vocab.txt"
    words = read_text(path).split("\n")
    words = words[:-1] if words and not words[-1] else words
    vocabulary = {word.rstrip("\r"): number for number, word in enumerate(words)}
    if len(vocabulary) != len(words) or "[UNK]" not in vocabulary:
        raise ModelError(f"{path} is not a list of word pieces: an entry occurs twice, or [UNK] is missing")
    settings = options(folder)
    rust = Rust(models.WordPiece(vocabulary, unk_token="[UNK]", max_input_chars_per_word=100))
    rust.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=settings.get("tokenize_chinese_chars") is not False,
        strip_accents=settings.get("strip_accents") if isinstance(settings.get("strip_accents"), bool) else None,
        lowercase=settings.get("do_lower_case") is not False,
    )
    rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rust.decoder = decoders.WordPiece(prefix="##")
    names = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    return with_specials(rust, [special(name, vocabulary[name]) for name in names if name in vocabulary])


def byte_pairs(folder: Path, model_type: str) -> dict[str, Any]:
    from tokenizers import Tokenizer as Rust
    from tokenizers import decoders, models, pre_tokenizers

    path = folder / "merges.txt"
    vocabulary = read_object(folder / "vocab.json", SIZE_LIMIT)
    merges: Any = [
        tuple(line.split(" ")) for line in read_text(path).split("\n") if line and not line.startswith("#version")
    ]
    wrong = [pair for pair in merges if len(pair) != 2]
    if wrong or not all(type(number) is int and number >= 0 for number in vocabulary.values()):
        raise ModelError(f"{folder / 'vocab.json'} and merges.txt are not a vocabulary of byte pairs")
    try:
        with panics_as_errors():
            rust = Rust(models.BPE(vocabulary, merges))
    except Exception as error:  # the library raises nothing more precise
        raise ModelError(f"{path} does not match vocab.json: {error}") from error
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=options(folder).get("add_prefix_space") is True)
    rust.decoder = decoders.ByteLevel()
    names = ("<|endoftext|>",) if model_type == "gpt2" else ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    found = [special(name, vocabulary[name], name == "<mask>") for name in names if name in vocabulary]
    return with_specials(rust, found)


def with_specials(rust: Any, entries: list[dict[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(rust.to_str())
    return data | {"added_tokens": sorted(entries, key=lambda entry: entry["id"])}


def options(folder: Path) -> dict[str, Any]:
    path = folder / "tokenizer_config.json"
    return read_object(path) if path.is_file() else {}


def read_text(path: Path) -> str:
    with explained(path):
        if path.stat().st_size > SIZE_LIMIT:
            raise ModelError(f"{path} is larger than {SIZE_LIMIT >> 20} MB, too large for a vocabulary")
        raw = path.read_bytes()
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not valid UTF-8 ({error.reason})") from error
