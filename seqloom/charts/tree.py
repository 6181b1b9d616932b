"""A tree that grows to the right: beginnings of texts and what followed them."""

from collections.abc import Mapping
from typing import NamedTuple

from seqloom.charts.axes import MUTED_TEXT, escaped, shortened, text_width
from seqloom.charts.draw import svg
from seqloom.charts.palette import AXIS, BETTER, fill, stroke

ROW, LONGEST = 34, 110.0

Path = tuple[int, ...]


class Node(NamedTuple):
    text: str
    number: str  # below the text
    hint: str = ""
    best: bool = False  # on the way to the best result
    ends: bool = False  # a result


def tree(nodes: Mapping[Path, Node], name: str) -> str:
    """By the numbers of their branches from the root on, which is (). A node stands beside the first of those that follow it."""
    children: dict[Path, list[Path]] = {path: [] for path in nodes}
    for path in nodes:
        if path:
            children[path[:-1]].append(path)
    rows: dict[Path, float] = {}
    reached = 0
    stack: list[Path] = [()]
    while stack:  # depth first, without recursion: hypotheses may be long
        path = stack.pop()
        if not children[path]:
            rows[path] = float(reached)
            reached += 1
        stack += sorted(children[path], key=lambda each: (not nodes[each].best, each), reverse=True)
    for path in sorted(nodes, key=len, reverse=True):
        if children[path]:
            rows[path] = min(rows[each] for each in children[path])
    depth = max(map(len, nodes))
    widths = [46.0] * (depth + 1)
    for path, node in nodes.items():
        wide = max(text_width(shortened(node.text, LONGEST)), text_width(node.number)) + 46
        widths[len(path)] = max(widths[len(path)], wide)
    lefts = [8 + sum(widths[:i]) for i in range(depth + 1)]
    parts = []
    for path, node in nodes.items():
        x, y = lefts[len(path)], 8 + ROW * rows[path]
        if path:
            before = path[:-1]
            start, high = lefts[len(before)] + widths[len(before)] - 34, 8 + ROW * rows[before] + 12
            line = stroke(BETTER) if node.best else f'class="axis" stroke="{AXIS.light}"'
            shape = f"M{start:.1f} {high:.1f}C{x - 14:.1f} {high:.1f} {start + 14:.1f} {y + 12:.1f} {x - 6:.1f} {y + 12:.1f}"
            parts.append(f'<path d="{shape}" fill="none" {line} stroke-width="{2.5 if node.best else 1}"/>')
        weight = ' font-weight="600"' if node.best else ""
        text = escaped(shortened(node.text, LONGEST)) + (" ■" if node.ends else "")
        hint = f"<title>{escaped(node.hint)}</title>" if node.hint else ""
        shade = f'<rect x="{x - 4:.1f}" y="{y - 2:.1f}" width="{widths[len(path)] - 30:.1f}" height="{ROW - 3}" rx="4" '
        shade += f'{fill(BETTER)} fill-opacity="{0.18 if node.best else 0.05}">{hint}</rect>'
        parts.append(
            f'{shade}<g pointer-events="none"><text x="{x:.1f}" y="{y + 12:.1f}"{weight}>{text}</text>'
            f'<text x="{x:.1f}" y="{y + 25:.1f}" font-size="11" {MUTED_TEXT}>{escaped(node.number)}</text></g>'
        )
    return svg(parts, lefts[-1] + widths[-1] + 8, 16 + ROW * reached, name)
