"""What every page of the project must be: well-formed, in need of nothing from outside, and with no script but its own."""

import base64
import hashlib
import re
from html.parser import HTMLParser

VOID = ("meta", "link", "br", "img", "input")


class Page(HTMLParser):
    """The tags of a page, their attributes, and the text between them. Reading it fails where tags do not match."""

    def __init__(self, source: str):
        super().__init__()
        self.source = source
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []  # tag, name, value
        self.text = ""
        self.scripts: list[str] = []
        self.open: list[str] = []
        self.feed(source)
        self.close()
        assert not self.open, f"never closed: {self.open}"

    def handle_starttag(self, tag, attributes):
        self.add(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag, attributes):
        self.add(tag, attributes)

    def add(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _tag, given, value in self.attributes if given == name]


def check_page(source: str, files: frozenset[str] = frozenset()) -> Page:
    """files: beside the page, that it may link to."""
    page = Page(source)
    places = page.values("id")
    assert len(places) == len(set(places)), "two parts have one name"
    for address in page.values("href") + page.values("src"):
        inside = address.startswith("#") and address[1:] in places
        assert inside or address == "data:," or address.startswith("data:text/csv;") or address in files, address
    assert not [name for _tag, name, _value in page.attributes if name.startswith("on")], "a script in an attribute"
    assert "http" not in source.replace("http-equiv", ""), "it points outside"
    assert len(page.scripts) == 1, "a script that is not its own"
    policy = next(value for value in page.values("content") if "script-src" in value)
    own = base64.b64encode(hashlib.sha256(page.scripts[0].encode()).digest()).decode()
    assert re.search(r"script-src ([^;]*)", policy)[1] == f"'sha256-{own}'", "the policy allows another script"
    assert policy.startswith("default-src 'none'")
    return page
