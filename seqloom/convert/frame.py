"""The special tokens, segment ids and padding that our models read, written for other projects
as the post-processor of tokenizer.json and the settings of tokenizer_config.json.

Here a post-processor is never used: `Frame` says what a model reads. So a tokenizer that was learnt here has none, which lets
models of every kind share one prepared text, and the one that belongs to a model is written when it is exported.
"""

import json
from typing import Any

from seqloom.batch import APART
from seqloom.batches.labelled import Frame, add_special_tokens
from seqloom.batches.pairs import PairFrame
from seqloom.tokens.tokenizer import Tokenizer

SPECIAL = {
    "unk_token": ("[UNK]", "<unk>"),
    "cls_token": ("[CLS]", "<cls>"),
    "sep_token": ("[SEP]", "<sep>"),
    "pad_token": ("[PAD]", "<pad>"),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "<|endoftext|>"),
    "eos_token": ("</s>", "<eos>", "<|endoftext|>"),
}
# offsets of tokens of a byte-level vocabulary without the blank before them, as RoBERTa's have them
TRIMMED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
PADDING = 1  # behind this number a RoBERTa elsewhere counts its positions, unless its config.json says otherwise


def frame_of(learner: Any, tokenizer: Tokenizer) -> Frame:
    """Of a model that can be exported. A second text is a further document to a model that reads from left to right, and a
    further line to a translator."""
    backbone, end = learner.backbone, (tokenizer.end_id,)
    if hasattr(backbone, "decoder"):
        before, between, after = backbone.surround(tokenizer.first_id, tokenizer.separator_id, tokenizer.end_id)
        return Frame(before, between, after, False, backbone.max_len)
    if backbone.causal:
        return Frame(end, end, (), False, backbone.max_len)
    return Frame.of(backbone, tokenizer, backbone.max_len)


def with_frame(tokenizer: Tokenizer, frame: Frame) -> dict[str, Any]:
    """tokenizer.json with a post-processor that does what the frame says: its own, where it has such a one."""
    data: dict[str, Any] = json.loads(tokenizer.to_json())
    before = data.get("post_processor")
    if before is not None and matches_frame(data, frame):
        return data
    kept = [before] if before is not None and before.get("type") == "ByteLevel" else []
    if before is None and tokenizer.in_bytes and tokenizer.kind != "byte":
        kept = [TRIMMED]
    return data | {"post_processor": {"type": "Sequence", "processors": [*kept, template(tokenizer, frame)]}}


def without_frame(data: dict[str, Any]) -> dict[str, Any]:
    """As it was before `with_frame`: the same tokenizer comes back from an exported folder."""
    processor = data.get("post_processor")
    parts = processor.get("processors") if isinstance(processor, dict) and processor.get("type") == "Sequence" else None
    if not isinstance(parts, list) or not parts or not isinstance(parts[-1], dict):
        return data
    if parts[-1].get("type") != "TemplateProcessing" or len(parts) > 2:
        return data
    return data | {"post_processor": None if parts[:-1] in ([], [TRIMMED]) else parts[0]}


def template(tokenizer: Tokenizer, frame: Frame) -> dict[str, Any]:
    names = {number: tokenizer.token(number) for number in (*frame.before, *frame.between, *frame.after)}

    def special(numbers: tuple[int, ...], segment: int) -> list[dict[str, Any]]:
        return [{"SpecialToken": {"id": names[number], "type_id": segment}} for number in numbers]

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    second = int(frame.segments)

    def last(segment: int) -> list[dict[str, Any]]:
        """The tokens after the last text, of this segment; the last of all may be apart."""
        if not frame.apart:
            return special(frame.after, segment)
        return [*special(frame.after[:-1], segment), *special(frame.after[-1:], APART)]

    return {
        "type": "TemplateProcessing",
        "single": [*special(frame.before, 0), text("A", 0), *last(0)],
        "pair": [
            *special(frame.before, 0),
            text("A", 0),
            *special(frame.between, 0),
            text("B", second),
            *last(second),
        ],
        "special_tokens": {name: {"id": name, "ids": [number], "tokens": [name]} for number, name in names.items()},
    }


def matches_frame(data: dict[str, Any], frame: Frame) -> bool:
    """Whether the post-processor of a tokenizer.json puts the special tokens and segment ids where the frame has them."""
    from tokenizers import Tokenizer as Rust

    rust: Any = Rust.from_str(json.dumps(data))
    try:
        plain = rust.encode("a", add_special_tokens=False).ids
    except Exception:  # a vocabulary without it, and without a token for unknown words
        return False
    for texts in (["a"], ["a", "a"]):
        found = rust.encode(*texts)
        ids, segments, _, _ = add_special_tokens([plain] * len(texts), frame)
        if found.ids != ids.tolist() or found.type_ids != ([0] * len(ids) if segments is None else segments.tolist()):
            return False
    return True


def names_of(tokenizer: Tokenizer) -> dict[str, str]:
    """What others call the special tokens of a vocabulary."""
    there = tokenizer.special_ids
    found = {role: next((name for name in names if name in there), None) for role, names in SPECIAL.items()}
    if tokenizer.unk_id is not None:
        found["unk_token"] = tokenizer.token(tokenizer.unk_id)
    return {role: name for role, name in found.items() if name is not None}


def roles_of(tokenizer: Tokenizer, learner: Any, padding: int | None) -> dict[str, str]:
    """What others call the special tokens that a model reads. A vocabulary without padding uses the end of documents: the
    attention mask hides it."""
    roles = names_of(tokenizer)
    if padding is not None:
        roles["pad_token"] = tokenizer.token(padding)
    end, backbone = tokenizer.token(tokenizer.end_id), learner.backbone
    if hasattr(backbone, "decoder"):
        frame = PairFrame.of(backbone, tokenizer, learner.start_id)
        roles = {"pad_token": tokenizer.token(frame.start)} | roles | {"eos_token": tokenizer.token(frame.end)}
        return roles | ({"bos_token": tokenizer.token(frame.before[0])} if frame.before else {})
    roles = {"pad_token": end} | roles
    if backbone.causal:
        return roles | {"bos_token": end, "eos_token": end}
    first, separator = tokenizer.token(tokenizer.first_id), tokenizer.token(tokenizer.separator_id)
    return roles | {"cls_token": first, "sep_token": separator}


def tokenizer_settings(tokenizer: Tokenizer, frame: Frame, roles: dict[str, str]) -> dict[str, Any]:
    """tokenizer_config.json. Padding is on the right: a model's forward pass elsewhere counts positions from the left, whatever
    the mask says. Where distances count and the last token stands for the whole text, it is on the left."""
    inputs = ["input_ids", *(["token_type_ids"] if frame.segments else []), "attention_mask"]
    settings: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        **({} if frame.limit is None else {"model_max_length": frame.limit}),
        "model_input_names": inputs,
        "padding_side": "left" if frame.apart else "right",
        **roles,
    }
    if "mask_token" in roles and tokenizer.kind in ("bpe", "unigram"):
        # such tokens have the blank before a word in them, and so has the one that is to be found
        fixed = {"rstrip": False, "single_word": False, "normalized": False, "special": True}
        mask = {"__type": "AddedToken", "content": roles["mask_token"], "lstrip": True, **fixed}
        settings["mask_token"] = mask
        settings["added_tokens_decoder"] = {
            str(tokenizer.id(roles["mask_token"])): {key: value for key, value in mask.items() if key != "__type"}
        }
    return settings
