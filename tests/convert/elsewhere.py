"""What others make of an exported folder: through AutoTokenizer and the Auto classes alone, in padded batches."""

from typing import Any

import torch
import transformers as hf


def opened(folder, auto) -> tuple[Any, Any]:
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"] and not info["mismatched_keys"], info
    return hf.AutoTokenizer.from_pretrained(folder), model.eval()


def padded(tokenizer, *texts, **options) -> Any:
    return tokenizer(*texts, padding=True, truncation=True, return_tensors="pt", **options)


@torch.no_grad()
def next_token(folder, texts) -> list[list[float]]:
    """log p of every token of each text and of its end, from what stands before."""
    tokenizer, model = opened(folder, hf.AutoModelForCausalLM)
    given = padded(tokenizer, texts)
    log_probs = model(**given).logits.double().log_softmax(-1)
    found = []
    for i, mask in enumerate(given["attention_mask"]):
        ids = [*given["input_ids"][i][: int(mask.sum())].tolist()[1:], tokenizer.eos_token_id]
        found.append([log_probs[i, place, token].item() for place, token in enumerate(ids)])
    return found


@torch.no_grad()
def hidden_token(folder, texts) -> list[list[float]]:
    """log p of every token of each text, from all others (one copy of the text a token)."""
    tokenizer, model = opened(folder, hf.AutoModelForMaskedLM)
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        special = given.pop("special_tokens_mask")[0]
        places = [i for i, flag in enumerate(special.tolist()) if not flag]
        many = {name: row.repeat(len(places), 1) for name, row in given.items()}
        many["input_ids"][range(len(places)), places] = tokenizer.mask_token_id
        log_probs = model(**many).logits.double().log_softmax(-1)
        found.append([log_probs[k, i, given["input_ids"][0, i]].item() for k, i in enumerate(places)])
    return found


@torch.no_grad()
def replaced(folder, texts) -> list[list[float]]:
    """log p that each token of each text is the original one."""
    tokenizer, model = opened(folder, hf.AutoModelForPreTraining)
    given = padded(tokenizer, texts, return_special_tokens_mask=True)
    special = given.pop("special_tokens_mask").bool() | ~given["attention_mask"].bool()
    log_probs = torch.nn.functional.logsigmoid(-model(**given).logits.double())
    return [row[~mask].tolist() for row, mask in zip(log_probs, special, strict=True)]


@torch.no_grad()
def gaps(folder, texts) -> list[list[torch.Tensor]]:
    """For every gap (`{}`) of each text the probabilities of the vocabulary."""
    tokenizer, model = opened(folder, hf.AutoModelForMaskedLM)
    given = padded(tokenizer, [text.format(*[tokenizer.mask_token] * text.count("{}")) for text in texts])
    likely = model(**given).logits.double().softmax(-1)
    return [list(row[ids == tokenizer.mask_token_id]) for row, ids in zip(likely, given["input_ids"], strict=True)]


@torch.no_grad()
def classes(folder, rows) -> list[list[float]]:
    """Logits of texts, or of pairs of them."""
    tokenizer, model = opened(folder, hf.AutoModelForSequenceClassification)
    texts = [[row["text"] for row in rows]] + ([[row["text2"] for row in rows]] if "text2" in rows[0] else [])
    return model(**padded(tokenizer, *texts)).logits.double().tolist()


@torch.no_grad()
def choices(folder, rows) -> list[list[float]]:
    tokenizer, model = opened(folder, hf.AutoModelForMultipleChoice)
    found = []
    for row in rows:
        given = padded(tokenizer, [row["text"]] * len(row["choices"]), list(row["choices"]))
        found.append(
            model(**{name: part[None] for name, part in given.items()}).logits[0].double().softmax(-1).tolist()
        )
    return found


