"""Files that someone has damaged or made up: bytes changed anywhere, and JSON with values that nobody expects."""

import copy
import json
import random
from typing import Any

STRANGE: list[Any] = [
    None, True, False, 0, -1, 1, 2, 3, 255, 65536, 1 << 31, (1 << 63) - 1, 1 << 64, 10**30, 0.5, -0.0, 1e308, float("nan"),
    float("inf"), "", " ", "0", "text", "../../outside", "/etc/passwd", "\ud800", "\x00", "[MASK]", "x" * 5000, [], {}, [[]],
    [None], [-1], [1 << 40], {"": None}, {"name": "bert"}, {"a": {"a": {"a": []}}},
]  # fmt: skip
PIECES = [
    b"\0",
    b"\xff",
    b"\xf0\x9f",
    b"\n",
    b"\r\n",
    b"\t",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\u0000",
    b"1e999",
]
PIECES += [
    b"-",
    b"99999999999999999999",
    b"null",
    b"NaN",
    b"\xef\xbb\xbf",
    b"PAR1",
    b"\x1f\x8b",
    b" " * 300,
    b"[" * 3000,
]


def damaged(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, dropped, doubled, moved or put in; now and then all that comes after a place is lost."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place, length = rng.randrange(len(changed) + 1), rng.choice((1, 1, 2, 4, 8, 64))
        match rng.randrange(8):
            case 0:
                changed[place : place + 1] = bytes([rng.randrange(256)])
            case 1 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 2:
                del changed[place : place + length]
            case 3:
                changed[place:place] = changed[place : place + length]
            case 4:
                changed[place:place] = rng.choice(PIECES)
            case 5:
                changed[place : place + length] = rng.randbytes(length)
            case 6:
                other = rng.randrange(len(changed) + 1)
                changed[place : place + length] = changed[other : other + length]
            case 7 if rng.random() < 0.3:
                del changed[place:]
    return bytes(changed)


def places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key) of everything within."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in items for found in ((value, key), *places(each))]


def twisted(value: Any, rng: random.Random) -> Any:
    """The same JSON with one to three of its values replaced, left out, renamed or exchanged."""
    changed = copy.deepcopy(value)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        found = places(changed)
        if not found:
            return rng.choice(STRANGE)
        # names near the top decide most, and are few among thousands
        container, key = rng.choice(found[:40] if rng.random() < 0.4 else found)
        match rng.randrange(6):
            case 0:
                del container[key]
            case 1 if isinstance(container, dict):
                container[rng.choice((f"{key}x", str(key)[:-1], "..", ""))] = container.pop(key)
            case 2 if type(container[key]) in (int, float):
                container[key] = rng.choice(
                    (container[key] + 1, container[key] - 1, -container[key], container[key] * 1000)
                )
            case 3:
                other, at = rng.choice(places(changed))
                container[key] = copy.deepcopy(other[at])
            case _:
                container[key] = copy.deepcopy(rng.choice(STRANGE))
    return changed


def mutated_json(data: bytes, rng: random.Random) -> bytes:
    return damaged(data, rng) if rng.random() < 0.4 else json.dumps(twisted(json.loads(data), rng)).encode()


def mutated_tensors(data: bytes, rng: random.Random) -> bytes:
    """A safetensors file; mostly its header, whose length then fits again."""
    size = int.from_bytes(data[:8], "little")
    header, rest = data[8 : 8 + size], data[8 + size :]
    match rng.randrange(4):
        case 0:
            return damaged(data, rng)
        case 1:
            return data[: 8 + size] + damaged(rest, rng)
        case 2:
            header = damaged(header, rng)
        case _:
            header = json.dumps(twisted(json.loads(header), rng)).encode()
    return len(header).to_bytes(8, "little") + header + rest
