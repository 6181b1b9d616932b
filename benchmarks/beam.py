"""Translating with a Transformer base: ours against transformers' Marian generate with the same weights, in one run.

    python benchmarks/beam.py [--device cpu|cuda] [--rounds 3] [--batch 1 64] [--half]

Random weights, 32,000 tokens of vocabulary, sources of 16 to 48 tokens, 48 new ones (the end is banned), beam 4 and greedy,
fp32 (--half: bf16). They take turns; the figure is the median of the rounds, the outputs are compared. CTranslate2
translates with the same weights where it is installed.
"""

import argparse
import importlib.util
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch

V, D, LAYERS, HEADS, NEW = 32_000, 512, 6, 8, 48
PAD, END = V - 1, 0
Job = Callable[[], list[list[int]]]


def reference(device: torch.device, dtype: torch.dtype) -> Any:
    from transformers import MarianConfig, MarianMTModel

    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=V,
        d_model=D,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=4 * D,
        decoder_ffn_dim=4 * D,
        max_position_embeddings=128,
        dropout=0.0,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=PAD,
        decoder_start_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    model = MarianMTModel(config).eval()
    model.generation_config.forced_eos_token_id = None
    with torch.no_grad():
        # a tied random model repeats its last token, and hypotheses never change places: turned round it avoids that one
        model.model.decoder.layers[-1].final_layer_norm.weight.mul_(-1)
    return model.to(device, dtype)


def ours(model: Any, sources: list[list[int]], beam: int) -> Job:
    from seqloom.batch import pack, to_device
    from seqloom.blocks.softmax import Softmax
    from seqloom.convert.read import from_marian
    from seqloom.decode.rules import BeamConfig
    from seqloom.decode.search import beam_search
    from seqloom.decode.step import Stepper
    from seqloom.models.transformer import Transformer

    converted = from_marian(model.config.to_dict(), model.state_dict())
    mine = Transformer(Transformer.Config(**converted.values))
    mine.load_state_dict(converted.model)
    mine.to(model.device, model.dtype).eval()
    softmax = Softmax(D, V, mine.table, bias=True).to(model.device, model.dtype)
    softmax.bias.data.copy_(converted.bias)
    stepper = Stepper(mine.decoder, softmax)
    config = BeamConfig(beam=beam, max_new=NEW, length_penalty=1.0)

    def run() -> list[list[int]]:
        with torch.inference_mode():
            context = mine.encode(to_device(pack(sources), model.device))
        found = beam_search(stepper, [[PAD]] * len(sources), config, END, [PAD, END], context)
        return [hypotheses[0].tokens for hypotheses in found]

    return run


def transformers(model: Any, sources: list[list[int]], beam: int) -> Job:
    longest = max(map(len, sources))
    ids = torch.tensor([[*source, *[PAD] * (longest - len(source))] for source in sources], device=model.device)
    mask = (ids != PAD).long()
    options = {"num_beams": beam} | ({"early_stopping": "never", "length_penalty": 1.0} if beam > 1 else {})

    def run() -> list[list[int]]:
        out = model.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_length=None,
            max_new_tokens=NEW,
            bad_words_ids=[[PAD], [END]],
            use_cache=True,
            **options,
        )
        return out[:, 1:].tolist()

    return run


def ctranslate2(model: Any, folder: str) -> Callable[[list[list[int]], int], Job]:
    """Its own converter, without the tokenizer that it would ask for."""
    import ctranslate2 as peer
    from ctranslate2.converters.transformers import MarianMTLoader

    names = [str(i) for i in range(V - 1)]  # it leaves the padding out
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
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64])
    parser.add_argument("--beam", type=int, nargs="+", default=[4, 1])
    parser.add_argument("--half", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    model = reference(device, torch.bfloat16 if options.half else torch.float32)
    further = None
    if importlib.util.find_spec("ctranslate2") is None:
        print("CTranslate2 is not installed: left out")
    else:
        with tempfile.TemporaryDirectory() as folder:  # read at once
            further = ctranslate2(model, folder)
    for n in options.batch:
        generator = torch.Generator().manual_seed(n)
        sizes = torch.randint(16, 49, (n,), generator=generator).tolist()
        sources = [[*torch.randint(1, PAD, (size - 1,), generator=generator).tolist(), END] for size in sizes]
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
