"""Pictures of attention weights: all heads small, one head as lines, one token over all heads, texts coloured by numbers.

Small maps are images of a few bytes inside the picture: one square a weight would be hundreds of thousands.
"""

import base64
import struct
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from seqloom.charts.axes import escaped, shortened, text_width
from seqloom.charts.draw import Entry, draw_legend, svg
from seqloom.charts.palette import BETTER, PALETTE, TINT, WORSE, fill, stroke

SMALL = 72  # pixels of a small map
GAP = 10
LINE = 22  # the height of a token in a column
LONGEST_TOKEN = 150  # pixels
VISIBLE = 0.02  # lines of smaller weights are left out


def png(values: np.ndarray) -> str:
    """(rows, columns) from 0 to 1 as an image, whose opacity they are, as a data: address."""
    red, green, blue = (int(PALETTE[BETTER].light[i : i + 2], 16) for i in (1, 3, 5))
    alpha = np.rint(np.clip(values, 0, 1) * 255).astype(np.uint8)
    pixels = np.empty((*alpha.shape, 4), np.uint8)
    pixels[...] = (red, green, blue, 0)
    pixels[..., 3] = alpha
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    size = struct.pack(">IIBBBBB", alpha.shape[1], alpha.shape[0], 8, 6, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(lines, 9)) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(whole).decode()


def small_maps(weights: Sequence[np.ndarray], name: str) -> str:
    """A small map for each head (columns) of each layer (rows): (H, rows, columns) a layer. Dark is a weight near the largest of
    its map."""
    left, top = 64, 24
    widest = max(len(layer) for layer in weights)
    parts = []
    for head in range(widest):
        x = left + head * (SMALL + GAP) + SMALL / 2
        parts.append(f'<text x="{x:.1f}" y="{top - 8}" text-anchor="middle">{"head " * (head == 0)}{head + 1}</text>')
    for i, layer in enumerate(weights):
        y = top + i * (SMALL + GAP)
        parts.append(f'<text x="{left - 10}" y="{y + SMALL / 2 + 4:.1f}" text-anchor="end">layer {i + 1}</text>')
        for head, values in enumerate(layer):
            x = left + head * (SMALL + GAP)
            image = png(values / max(float(values.max(initial=0.0)), 1e-12))
            size = f'x="{x}" y="{y}" width="{SMALL}" height="{SMALL}"'
            parts.append(
                f'<image {size} href="{image}" preserveAspectRatio="none" style="image-rendering:pixelated">'
                f"<title>layer {i + 1}, head {head + 1}</title></image>"
                f'<rect {size} fill="none" class="axis" stroke="#717784" pointer-events="none"/>'
            )
    height = top + len(weights) * (SMALL + GAP)
    return svg(parts, left + widest * (SMALL + GAP), height, name)


def columns_of(queries: Sequence[str], keys: Sequence[str]) -> tuple[list[str], float, float, float]:
    """The tokens of both columns, where each of them begins, and the height of the picture."""
    left_names, right_names = ([shortened(token, LONGEST_TOKEN) for token in some] for some in (queries, keys))
    left = 12 + max(map(text_width, left_names), default=0.0)
    right = left + 190
    parts = [
        f'<text x="{left:.1f}" y="{LINE * i + 20}" text-anchor="end">{escaped(token)}</text>'
        for i, token in enumerate(left_names)
    ]
    parts += [
        f'<text x="{right + 8:.1f}" y="{LINE * i + 20}">{escaped(token)}</text>' for i, token in enumerate(right_names)
    ]
    return parts, left, right, 20 + LINE * max(len(queries), len(keys))


def lines(queries: Sequence[str], keys: Sequence[str], weights: np.ndarray, name: str) -> str:
    """Two columns of tokens; a line from each to what it looks at, the thicker and darker the more."""
    parts, left, right, height = columns_of(queries, keys)
    for i, j in zip(*np.nonzero(weights >= VISIBLE), strict=True):
        share = float(weights[i, j])
        path = f"M{left + 6:.1f} {LINE * i + 15.5:.1f}L{right:.1f} {LINE * j + 15.5:.1f}"
        hint = f"<title>{escaped(queries[i])} → {escaped(keys[j])}: {share:.2f}</title>"
        style = f'{stroke(BETTER)} stroke-width="{0.8 + 2.2 * share:.1f}" stroke-opacity="{share**0.5:.2f}"'
        parts.append(f'<path d="{path}" {style}>{hint}</path>')
    wide = right + 20 + max((text_width(shortened(token, LONGEST_TOKEN)) for token in keys), default=0.0)
    return svg(parts, wide, height, name)


def swatch_of(colour: int) -> Callable[[float, float], str]:
    return lambda x, y: f'<rect x="{x + 8:.1f}" y="{y - 7:.1f}" width="14" height="14" {fill(colour)}/>'


def fan(query: int, tokens: Sequence[str], keys: Sequence[str], weights: np.ndarray, name: str) -> str:
    """One token's row in all heads of a layer, (H, keys): a colour a head, lines to what it looks at, and beside each token a
    square for each head, the darker the more."""
    count = len(weights)
    entries = [Entry(f"head {head + 1}", swatch_of(head % len(PALETTE))) for head in range(count)]
    parts, left, right, height = columns_of(tokens, keys)
    end = right + 20 + max((text_width(shortened(token, LONGEST_TOKEN)) for token in keys), default=0.0)
    width = max(end + 16 * count + 8, 420.0)
    legend, tall = draw_legend(entries, 8, 14, width - 16)
    drawn = []
    for head, row in enumerate(weights):
        colour = head % len(PALETTE)
        for j in np.flatnonzero(row >= VISIBLE).tolist():
            share = float(row[j])
            path = f"M{left + 6:.1f} {LINE * query + 15.5:.1f}L{right:.1f} {LINE * j + 15.5:.1f}"
            drawn.append(
                f'<path d="{path}" {stroke(colour)} stroke-width="{0.8 + 2.2 * share:.1f}" stroke-opacity="{share**0.5:.2f}"/>'
            )
            hint = f"<title>head {head + 1}: {share:.2f}</title>"
            drawn.append(
                f'<rect x="{end + 16 * head:.1f}" y="{LINE * j + 8}" width="14" height="14" {fill(colour)} '
                f'fill-opacity="{share**0.5:.2f}">{hint}</rect>'
            )
    marked = f'<rect x="2" y="{LINE * query + 4}" width="{left + 4:.1f}" height="{LINE - 2}" {fill(BETTER)} fill-opacity=".2"/>'
    body = f'<g transform="translate(0 {tall + 8:.1f})">{marked}{"".join(parts)}{"".join(drawn)}</g>'
    return svg([*legend, body], width, height + tall + 8, name)


def coloured_text(pieces: Sequence[str], values: Sequence[float], room: float = 700.0) -> str:
    """A text whose pieces are coloured by numbers from −1 to 1, with the number as a hint; line breaks are kept. As SVG."""
    parts, x, y = [], 8.0, 8.0
    pad = 0.0 if all(len(piece) <= 1 for piece in pieces) else 3.0  # characters stand close together
    for piece, value in zip(pieces, values, strict=True):
        shown = piece.replace("\n", "↵").replace("\t", "→")
        wide = text_width(shown.replace(" ", "n")) + pad
        if x > 8 and x + wide > room:
            x, y = 8.0, y + 26
        colour = BETTER if value >= 0 else WORSE
        opacity = min(abs(value), 1.0) * TINT
        hint = f"<title>{escaped(shown)}: {value:+.3f}</title>"
        size = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="22"'
        at = f'x="{x + wide / 2:.1f}" y="{y + 15.5:.1f}" text-anchor="middle" pointer-events="none"'
        parts.append(f'<rect {size} {fill(colour)} fill-opacity="{opacity:.2f}">{hint}</rect>')
        parts.append(f"<text {at}>{escaped(shown.strip())}</text>")
        x += wide + pad
        if piece.endswith("\n"):
            x, y = 8.0, y + 26
    return svg(parts, room + 16, y + 34, "coloured text", wide=True)
