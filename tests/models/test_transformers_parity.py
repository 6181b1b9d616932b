"""GPT and GPT-2 equal the models of `transformers` with the same weights: hidden states, maps, loss and gradients."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, OpenAIGPTConfig, OpenAIGPTLMHeadModel

from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.models.gpt import Gpt
from seqloom.models.gpt2 import Gpt2
from seqloom.objectives.next_token import NextToken

V, D, LAYERS, HEADS, L = 97, 48, 3, 4, 40
NAMES = {  # ours → theirs; matrices there are stored (in, out)
    "mixer.qkv": "attn.c_attn",
    "mixer.out": "attn.c_proj",
    "mixer_norm": "ln_1",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
    "ffn_norm": "ln_2",
}


def theirs(kind):
    sizes = {"vocab_size": V, "n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "n_positions": L}
    still = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "attn_implementation": "eager"}
    torch.manual_seed(0)
    config, cls = (GPT2Config, GPT2LMHeadModel) if kind == "gpt2" else (OpenAIGPTConfig, OpenAIGPTLMHeadModel)
    model = cls(config(**sizes, **still))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.eval()


def ours(kind, reference):
    cls = {"gpt": Gpt, "gpt2": Gpt2}[kind]
    model = cls(cls.Config(vocab_size=V, dim=D, num_layers=LAYERS, num_heads=HEADS, max_len=L, dropout=0.0))
    body = reference.transformer
    tensors = {
        "embedding.token.weight": (body.wte if kind == "gpt2" else body.tokens_embed).weight,
        "embedding.positions.weight": (body.wpe if kind == "gpt2" else body.positions_embed).weight,
    }
    for i, block in enumerate(body.h):
        for mine, their in NAMES.items():
            module = block.get_submodule(their)
            weight = module.weight if "norm" in mine else module.weight.T
            tensors[f"stack.layers.{i}.{mine}.weight"] = weight
            tensors[f"stack.layers.{i}.{mine}.bias"] = module.bias
    if kind == "gpt2":
        tensors["stack.top.weight"], tensors["stack.top.bias"] = body.ln_f.weight, body.ln_f.bias
    model.load_state_dict({name: tensor.detach().clone() for name, tensor in tensors.items()})
    return NextToken(model, NextToken.Config())


@pytest.mark.parametrize("kind", ["gpt", "gpt2"])
def test_equal(kind):
    reference = theirs(kind)
    learner = ours(kind, reference)
    texts = torch.randint(0, V, (3, 33))
    expected = reference(input_ids=texts, labels=texts, output_hidden_states=True, output_attentions=True)
    batch = pack(texts.tolist())
    output = learner.backbone(batch, layers=True, maps=True)
    for ours_layer, their_layer in zip(output.layers[:-1], expected.hidden_states[:-1], strict=True):
        torch.testing.assert_close(ours_layer, their_layer.flatten(0, 1), rtol=0, atol=1e-5)
    torch.testing.assert_close(output.hidden, expected.hidden_states[-1].flatten(0, 1), rtol=0, atol=1e-5)
    for ours_map, their_map in zip(output.maps, expected.attentions, strict=True):
        torch.testing.assert_close(ours_map, their_map, rtol=0, atol=1e-5)
    torch.testing.assert_close(learner.softmax(output.hidden), expected.logits.flatten(0, 1), rtol=0, atol=2e-5)

    targets = torch.cat((texts[:, 1:], torch.full((3, 1), IGNORE)), dim=1).flatten()
    loss = learner(Excerpt(batch, targets))
    mean = loss.total / loss.count
    assert mean.item() == pytest.approx(expected.loss.item(), abs=1e-5)
    mean.backward()
    expected.loss.backward()
    mine, theirs_grad = learner.backbone.table.weight.grad, reference.transformer.get_input_embeddings().weight.grad
    assert (mine - theirs_grad).norm() / theirs_grad.norm() < 1e-4
    ours_qkv = learner.backbone.stack.layers[0].mixer.qkv.weight.grad
    their_qkv = reference.transformer.h[0].attn.c_attn.weight.grad.T
    assert (ours_qkv - their_qkv).norm() / their_qkv.norm() < 1e-4


def test_published_sizes():
    """Parameters of the released checkpoints: 124, 355, 774 and 1558 million; GPT has 117 (116.5) million."""
    with torch.device("meta"):
        counts = {
            name: sum(p.numel() for p in Gpt2(Gpt2.Config(**values)).parameters())
            for name, values in Gpt2.presets.items()
            if name != "tiny"
        }
        gpt = sum(p.numel() for p in Gpt(Gpt.Config(**Gpt.presets["base"])).parameters())
    assert counts == {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}
    assert gpt == 116_534_784
