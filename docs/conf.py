"""Sphinx: `make docs` builds the site from pages that tools/docs.py has put together."""

import re

import seqloom

project = "seqloom"
release = seqloom.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb", ".rst": "restructuredtext"}
exclude_patterns = ["files/**", "**.ipynb_checkpoints"]
myst_heading_anchors = 4
nb_execution_mode = "force"  # of notebooks; a failing cell fails the build
nb_execution_raise_on_error = True
nb_execution_timeout = 3600  # a comparison on a busy machine  # of one cell
nb_merge_streams = True
nb_execution_in_temp = True
smartquotes = False  # --resume is an option, not a dash
html_theme = "furo"
html_title = f"seqloom {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 88


def as_text(_app, _what, _name, _thing, _options, lines):
    """Docstrings are plain text with `code`: escape what reStructuredText would take for markup."""
    text = "\n".join(lines)
    parts = re.split(r"(`[^`\n]+`)", text)
    lines[:] = "".join(
        f"`{part}`"
        if part.startswith("`") and part.endswith("`") and len(part) > 2
        else re.sub(r"([*|\\]|_\b)", r"\\\1", part)
        for part in parts
    ).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", as_text, priority=400)  # before napoleon reads "Args:"
