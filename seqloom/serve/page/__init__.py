"""The page of the server: a few files of this folder, read once, with the colours of the reports.

A request names one of them; nothing else is ever looked up by what a request says.
"""

from importlib.resources import files

from starlette.responses import Response

from seqloom.charts.pages import properties
from seqloom.charts.palette import BETTER, DARK, PALETTE, WORSE

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",
}
SCRIPTS = ("elements", "server", "inside", "answers", "curves", "page")  # each imports from those before it
FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{f"/{name}.js": (f"{name}.js", "text/javascript") for name in SCRIPTS},
}  # by path


def colours(which: str) -> str:
    """As properties of a style sheet. which: "light" or "dark"."""
    named = {"worse": PALETTE[WORSE], "better": PALETTE[BETTER]} | {f"c{i}": each for i, each in enumerate(PALETTE)}
    return properties(which) + "".join(f"--{name}:{getattr(each, which)};" for name, each in named.items())


def style() -> str:
    return f":root {{ color-scheme: light dark; {colours('light')} }}\n{DARK} {{ :root {{ {colours('dark')} }} }}\n"


def read_page() -> dict[str, Response]:
    """What is answered for each path."""
    texts = {path: files(__name__).joinpath(name).read_text(encoding="utf-8") for path, (name, _) in FILES.items()}
    texts["/page.css"] = style() + texts["/page.css"]
    return {path: Response(texts[path], headers=HEADERS, media_type=kind) for path, (_, kind) in FILES.items()}
