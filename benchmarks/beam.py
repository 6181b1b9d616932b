"""Writing with an encoder–decoder: ours against generate of transformers with the same weights, in one run.

    python benchmarks/beam.py [--model marian|bart] [--device cpu|cuda] [--rounds 3] [--batch 1 64] [--half]

marian is a Transformer base with 32,000 tokens of vocabulary, bart is BART base with 50,265. Random weights, sources of 16 to 48
tokens, 48 new ones (the end is banned), beam 4 and greedy, fp32 (--half: bf16). They take turns; the figure is the median of the
rounds, the outputs are compared. CTranslate2 translates with the weights of marian where it is installed.
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

NEW = 48
END = 0
Job = Callable[[], list[list[int]]]


class Shape(NamedTuple):
    entries: int
    dim: int
    heads: int

    @property
    def pad(self) -> int:
        return self.entries - 1


SHAPES = {"marian": Shape(32_000, 512, 8), "bart": Shape(50_265, 768, 12)}


def reference(name: str, device: torch.device, dtype: torch.dtype) -> Any:
    import transformers as hf

    torch.manual_seed(0)
    shape = SHAPES[name]
    sizes = {
        "vocab_size": shape.entries, "d_model": shape.dim, "max_position_embeddings": 128, "dropout": 0.0,
        "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": shape.heads,
        "decoder_attention_heads": shape.heads, "encoder_ffn_dim": 4 * shape.dim, "decoder_ffn_dim": 4 * shape.dim,
        "pad_token_id": shape.pad, "decoder_start_token_id": shape.pad, "eos_token_id": END, "bos_token_id": None,
        "forced_eos_token_id": None, "forced_bos_token_id": None, "attn_implementation": "sdpa",
    }  # fmt: skip
    if name == "bart":
        model = hf.BartForConditionalGeneration(hf.BartConfig(activation_function="gelu", **sizes)).eval()
    else:
        model = hf.MarianMTModel(hf.MarianConfig(activation_function="swish", scale_embedding=True, **sizes)).eval()
    model.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        # a tied random model repeats its last token, and hypotheses never change places: turned round it avoids that one
        model.model.decoder.layers[-1].final_layer_norm.weight.mul_(-1)
    return model.to(device, dtype)


def ours(model: Any, sources: list[list[int]], beam: int) -> Job:
    from seqloom.batch import pack, to_device
    from seqloom.blocks.softmax import Softmax
    from seqloom.convert.bart import BART
    from seqloom.convert.marian import MARIAN
    from seqloom.convert.read import read_model
    from seqloom.decode.rules import BeamConfig
    from seqloom.decode.search import beam_search
    from seqloom.decode.step import Stepper
    from seqloom.models import model_class

    pad = model.config.pad_token_id
    tensors = model.state_dict()
    shapes = {key: tuple(tensor.shape) for key, tensor in tensors.items()}
    read = read_model({"bart": BART, "marian": MARIAN}[model.config.model_type], model.config.to_dict(), shapes, "it")
    weights, _ = read.take(tensors)
    bias = weights.pop("softmax.bias")
    kind: Any = model_class(read.family.model)
    mine = kind(kind.Config(**read.values))
    weights["decoder.embedding.token.weight"] = weights["encoder.embedding.token.weight"]
    mine.load_state_dict(weights)
    mine.to(model.device, model.dtype).eval()
    softmax = Softmax(model.config.d_model, len(bias), mine.table, bias=True).to(model.device, model.dtype)
    softmax.bias.data.copy_(bias)
    stepper = Stepper(mine.decoder, softmax)
    config = BeamConfig(beam=beam, max_new=NEW, length_penalty=1.0)

    def run() -> list[list[int]]:
        with torch.inference_mode():
            context = mine.encode(to_device(pack(sources), model.device))
        found = beam_search(stepper, [[pad]] * len(sources), config, END, [pad, END], context)
        return [hypotheses[0].tokens for hypotheses in found]

    return run


def transformers(model: Any, sources: list[list[int]], beam: int) -> Job:
    longest, pad = max(map(len, sources)), model.config.pad_token_id
    ids = torch.tensor([[*source, *[pad] * (longest - len(source))] for source in sources], device=model.device)
    mask = (ids != pad).long()
    options = {"num_beams": beam} | ({"early_stopping": "never", "length_penalty": 1.0} if beam > 1 else {})

    def run() -> list[list[int]]:
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_length=None,
            max_new_tokens=NEW,
            bad_words_ids=[[pad], [END]],
            use_cache=True,
            **options,
        )
        return out[:, 1:].tolist()

    return run


def ctranslate2(model: Any, folder: str) -> Callable[[list[list[int]], int], Job]:
    """Its own converter, without the tokenizer that it would ask for."""
    import ctranslate2 as peer
    from ctranslate2.converters.transformers import MarianMTLoader

    names = [str(i) for i in range(model.config.pad_token_id)]  # it leaves the padding out
    spec = MarianMTLoader().get_model_spec(model)
    spec.register_source_vocabulary(names)
    spec.register_target_vocabulary(names)
    spec.config.eos_token = spec.config.decoder_start_token = names[END]
    spec.config.unk_token = names[1]
    spec.config.add_source_eos = False  # sources have it
    spec.validate()
    spec.save(folder)
    precision = "bfloat16" if model.dtype == torch.bfloat16 else "float32"
    translator = peer.Translator(
        folder, device=model.device.type, compute_type=precision, intra_threads=torch.get_num_threads()
    )

    def job(sources: list[list[int]], beam: int) -> Job:
        texts = [[names[i] for i in source] for source in sources]

        def run() -> list[list[int]]:
            results = translator.translate_batch(
                texts, beam_size=beam, min_decoding_length=NEW, max_decoding_length=NEW, length_penalty=1.0
            )
            return [[int(name) for name in result.hypotheses[0]] for result in results]

        return run

    return job


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="marian")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    model = reference(options.model, device, torch.bfloat16 if options.half else torch.float32)
    further = None
    if options.model == "marian" and importlib.util.find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed: left out")
    elif options.model == "marian":
        with tempfile.TemporaryDirectory() as folder:  # read at once
            further = ctranslate2(model, folder)
    for n in options.batch:
        generator = torch.Generator().manual_seed(n)
        sizes = torch.randint(16, 49, (n,), generator=generator).tolist()
        sources = [
            [*torch.randint(1, SHAPES[options.model].pad, (s - 1,), generator=generator).tolist(), END] for s in sizes
        ]
        for beam in options.beam:
            jobs = {"seqloom": ours(model, sources, beam), "transformers": transformers(model, sources, beam)}
            if further is not None:
                jobs["CTranslate2"] = further(sources, beam)
            seconds: dict[str, list[float]] = {name: [] for name in jobs}
            made: dict[str, list[list[int]]] = {}
            for round_ in range(options.rounds + 1):
                for name, job in jobs.items():
                    start = time.perf_counter()
                    made[name] = job()  # lists: the device has finished
                    if round_:
                        seconds[name].append(time.perf_counter() - start)
            rates = {name: n * NEW / statistics.median(times) for name, times in seconds.items()}
            for name, rate in rates.items():
                print(f"batch {n:3}  beam {beam}  {name:14} {rate:9,.1f} new tokens/s", end="")
                if name == "seqloom":
                    print()
                    continue
                same = sum(a == b for a, b in zip(made["seqloom"], made[name], strict=True))
                print(f"; seqloom {rates['seqloom'] / rate:.2f}x, {same} of {n} outputs equal", flush=True)


if __name__ == "__main__":
    main()
