"""What `seqloom inspect` shows of a text, in amounts that a page can draw: one layer of attention, a few units at a time."""

from typing import Any

import numpy as np

from seqloom.analyse.attention import HeadMaps
from seqloom.analyse.read import number_of
from seqloom.analyse.units import saturation, unit_values
from seqloom.analyse.units_page import BEST, LEAST
from seqloom.errors import UsageError
from seqloom.serve.abilities import translates
from seqloom.serve.messages import Attention, Beam, Cells

DIGITS = 4


def rounded(values: np.ndarray) -> list[Any]:
    """As few digits as a picture needs; what is not a number is 0 in it."""
    return np.nan_to_num(np.asarray(values, np.float64)).round(DIGITS).tolist()


def attention(run: Any, ask: Attention) -> dict[str, Any]:
    """Of each part of the model the maps of one layer: (heads, queries, keys), or one of all layers by rollout."""
    shown = run.attention(ask.text, target=ask.target).shown
    most = max(len(maps.weights) for maps, _ in shown)
    if ask.layer is not None and ask.layer > most:
        raise UsageError(
            f"layer = {ask.layer}: {number_of(most, 'layers with attention')}: choose {'1' if most == 1 else f'1 to {most}'}"
        )
    parts = [
        part_record(maps, min(ask.layer or chosen.layer + 1, len(maps.weights)), chosen, ask.kind)
        for maps, chosen in shown
    ]
    return {"kind": ask.kind, "parts": parts}


def part_record(maps: HeadMaps, layer: int, chosen: Any, kind: str) -> dict[str, Any]:
    if kind == "rollout" and maps.is_square:
        found = maps.rollout()[None]
    elif kind == "norm-weighted" and maps.is_square:
        found = maps.norm_weighted(layer - 1)
    else:  # to a source there are weights alone
        found = maps.weights[layer - 1]
    return {
        "part": maps.part, "queries": maps.queries, "keys": maps.keys, "layers": len(maps.weights), "layer": layer,
        "head": (chosen.head if layer == chosen.layer + 1 else 0) + 1, "token": chosen.token + 1, "maps": rounded(found),
    }  # fmt: skip


def cells(run: Any, ask: Cells) -> dict[str, Any]:
    """The units that `inspect` shows, with their values at every token, and how often gates are closed and open."""
    units = run.cells(ask.text, unit=ask.unit).units
    wanted = [ask.unit] if ask.unit else []
    wanted += [each.unit for each in units.found[:BEST]] + [unit for unit, _ in units.least[:LEAST]]
    gates = {}
    for name, gate in units.gates.items():
        closed, opened = saturation(gate)
        gates[name] = {"closed": rounded(closed), "open": rounded(opened)}
    return {
        "tokens": units.pieces, "states": {name: values.shape[1] for name, values in units.values.items()},
        "follows": [each._asdict() for each in units.found],
        "follow_nothing": [{"unit": unit, "best": best} for unit, best in units.least],
        "units": {unit: rounded(np.clip(unit_values(units, unit), -1, 1)) for unit in dict.fromkeys(wanted)},
        "gates": gates,
    }  # fmt: skip


def beam(run: Any, ask: Beam) -> dict[str, Any]:
    """Every hypothesis that a search kept, and what it found."""
    limit = run.learner.backbone.max_len
    room = ask.max_tokens if limit is None else min(ask.max_tokens, limit)
    results = "n_best" if translates(run) else "n"
    found = run.beam_tree(ask.text, beam=ask.beam, max_new=room, **{results: ask.beam}).record()
    return {name: found[name] for name in ("prompt", "beam", "considered", "found")}
