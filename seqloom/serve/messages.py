"""What may be asked of the server, as types that check it, and how answers and refusals look."""

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response

from seqloom.config import unknown_name

LONGEST_TEXT = 1 << 20  # characters
LONGEST_NAME = 200
MOST_TEXTS = 256
UNKNOWN_FIELD = re.compile(r"Object contains unknown field `(.*?)`", re.DOTALL)

Name = Annotated[str, Meta(max_length=LONGEST_NAME, description="Name of a model, as /v1/models lists it.")]
Text = Annotated[str, Meta(max_length=LONGEST_TEXT)]
Texts = Text | Annotated[list[Text], Meta(min_length=1, max_length=MOST_TEXTS)]
Short = Annotated[str, Meta(max_length=5000)]  # what is drawn
Ids = Annotated[list[int], Meta(min_length=1)]
Stop = Annotated[str, Meta(max_length=200)]


class Completion(Struct, forbid_unknown_fields=True):
    """Continue one or several texts, or score them (echo with logprobs). OpenAI's shape."""

    model: Name
    prompt: Text | Annotated[list[Text | int | Ids], Meta(min_length=1, max_length=1 << 20)] = ""
    max_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] | None = 16
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = 1.0
    top_k: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    n: Annotated[int, Meta(ge=1, le=16)] | None = 1
    stream: bool | None = False
    stream_options: dict[str, bool] | None = None
    echo: bool | None = False
    logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    stop: Stop | Annotated[list[Stop], Meta(max_length=16)] | None = None
    seed: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    user: Annotated[str, Meta(max_length=200)] | None = None
    # what is not done here: taken with the values by which programs say that they do not ask for it
    best_of: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    suffix: Annotated[str, Meta(max_length=1000)] | None = None

    @property
    def not_done_here(self) -> str | None:
        """The name of a field that asks for something that this server does not do."""
        idle = {"best_of": self.n or 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "suffix": ""}
        return next((name for name, value in idle.items() if getattr(self, name) not in (None, value)), None)

    @property
    def reads_prompts(self) -> bool:
        """Whether the probabilities of the prompts are asked for."""
        return bool(self.echo) and self.logprobs is not None


class Embedding(Struct, forbid_unknown_fields=True):
    """Vectors of texts. OpenAI's shape."""

    model: Name
    input: Texts
    encoding_format: Annotated[str, Meta(pattern="^(float|base64)$")] = "float"
    user: Annotated[str, Meta(max_length=200)] | None = None


class Fill(Struct, forbid_unknown_fields=True):
    """Fill every [MASK] of a text."""

    text: Text
    model: Name | None = None
    top: Annotated[int, Meta(ge=1, le=100)] = 5
    joint: bool = False
    longest: Annotated[int, Meta(ge=1, le=64)] = 8


class Score(Struct, forbid_unknown_fields=True):
    """The log-probability of texts, token by token, by the definition that fits the model."""

    texts: Texts
    model: Name | None = None
    pll: Annotated[str, Meta(pattern="^(within-word|plain)$")] | None = None


class Neighbours(Struct, forbid_unknown_fields=True):
    """The words whose vectors are nearest to that of a word, or of a sum such as "king - man + woman"."""

    words: Annotated[str, Meta(min_length=1, max_length=1000)]
    model: Name | None = None
    top: Annotated[int, Meta(ge=1, le=1000)] = 10


class Predict(Struct, forbid_unknown_fields=True):
    """The predictions of a model that has learnt a task: classes, numbers, tags, answers."""

    rows: Annotated[list[Text | dict[str, Any]], Meta(min_length=1, max_length=MOST_TEXTS)]
    model: Name | None = None


class Translate(Struct, forbid_unknown_fields=True):
    """Translations of texts."""

    texts: Texts
    model: Name | None = None
    beam: Annotated[int, Meta(ge=1, le=32)] = 4
    n_best: Annotated[int, Meta(ge=1, le=32)] = 1
    align: bool = False


class Attention(Struct, forbid_unknown_fields=True):
    """What the attention heads of one layer look at in a short text; of a translator also while it writes."""

    text: Short
    model: Name | None = None
    target: Short | None = None
    layer: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    kind: Annotated[str, Meta(pattern="^(weights|norm-weighted|rollout)$")] = "weights"


class Cells(Struct, forbid_unknown_fields=True):
    """What single units of a recurrent model follow in a text of twenty tokens or more."""

    text: Annotated[str, Meta(max_length=10_000)]
    model: Name | None = None
    unit: Annotated[str, Meta(max_length=100)] | None = None


class Beam(Struct, forbid_unknown_fields=True):
    """The tree of a beam search for continuations of a text, or for its translations."""

    text: Short = ""
    model: Name | None = None
    beam: Annotated[int, Meta(ge=1, le=10)] = 3
    max_tokens: Annotated[int, Meta(ge=1, le=50)] = 8


class Inputs(Struct, forbid_unknown_fields=True):
    """The shape of hosted inference: {"inputs": …, "parameters": {…}}."""

    inputs: Text | dict[str, Any] | Annotated[list[Text | dict[str, Any]], Meta(min_length=1, max_length=MOST_TEXTS)]
    parameters: dict[str, Any] = {}
    model: Name | None = None


class Tokenize(Struct):
    """The tokens of a text."""

    prompt: Text
    model: Name | None = None
    add_special_tokens: bool = False


class Detokenize(Struct):
    """The text of tokens."""

    tokens: Annotated[list[int], Meta(max_length=1 << 20)]
    model: Name | None = None


encode = msgspec.json.Encoder().encode
decoders: dict[type[Struct], msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in Struct.__subclasses__() if kind.__module__ == __name__
}


class Refused(Exception):
    """A request that is not answered, by its fault or by that of the moment."""

    def __init__(self, status: int, message: str, param: str | None = None, kind: str = "invalid_request_error"):
        super().__init__(message)
        self.status, self.message, self.param, self.kind = status, message, param, kind

    def response(self) -> Response:
        body = {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}}
        return answer(body, self.status, {"retry-after": "1"} if self.status in (429, 503) else None)


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(encode(value), status, headers, media_type="application/json")


def decode(kind: type[Struct], data: bytes) -> Any:
    try:
        return decoders[kind].decode(data)
    except msgspec.ValidationError as error:
        raise wrong_field(kind, str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"invalid request: the body is not JSON: {error}") from None


def wrong_field(kind: type[Struct], message: str) -> Refused:
    """message: what the decoder says, with the place of the field at its end."""
    if unknown := UNKNOWN_FIELD.match(message):
        name = unknown[1]
        return Refused(400, "invalid request: " + unknown_name("field", name, name, list(kind.__struct_fields__)), name)
    what, _, place = message.partition(" - at `$")
    name = place.rstrip("`").lstrip(".")
    where = f"{name}: " if name else ""
    return Refused(400, f"invalid request: {where}{what[:1].lower()}{what[1:]}", name or None)


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts
