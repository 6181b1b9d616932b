"""A piano roll: notes as bars over time, one line a pitch, and arcs between tokens of the song."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from seqloom.charts.axes import escaped
from seqloom.charts.draw import Entry, draw_legend, svg
from seqloom.charts.palette import PALETTE, stroke
from seqloom.charts.weights import swatch_of

LINE = 7.0  # pixels of a semitone
LEFT, TOP, BOTTOM = 40.0, 8.0, 30.0
NAMES = ("C", "C♯", "D", "D♯", "E", "F", "F♯", "G", "G♯", "A", "A♯", "B")
WIDTH = 900.0
Place = Callable[[float, int | None], tuple[float, float]]


class Bar(NamedTuple):
    start: float
    end: float
    pitch: int
    hint: str = ""
    group: int = 0  # decides its colour


class Arc(NamedTuple):
    """From one token to another: where each stands. A pitch of None is the line below all."""

    begin: tuple[float, int | None]
    end: tuple[float, int | None]
    weight: float
    group: int


def pitch_name(pitch: int) -> str:
    """60 is C4."""
    return f"{NAMES[pitch % 12]}{pitch // 12 - 1}"


def piano_roll(
    bars: Sequence[Bar],
    arcs: Sequence[Arc],
    name: str,
    legend: Sequence[str] = (),
    marked: tuple[float, int | None] | None = None,
) -> str:
    """legend: the names of the groups of arcs. marked: the token that arcs begin at, drawn as a ring."""
    low = min((bar.pitch for bar in bars), default=60) - 2
    high = max((bar.pitch for bar in bars), default=60) + 1
    length = max((bar.end for bar in bars), default=1.0)
    scale = (WIDTH - LEFT - 10) / max(length, 1e-9)
    entries = [Entry(each, swatch_of(group % len(PALETTE))) for group, each in enumerate(legend)]
    drawn_legend, tall = draw_legend(entries, LEFT, 14, WIDTH - LEFT - 10) if entries else ([], 0.0)
    top = TOP + tall

    def place(time: float, pitch: int | None) -> tuple[float, float]:
        return LEFT + time * scale, top + (high - (low if pitch is None else pitch)) * LINE + LINE / 2

    parts = [*drawn_legend, *_lines(low, high, place), *_seconds(length, place, low)]
    for bar in bars:
        (x, y), (end, _) = place(bar.start, bar.pitch), place(bar.end, bar.pitch)
        size = (
            f'x="{x:.1f}" y="{y - LINE / 2 + 0.5:.1f}" width="{max(end - x - 0.6, 1):.1f}" height="{LINE - 1}" rx="1.5"'
        )
        hint = f"<title>{escaped(bar.hint)}</title>" if bar.hint else ""
        parts.append(f'<rect {size} fill="#717784" fill-opacity="0.55">{hint}</rect>')
    for arc in arcs:
        (x, y), (to, below) = place(*arc.begin), place(*arc.end)
        lift = min(abs(x - to) / 3, 60.0) + 6
        path = f"M{x:.1f} {y:.1f}C{x:.1f} {y - lift:.1f} {to:.1f} {below - lift:.1f} {to:.1f} {below:.1f}"
        style = f'fill="none" {stroke(arc.group % len(PALETTE))} stroke-width="{0.7 + 2.5 * arc.weight:.1f}"'
        parts.append(f'<path d="{path}" {style} stroke-opacity="{max(arc.weight, 0.05) ** 0.5:.2f}"/>')
    if marked is not None:
        x, y = place(*marked)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="none" stroke-width="2" {stroke(0)}/>')
    return svg(parts, WIDTH, top + (high - low + 1) * LINE + BOTTOM, name, wide=True)


def _lines(low: int, high: int, place: Place) -> list[str]:
    """A faint line for every C, with its name."""
    parts = []
    for pitch in range(low, high + 1):
        if pitch % 12 == 0:
            x, y = place(0.0, pitch)
            parts.append(f'<text x="{x - 8:.1f}" y="{y + 4:.1f}" text-anchor="end">{pitch_name(pitch)}</text>')
            parts.append(
                f'<path d="M{x:.1f} {y:.1f}H{WIDTH - 10:.1f}" class="axis" stroke="#717784" stroke-opacity="0.3"/>'
            )
    return parts


def _seconds(length: float, place: Place, low: int) -> list[str]:
    step = next(each for each in (1, 2, 5, 10, 30, 60, 300, 3600, 86_400) if length / each <= 12)
    parts = []
    for second in range(0, int(length) + 1, step):
        x, y = place(second, low)
        parts.append(f'<text x="{x:.1f}" y="{y + 22:.1f}" text-anchor="middle">{second} s</text>')
    return parts
