"""config.json of another project ⇄ the values of our Config, by the table of its family."""

from typing import Any

from seqloom.config import problems
from seqloom.convert.bart import BART
from seqloom.convert.decoders import GPT, GPT2
from seqloom.convert.encoders import ALBERT, BERT, ELECTRA, ERNIE, ROBERTA, XLM_R
from seqloom.convert.family import Family, with_padding
from seqloom.convert.marian import MARIAN
from seqloom.convert.xlnet import XLNET
from seqloom.errors import ModelError
from seqloom.models import model_class

# by model_type; closed: what a file says chooses from it, and can do no more
FAMILIES = {
    "bert": BERT,
    "roberta": ROBERTA,
    "xlm-roberta": XLM_R,
    "albert": ALBERT,
    "electra": ELECTRA,
    "ernie": ERNIE,
    "openai-gpt": GPT,
    "gpt2": GPT2,
    "marian": MARIAN,
    "bart": BART,
    "xlnet": XLNET,
}

NUMBERS = ("dropout", "attention_dropout", "norm_eps")  # all other values are sizes
LARGEST = 1 << 24  # of a size: no product of two overflows


def short_repr(value: Any) -> str:
    return repr(value) if len(repr(value)) < 60 else repr(value)[:57] + "…"


def family_of(config: dict[str, Any], where: str) -> Family:
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise ModelError(f"{where}: model_type {short_repr(kind)} cannot be imported; these can: {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    padding = (family.defaults | config).get("pad_token_id")
    if family.skip and (type(padding) is not int or not 0 <= padding < LARGEST):
        raise ModelError(
            f"{where}: pad_token_id = {short_repr(padding)} must be the id of a token: positions begin after it"
        )
    return with_padding(family, padding)


def read_values(family: Family, config: dict[str, Any], names: set[str], where: str) -> dict[str, Any]:
    """Of our Config. names: those of the tensors, with the prefix of the family."""
    full = family.defaults | config
    keys = [*family.values.values(), *family.needed, *([family.activation] if family.activation else [])]
    missing = [key for key in keys if key not in full]
    if missing:
        raise ModelError(f"{where} does not have {', '.join(missing)}")
    for key, value in family.needed.items():
        if full[key] != value:
            raise ModelError(
                f"{where}: {key} = {short_repr(full[key])}; the model {family.model} can only be built with {value!r}"
            )
    values: dict[str, Any] = {}
    for ours, theirs in family.values.items():
        value, usual = full[theirs], family.defaults.get(theirs, 0)
        if ours in NUMBERS:
            right, kind = type(value) in (int, float) and 0 <= value < 1, "a number from 0 to 1"
        else:
            right, kind = type(value) is int and 0 < value <= LARGEST, f"a whole number from 1 to {LARGEST:,}"
        if not right and (value is not None or usual is not None):
            raise ModelError(f"{where}: {theirs} = {short_repr(value)} must be {kind}")
        values[ours] = value
    if "max_len" in values:
        values["max_len"] -= family.skip
    if family.activation:
        name = full[family.activation]
        if not isinstance(name, str) or name not in family.activations:
            known = ", ".join(family.activations)
            raise ModelError(f"{where}: {family.activation} {str(name)[:60]!r} is none of {known}")
        values["activation"] = family.activations[name]
    values |= family.more(full, names)
    cls: Any = model_class(family.model)
    wrong = problems(cls.Config, values)
    if wrong:
        raise ModelError(f"{where}: " + "; ".join(wrong))
    return cls.Config(**values).model_dump()


def write_values(
    family: Family, model_type: str, values: dict[str, Any], names: set[str], where: str
) -> dict[str, Any]:
    """config.json for a model of ours, without what belongs to its tokenizer. names: those of its tensors, as theirs."""
    full = dict(values)
    if "max_len" in values:
        full["max_len"] += family.skip
    for name, usual in (("ffn_dim", 4 * values["dim"]), ("embedding_dim", values["dim"])):
        if name in full and full[name] is None:
            full[name] = usual
    if full["head_dim"] is not None and full["head_dim"] * full["num_heads"] == full["dim"]:
        full["head_dim"] = None  # as it is unless given
    if full.get("window") is not None and full["window"] >= values["max_len"]:
        full["window"] = None  # it hides nothing
    if "num_segments" in family.values:
        full["num_segments"] = full["num_segments"] or 1  # theirs has always one; ours, where it has none, is all zeros
    config = {"model_type": model_type} | family.needed | {theirs: full[ours] for ours, theirs in family.values.items()}
    if family.activation:
        names_of = {ours: theirs for theirs, ours in reversed(family.activations.items())}
        if values["activation"] not in names_of:
            raise ModelError(
                f"{where}: {family.activation} {values['activation']!r} is not available in models of this type in transformers"
            )
        config[family.activation] = names_of[values["activation"]]
    config |= family.back(values)
    read = read_values(family, config, names, where)
    changed = [name for name, value in full.items() if name != "max_len" and read.get(name, value) != value]
    if changed:
        name = changed[0]
        theirs = "does not have this setting" if read[name] is None else f"has {read[name]!r}"
        raise ModelError(
            f"{where}: model.{name} = {values[name]!r} cannot be expressed in a {model_type} of transformers, which {theirs}"
        )
    return config
