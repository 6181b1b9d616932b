"""The Transformer equals Marian of `transformers` with the same weights, and our beam search its `generate`."""

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from seqloom.batch import IGNORE, Pair, pack
from seqloom.blocks.softmax import Softmax
from seqloom.convert.read import from_marian
from seqloom.decode.rules import BeamConfig, SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from seqloom.errors import ModelError
from seqloom.models.transformer import Transformer

V, D, LAYERS, HEADS, L = 67, 32, 2, 4, 40
LONG = pytest.mark.long  # small beams and both kinds of penalties stay
PAD, END = V - 1, 0


def theirs(seed=0, sharp=1.0, end=0.0):
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
        max_position_embeddings=L,
        dropout=0.0,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
        attn_implementation="eager",
    )
    model = MarianMTModel(config).eval()
    model.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and "embed_positions" not in name:
                parameter.add_(0.15 * torch.randn_like(parameter))
        for layer in model.model.decoder.layers:  # what is said must hang on the source
            layer.encoder_attn.out_proj.weight.mul_(max(sharp, 1.0))
        model.model.decoder.layers[-1].final_layer_norm.weight.mul_(sharp)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, END] = end
    return model


def ours(reference):
    config, tensors = reference.config.to_dict(), reference.state_dict()
    converted = from_marian(config, tensors)
    model = Transformer(Transformer.Config(**converted.values)).eval()
    model.load_state_dict(converted.model)
    softmax = Softmax(D, V, model.table, bias=True)
    with torch.no_grad():
        softmax.bias.copy_(converted.bias)
    assert (converted.start_id, converted.end_id) == (PAD, END)
    return model, softmax