@torch.no_grad()
def tags(folder, sentences) -> list[list[tuple[str, float]]]:
    """The tag of each word at its first token, and its probability."""
    tokenizer, model = opened(folder, hf.AutoModelForTokenClassification)
    given = padded(tokenizer, [" ".join(words) for words in sentences], return_offsets_mapping=True)
    spots = given.pop("offset_mapping").tolist()
    likely = model(**given).logits.double().softmax(-1)
    found = []
    for words, stretches, shares in zip(sentences, spots, likely, strict=True):
        begin, told = 0, []
        for word in words:
            end = begin + len(word)
            first = next(i for i, (a, b) in enumerate(stretches) if a < end and b > begin)
            told.append((model.config.id2label[int(shares[first].argmax())], float(shares[first].max())))
            begin = end + 1
        found.append(told)
    return found


@torch.no_grad()
def answers(folder, rows, stride, longest) -> list[tuple[str, float, float]]:
    """The best stretch of each paragraph in overlapping windows, its score, and that of no answer: sums of log-probabilities
    among the paragraph and the first token."""
    tokenizer, model = opened(folder, hf.AutoModelForQuestionAnswering)
    found = []
    for row in rows:
        question = len(tokenizer(row["question"], add_special_tokens=False)["input_ids"])
        around = len(tokenizer("", "")["input_ids"])
        room = tokenizer.model_max_length - question - around
        given = tokenizer(
            row["question"],
            row["context"],
            truncation="only_second",
            stride=max(room - stride, 0),
            padding=True,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            return_tensors="pt",
        )
        owners = [given.sequence_ids(i) for i in range(len(given["input_ids"]))]
        spots = given.pop("offset_mapping").tolist()
        given.pop("overflow_to_sample_mapping")
        told = model(**given)
        best, nothing = (-float("inf"), 0, 0), float("inf")
        for window, owner in enumerate(owners):
            may = torch.tensor([i == 0 or each == 1 for i, each in enumerate(owner)])
            first, last = (
                each[window].double().masked_fill(~may, -float("inf")).log_softmax(-1)
                for each in (told.start_logits, told.end_logits)
            )
            nothing = min(nothing, float(first[0] + last[0]))
            inside = [i for i, each in enumerate(owner) if each == 1]
            for i in inside:
                for j in range(i, min(i + longest, inside[-1] + 1)):
                    begin, end = spots[window][i][0], spots[window][j][1]
                    if row["context"][begin:end].strip():
                        best = max(best, (float(first[i] + last[j]), begin, end))
        found.append((row["context"][best[1] : best[2]].strip(), best[0], nothing))
    return found


@torch.no_grad()
def written(folder, prompts, new) -> list[list[int]]:
    """How each text goes on, greedily, side by side: such batches are padded on the left, as `generate` asks for."""
    tokenizer, model = opened(folder, hf.AutoModelForCausalLM)
    given = padded(tokenizer, prompts, padding_side="left")
    made = model.generate(**given, max_new_tokens=new)[:, given["input_ids"].shape[1] :].tolist()
    return [row[: row.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in row else row for row in made]


@torch.no_grad()
def translated(folder, texts, new) -> list[list[int]]:
    tokenizer, model = opened(folder, hf.AutoModelForSeq2SeqLM)
    forced = model.generation_config.forced_bos_token_id is not None  # written first, and no part of the text
    made = model.generate(**padded(tokenizer, texts), max_new_tokens=new + forced)[:, 1 + forced :].tolist()
    return [row[: row.index(tokenizer.eos_token_id)] if tokenizer.eos_token_id in row else row for row in made]


@torch.no_grad()
def translation_losses(folder, sources, targets) -> list[float]:
    """-log p of each target and its end."""
    tokenizer, model = opened(folder, hf.AutoModelForSeq2SeqLM)
    found = []
    for source, target in zip(sources, targets, strict=True):
        labels = tokenizer(text_target=target, return_tensors="pt")["input_ids"]
        found.append(float(model(**padded(tokenizer, [source]), labels=labels).loss) * labels.shape[1])
    return found