def sources(lengths=(7, 1, 12, 4), seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [[*torch.randint(1, PAD, (n,), generator=generator).tolist(), END] for n in lengths]


def padded(texts, fill=PAD):
    longest = max(map(len, texts))
    ids = torch.tensor([[*text, *[fill] * (longest - len(text))] for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (longest - len(text)) for text in texts])
    return ids, mask


def test_states_loss_and_gradients_are_equal():
    reference = theirs()
    model, softmax = ours(reference)
    texts, targets = sources(), sources((5, 9, 3, 2), seed=1)
    ids, mask = padded(texts)
    labels, kept = padded(targets, fill=IGNORE)
    expected = reference(
        input_ids=ids, attention_mask=mask, labels=labels, output_hidden_states=True, output_attentions=True
    )
    context = model.encode(pack(texts))
    torch.testing.assert_close(context.hidden, expected.encoder_last_hidden_state[mask.bool()], rtol=0, atol=1e-5)
    following = torch.tensor([i for target in targets for i in target])
    pair = Pair(pack(texts), pack([[PAD, *target[:-1]] for target in targets]), following)
    output = model(pair, layers=True, maps=True)
    chosen = kept.bool()
    for mine, their in zip(output.layers, expected.decoder_hidden_states, strict=True):
        torch.testing.assert_close(mine, their[chosen], rtol=0, atol=1e-5)
    for mine, their in zip(output.cross, expected.cross_attentions, strict=True):
        torch.testing.assert_close(mine, their.transpose(1, 2)[chosen], rtol=0, atol=1e-5)
    torch.testing.assert_close(softmax(output.hidden), expected.logits[chosen], rtol=0, atol=2e-5)

    loss = softmax(model(pair).hidden, following) / len(following)
    assert loss.item() == pytest.approx(expected.loss.item(), abs=1e-5)
    loss.backward()
    expected.loss.backward()
    gradients = {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}
    wanted = from_marian(reference.config.to_dict(), reference.state_dict() | gradients | repeated(gradients)).model
    for name, parameter in model.named_parameters():
        if name == "encoder.embedding.token.weight":  # theirs does not learn what the start token, their padding, is
            parameter.grad[PAD], wanted[name][PAD] = 0, 0
        assert (parameter.grad - wanted[name]).norm() <= 1e-4 * wanted[name].norm().clamp(min=1e-6), name


def repeated(gradients):
    """A shared table's gradient under its other names."""
    names = ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight")
    return dict.fromkeys(names, gradients["model.shared.weight"])


@pytest.fixture(scope="module", params=[(0, 1.0, 6.0), (1, 1.0, 2.0), (1, -2.0, 5.0), (2, -2.0, 5.0)])
def models(request):
    """They like to end, some early, some late. With tied weights a random model repeats its last token; where the top norm
    is turned round (sharp < 0) it avoids that one."""
    reference = theirs(*request.param)
    return reference, *ours(reference)


def generated(reference, texts, **options):
    """New tokens without padding, and the scores."""
    ids, mask = padded(texts)
    options = {"do_sample": False, "bad_words_ids": [[PAD]], "forced_eos_token_id": None, "max_length": None} | options
    out = reference.generate(
        ids, attention_mask=mask, return_dict_in_generate=True, output_scores=True, use_cache=True, **options
    )
    rows = [[token for token in row[1:] if token != PAD] for row in out.sequences.tolist()]
    return rows, getattr(out, "sequences_scores", None)


def found(model, softmax, texts, prompts=None, **options):
    stepper = Stepper(model.decoder, softmax)
    with torch.no_grad():
        context = model.encode(pack(texts))
    return beam_search(stepper, prompts or [[PAD]] * len(texts), BeamConfig(**options), END, [PAD], context)


def compare(models, theirs_options, **options):
    reference, model, softmax = models
    texts = sources()
    mine = [h for hypotheses in found(model, softmax, texts, **options) for h in hypotheses]
    rows, scores = generated(reference, texts, **theirs_options)
    assert [h.tokens + [END] * h.finished for h in mine] == rows
    torch.testing.assert_close(torch.tensor([h.score for h in mine]), scores, rtol=1e-4, atol=1e-4)
    return mine


@pytest.mark.parametrize("alpha", [pytest.param(0.0, marks=LONG), 0.6, pytest.param(1.0, marks=LONG), 2.0])
@pytest.mark.parametrize(("stop", "early"), [("exact", "never"), ("first", True)])
@pytest.mark.parametrize("beam", [2, pytest.param(3, marks=LONG), 5])
def test_beams_are_equal(models, beam, alpha, stop, early):
    theirs_options = {"num_beams": beam, "length_penalty": alpha, "early_stopping": early, "num_return_sequences": beam}
    mine = compare(
        models,
        theirs_options | {"max_new_tokens": 20},
        beam=beam,
        length_penalty=alpha,
        stop=stop,
        n_best=beam,
        max_new=20,
    )
    if beam == 5 and alpha == 1 and stop == "exact":
        assert len({len(h.tokens) for h in mine}) > 3, "texts of different lengths, or little is tested"


def test_lengths_and_repeats_are_equal(models):
    common = {"num_beams": 3, "early_stopping": "never", "num_return_sequences": 2, "length_penalty": 1.0}
    same = {"beam": 3, "n_best": 2, "length_penalty": 1.0}
    compare(models, common | {"min_new_tokens": 6, "max_new_tokens": 9}, **same, min_new=6, max_new=9)
    for size in (1, 2, 3):
        compare(
            models, common | {"no_repeat_ngram_size": size, "max_new_tokens": 25}, **same, no_repeat=size, max_new=25
        )
    compare(
        models, common | {"repetition_penalty": 1.5, "max_new_tokens": 15}, **same, repetition_penalty=1.5, max_new=15
    )


def test_greedy_is_equal(models):
    reference, model, softmax = models
    texts = sources()
    rows, _ = generated(reference, texts, num_beams=1, max_new_tokens=20)
    mine = found(model, softmax, texts, beam=1, max_new=20, stop="first")
    assert [h.tokens + [END] * h.finished for (h,) in mine] == rows
    with torch.no_grad():
        context = model.encode(pack(texts))
    drawn = [[] for _ in texts]
    config = SampleConfig(temperature=0, max_new=20)
    for one in sample(Stepper(model.decoder, softmax), [[PAD]] * 4, config, 0, END, [PAD], context):
        drawn[one.sample].append(one.token)
    assert drawn == rows


def test_a_beginning_that_must_be_kept(models):
    """Their prompt is one for all sources: each is compared alone."""
    reference, model, softmax = models
    for text, start in zip(sources(), ([5], [6, 7], [8, 9, 10], []), strict=True):
        (mine,) = found(model, softmax, [text], [[PAD, *start]], beam=3, n_best=3, max_new=12)
        ids, _ = padded([text])
        rows = reference.generate(
            ids,
            decoder_input_ids=torch.tensor([[PAD, *start]]),
            num_beams=3,
            num_return_sequences=3,
            max_new_tokens=12,
            early_stopping="never",
            length_penalty=1.0,
            bad_words_ids=[[PAD]],
        ).tolist()
        assert [h.tokens + [END] * h.finished for h in mine] == [
            [t for t in row[1 + len(start) :] if t != PAD] for row in rows
        ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scale_embedding": False}, "scale_embedding"),
        ({"decoder_layers": 3}, "decoder_layers = 3"),
        ({"activation_function": "tanh"}, "'tanh'"),
        ({"d_model": 16}, r"model\.shared\.weight.*\[67, 32\]"),
        ({"encoder_layers": 3, "decoder_layers": 3}, r"no tensor 'model\.encoder\.layers\.2"),
        ({"encoder_layers": 1, "decoder_layers": 1}, r"unknown tensors, for example 'model\.decoder\.layers\.1"),
        ({"eos_token_id": [0, 1]}, "eos_token_id"),
    ],
)
def test_models_that_do_not_fit(change, message):
    reference = theirs()
    with pytest.raises(ModelError, match=message):
        from_marian(reference.config.to_dict() | change, reference.state_dict())


def test_tensors_that_do_not_fit():
    reference = theirs()
    config, tensors = reference.config.to_dict(), reference.state_dict()
    for name, what in (
        ("lm_head.weight", "differs"),
        ("model.encoder.embed_positions.weight", "sines"),
        ("model.decoder.layers.1.fc1.bias", "no tensor"),
    ):
        wrong = dict(tensors)
        if what == "no tensor":
            del wrong[name]
        else:
            wrong[name] = wrong[name] + 1
        with pytest.raises(ModelError, match=f"(?s){what}|{name}"):
            from_marian(config, wrong)
