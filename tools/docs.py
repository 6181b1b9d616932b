"""The documentation site: hand-written pages from docs/, reference and model pages generated from the code.

    python tools/docs.py                 builds build/docs/html (needs the extra `docs`); a warning is an error
    python tools/docs.py --pages DIR     writes the Markdown of the whole site to DIR, without building it

Hand-written pages are plain Markdown with relative links that hold in the repository. `assemble` copies them, rewrites links
that leave docs/, adds the generated pages, and appends the table of contents (docs/site.toml) to the start page.
"""

import argparse
import difflib
import inspect
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import typer.models

from seqloom import __all__ as public_names
from seqloom import errors
from seqloom.cli import GROUPS, app, command_name, register
from seqloom.cli.lineage import describe
from seqloom.comparison.plan import PlanConfig
from seqloom.config import Config
from seqloom.models import MODELS, OWN, model_class
from seqloom.objectives import OBJECTIVES, objective_class
from seqloom.recipes.library import built_in
from seqloom.recipes.schema import Recipe
from seqloom.tasks import TASKS, task_class

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!`)(!?\[[^\]\n]*\])\(([^)\s]+)\)")
# pages of the repository that lie outside docs/, and where they are on the site
OUTSIDE = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md"}

# ---- keys of recipes and plans --------------------------------------------------------------------------------------


class Key(NamedTuple):
    """One key of a TOML file."""

    path: str
    sentence: str
    default: str
    range: str


def keys_of(cls: type[Config], prefix: str = "") -> Iterator[Key]:
    """Every key below a config class. A section has a line of its own before its keys."""
    for name, field in cls.model_fields.items():
        path = f"{prefix}{name}"
        inner = section_of(field.annotation)
        yield Key(path, field.description or "", shown_default(field, inner), shown_range(field, inner))
        if inner is not None:
            yield from keys_of(inner, f"{path}.")


def section_of(kind: Any) -> type[Config] | None:
    if isinstance(kind, type) and issubclass(kind, Config):
        return kind
    return next((found for part in get_args(kind) if (found := section_of(part)) is not None), None)


def shown_default(field: Any, inner: type[Config] | None) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is None or inner is not None:
        return "none" if value is None or value == () else "see its keys"
    return code(toml_of(value))


def toml_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml_of(item)}" for key, item in value.items()) + "}"
    return f"{value:g}" if isinstance(value, float) else str(value)


BOUNDS = {
    "ge": "≥",
    "gt": ">",
    "le": "≤",
    "lt": "<",
    "multiple_of": "multiple of",
    "min_length": "at least",
    "max_length": "at most",
}
NAMES = {int: "whole number", float: "number", bool: "true or false", str: "string", dict: "table"}


def shown_range(field: Any, inner: type[Config] | None) -> str:
    bounds = [
        f"{words}\u00a0{value:g}{' long' if 'length' in name else ''}"
        for constraint in field.metadata
        for name, words in BOUNDS.items()
        if (value := getattr(constraint, name, None)) is not None
    ]
    return ", ".join([kind_of(field.annotation) if inner is None else kind_of_section(field.annotation), *bounds])


def kind_of(kind: Any) -> str:
    if get_origin(kind) is Annotated:
        return kind_of(get_args(kind)[0])
    parts = [part for part in get_args(kind) if part is not type(None)]
    if parts and not isinstance(parts[0], type) and all(isinstance(part, str | bool) for part in parts):
        return " or ".join(code(toml_of(part)) for part in parts)  # Literal
    origin = get_origin(kind)
    if origin is tuple:
        inside = [part for part in parts if part is not ...]
        several = f"list of {kind_of(inside[0])}s" if len(inside) == 1 else " and ".join(map(kind_of, inside))
        return several
    if origin is dict:
        return "table"
    if parts:
        return " or ".join(dict.fromkeys(kind_of(part) for part in parts))
    return NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def kind_of_section(kind: Any) -> str:
    return "sections, each `[[…]]`" if "tuple" in str(kind) else "section"


def code(text: str) -> str:
    return f"`{text}`"


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def key_table(keys: list[Key]) -> str:
    return table(
        ["key", "meaning", "default", "range"], [[code(key.path), key.sentence, key.default, key.range] for key in keys]
    )


def recipe_sections() -> dict[str, tuple[str, list[Key]]]:
    """Everything that a recipe may hold, by section: what the section is, and its keys."""
    found: dict[str, tuple[str, list[Key]]] = {}
    top: list[Key] = []
    for key in keys_of(Recipe):
        name = key.path.partition(".")[0]
        if name in ("batches", "train", "budget", "valid"):
            found.setdefault(f"[{name}]", ("", []))[1].append(key)
        else:
            top.append(key)
    found = {"The recipe": ("What stands at the top of a recipe.", top), **found}
    for section, names, cls in (("objective", OBJECTIVES, objective_class), ("task", TASKS, task_class)):
        for name in names:
            keys = [Key(f"{section}.name", f"`{name}` for this {section}.", "required", code(toml_of(name)))]
            found[f"[{section}] {name}"] = (
                first_sentence(cls(name)),
                [*keys, *keys_of(cls(name).Config, f"{section}.")],
            )
    return found


def model_keys(name: str) -> list[Key]:
    first = Key(
        "model.name", f"`{name if name not in OWN else 'cell'}` for this model.", "required", code(toml_of(name))
    )
    cls: Any = model_class(name)
    return [first, *keys_of(cls.Config, "model.")]


def first_sentence(thing: Any) -> str:
    """What a class says about itself in its first line, or its module does."""
    text = thing.__dict__.get("__doc__") or sys.modules[thing.__module__].__doc__ or ""
    return text.strip().partition("\n")[0]


def all_keys() -> list[Key]:
    """Every key of every recipe and plan."""
    found = [key for _, keys in recipe_sections().values() for key in keys]
    return found + [key for name in [*MODELS, *OWN] for key in model_keys(name)] + list(keys_of(PlanConfig))


def without_sentence(keys: list[Key]) -> list[str]:
    return sorted({key.path for key in keys if not re.fullmatch(r"[A-Z0-9`\[].*\.", key.sentence)})


# ---- commands ------------------------------------------------------------------------------------------------------


class Option(NamedTuple):
    """An option or argument of a command."""

    names: tuple[str, ...]  # empty: an argument
    value: str
    help: str
    default: str
    panel: str


def commands() -> dict[str, Any]:
    register()
    return {command_name(command): command for command in app.registered_commands}


def options_of(callback: Any) -> list[Option]:
    hints = get_type_hints(callback, include_extras=True)
    found = []
    for name, parameter in inspect.signature(callback).parameters.items():
        kind, *extras = (
            get_args(hints[name]) if get_origin(hints[name]) is Annotated else (hints[name], parameter.default)
        )
        info = next(each for each in extras if isinstance(each, typer.models.ParameterInfo))
        flag = kind is bool
        # in Annotated[…], the first name of an option takes the place of its default
        spelled = [
            each for each in (info.default, *(info.param_decls or ())) if isinstance(each, str) and each[:1] == "-"
        ]
        is_option = isinstance(info, typer.models.OptionInfo)
        names = tuple(spelled or [f"--{name.replace('_', '-')}"]) if is_option else ()
        value = "" if flag else info.metavar or value_name(kind, name, is_option)
        bounds = [f"{sign} {bound:g}" for sign, bound in (("≥", info.min), ("≤", info.max)) if bound is not None]
        default = parameter.default
        shown = "" if default is None or default is False else code(str(default))
        shown = "required" if default is inspect.Parameter.empty or default is ... else shown
        found.append(
            Option(names, value, " ".join([info.help or "", *bounds]).strip(), shown, info.rich_help_panel or "")
        )
    return found


def value_name(kind: Any, name: str, is_option: bool) -> str:
    if not is_option:
        return name.upper()
    parts = [part for part in (get_args(kind) or (kind,)) if part is not type(None)]
    words = {int: "N", float: "X", Path: "PATH", str: "TEXT"}
    return next((words[part] for part in [*parts, *get_args(parts[0])] if part in words), "VALUE")


def commands_page() -> str:
    found = commands()
    lines = [
        "# Commands",
        "",
        "Every command with every option, read from the program itself. `seqloom COMMAND --help` prints the same.",
        "`--quiet`, `--debug` and `--version` work with every command.",
        "",
        "## Exit codes",
        "",
        table(["code", "meaning"], [["0", "Done."], *exit_codes()]),
    ]
    for group, names in GROUPS.items():
        lines += ["", f"## {group}"]
        for name in names:
            command = found[name]
            options = options_of(command.callback)
            required = {option.value: option.default == "required" for option in options if not option.names}
            arguments = " ".join(value if needed else f"[{value}]" for value, needed in required.items())
            lines += ["", f"### {name}", "", inspect.getdoc(command.callback) or "", "", "```text"]
            lines += [f"seqloom {name} {arguments} [OPTIONS]".replace("  ", " "), "```", ""]
            rows = [
                [
                    " ".join(filter(None, [", ".join(map(code, option.names)), option.value])),
                    " ".join(filter(None, [f"*{option.panel}.*" if option.panel else "", option.help])),
                    option.default,
                ]
                for option in options
            ]
            lines.append(table(["option", "meaning", "default"], rows))
            examples = [line for line in (command.epilog or "").split("\n") if line.startswith(("seqloom", "echo"))]
            if examples:
                lines += ["", "```text", *examples, "```"]
    return "\n".join(lines) + "\n"


def exit_codes() -> list[list[str]]:
    classes = [
        each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, errors.SeqloomError)
    ]
    found = {each.exit_code: (each.__doc__ or "Out of memory.").strip() for each in reversed(classes)}
    return [[str(number), meaning] for number, meaning in sorted(found.items())]


# ---- pages of keys, names and models -------------------------------------------------------------------------------


def recipes_page() -> str:
    lines = [
        "# Recipe keys",
        "",
        "Every key of a recipe, read from the code. `seqloom recipes NAME --toml` prints a whole recipe to edit, and",
        "`--set path=value` changes one key. The keys of `[model]` are on the [page of each model](../models/index.md).",
    ]
    for title, (sentence, keys) in recipe_sections().items():
        lines += ["", f"## {title}", "", *([sentence, ""] if sentence else []), key_table(keys)]
    lines += [
        "",
        "## [model] cell",
        "",
        "A cell of your own; see [plugins](../plugins.md).",
        "",
        key_table(model_keys("cell")),
    ]
    return "\n".join(lines) + "\n"


def plans_page() -> str:
    return "\n".join(
        [
            "# Plan keys",
            "",
            "Every key of a plan for `seqloom compare`, read from the code. Paths are relative to the plan. How plans are used:",
            "[compare models](../howto/compare.md), [ladders and search](../howto/ladder-and-search.md).",
            "",
            key_table(list(keys_of(PlanConfig))),
            "",
        ]
    )


def python_page() -> str:
    import seqloom

    lines = ["# Python", "", "Every public name of the package. Each is imported at its first use.", ""]
    for name in public_names:
        thing = getattr(seqloom, name)
        if inspect.isclass(thing):
            block = [f".. autoclass:: seqloom.{name}", "   :members:", "   :inherited-members:"]
        elif callable(thing):
            block = [f".. autofunction:: seqloom.{name}"]
        else:
            block = [f".. py:data:: seqloom.{name}", "", f"   {type(thing).__name__}"]
        lines += [f"## {name}", "", "```{eval-rst}", *block, "```", ""]
    return "\n".join(lines)


def model_page(name: str, results: list["Figures"]) -> str:
    about, cls = describe(name), model_class(name)
    parent = cls.lineage.parent
    source = Path(inspect.getfile(cls))
    doc = (sys.modules[cls.__module__].__doc__ or "").strip()
    summary, _, rest = doc.partition("\n")
    lines = [f"# {name}", "", summary, ""]
    rows = [["paper", about["paper"]], ["year", str(about["year"])], ["kind", about["kind"]]]
    rows += [[kind, ", ".join(map(code, about[kind]))] for kind in ("objectives", "tasks") if about[kind]]
    rows += [["follows", f"[{parent}]({parent}.md)"]] if parent else []
    rows += [["file", code(str(source.relative_to(ROOT)))]]
    lines += [table(["", ""], rows), ""]
    own = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
    lines += [
        *([own.replace("\n", " "), ""] if own else []),
        *(["```text", inspect.cleandoc(rest).strip(), "```", ""] if rest.strip() else []),
    ]
    lines += ["## Sizes", ""]
    sizes = [
        [code(f"{name}-{preset}"), f"{count:,}" if count else "depends on the text", shown_sizes(f"{name}-{preset}")]
        for preset, count in about["presets"].items()
    ]
    lines += [table(["recipe", "parameters", "sizes"], sizes), ""]
    lines += [
        "Parameters are those of the model with its output layer, in its published vocabulary or one of 8,192.",
        "",
    ]
    lines += ["## Keys", "", key_table(model_keys(name)), ""]
    if parent:
        lines += [f"## New against {parent}", "", *diff_of(name, parent), ""]
    if slides := lecture_slides().get(name):
        lines += ["## In lectures", "", "Slides that introduce it:", "", *slides, ""]
    lines += figures_of(name, results)
    return "\n".join(lines)


def diff_of(name: str, parent: str) -> list[str]:
    """What changes from one model's file to the other's. Lines of a parent class are inherited, not removed."""
    cls, above = model_class(name), model_class(parent)
    files = [Path(inspect.getfile(each)) for each in (above, cls)]
    old, new = map(body_of, files)
    if issubclass(cls, above):
        told = f"It inherits from [{parent}]({parent}.md); `+` marks what its own file adds or replaces:"
        return [told, "", "```diff", *(line for line in difflib.ndiff(old, new) if line[0] in " +"), "```"]
    names = [f"models/{path.name}" for path in files]
    changed = difflib.unified_diff(old, new, *names, n=2, lineterm="")
    return [f"What changes from the file of [{parent}]({parent}.md) to this one:", "", "```diff", *changed, "```"]


def lecture_slides() -> dict[str, list[str]]:
    """Slides of docs/lectures.toml, by model."""
    given = tomllib.loads((DOCS / "lectures.toml").read_text(encoding="utf-8"))
    return {
        model: [f"- “{title}” in {given['lectures'][lecture]}" for lecture, title in slides.items()]
        for model, slides in given["slides"].items()
    }


def body_of(path: Path) -> list[str]:
    """The lines of a model's file without its imports."""
    text = re.sub(r"^(from|import) [^\n(]*(\([^)]*\))?\n", "", path.read_text(encoding="utf-8"), flags=re.M)
    return re.sub(r"\n{3,}", "\n\n", text).split("\n")


def shown_sizes(recipe: str) -> str:
    return ", ".join(f"{key} {value}" for key, value in built_in(recipe)["model"].items() if key != "name")


# how rows of result pages call a model
LABELS = {
    "ngram": "n-gram", "nnlm": "NNLM", "rnn": "RNN", "irnn": "IRNN", "jordan": "Jordan", "gru": "GRU", "lstm": "LSTM",
    "awd-lstm": "AWD-LSTM", "big-lstm": "big LSTM", "elmo": "ELMo", "word2vec": "word2vec", "gpt": "GPT", "gpt2": "GPT-2",
    "transformer-xl": "Transformer-XL", "xlnet": "XLNet",
    "bert": "BERT", "roberta": "RoBERTa", "xlm": "XLM", "xlm-r": "XLM-R", "albert": "ALBERT", "electra": "ELECTRA",
    "ernie": "ERNIE", "transformer": "Transformer",
}  # fmt: skip


class Figures(NamedTuple):
    """A table of a results page."""

    page: str
    title: str
    withdrawn: bool
    header: list[str]
    rows: list[list[str]]


def result_tables() -> list[Figures]:
    found = []
    for path in sorted((DOCS / "results").glob("*.md"), reverse=True):
        text = path.read_text(encoding="utf-8")
        title = text.partition("\n")[0].lstrip("# ")
        for block in re.findall(r"^\|.*(?:\n\|.*)+", text, re.M):
            lines = [cells_of(line) for line in block.split("\n")]
            found.append(Figures(path.name, title, "**Withdrawn in part" in text, lines[0], lines[2:]))
    return found


def cells_of(line: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def figures_of(name: str, tables: list[Figures]) -> list[str]:
    recipes = {f"{name}-{preset}" for preset in describe(name)["presets"]}
    wanted = {LABELS.get(name, name).lower(), *recipes}
    lines: list[str] = []
    for each in tables:
        rows = [row for row in each.rows if any(re.sub(r"\s*\(.*", "", cell).lower() in wanted for cell in row[:2])]
        if rows:
            note = (
                "; withdrawn in part, see [what changed](../results/2026-11-16-what-changed.md)"
                if each.withdrawn
                else ""
            )
            lines += ["", f"From [{each.title}](../results/{each.page}){note}:", "", table(each.header, rows)]
    if not lines:
        return []
    return [
        "## Our figures",
        "",
        "What was measured with this project; each page has the data, the commands and the commit.",
        *lines,
        "",
    ]


def models_page() -> str:
    rows = []
    for name in MODELS:
        about, parent = describe(name), model_class(name).lineage.parent
        follows = f"[{parent}]({parent}.md)" if parent else ""
        rows.append([f"[{name}]({name}.md)", str(about["year"]), about["kind"], about["paper"], follows])
    rows.sort(key=lambda row: row[1])
    return "\n".join(
        [
            "# Models",
            "",
            "The lineage by year, from `seqloom models`. One paper is one file. Each page has the paper, the sizes, every key,",
            "what is new against the model that it follows, and what was measured.",
            "",
            table(["model", "year", "kind", "paper", "follows"], rows),
            "",
        ]
    )


def results_page() -> str:
    rows = []
    for path in sorted((DOCS / "results").glob("*.md"), reverse=True):
        text = path.read_text(encoding="utf-8")
        rows.append(
            [
                f"[{text.partition(chr(10))[0].lstrip('# ')}]({path.name})",
                "in part" if "**Withdrawn in part" in text else "",
            ]
        )
    return "\n".join(
        [
            "# Results",
            "",
            "Measured figures, each with data, budget, seeds, command, date and commit.",
            "",
            table(["page", "withdrawn"], rows),
            "",
        ]
    )


# ---- the site ------------------------------------------------------------------------------------------------------


def generated() -> dict[str, str]:
    """The generated pages, by their path on the site."""
    tables = result_tables()
    pages = {
        "reference/commands.md": commands_page(),
        "reference/recipes.md": recipes_page(),
        "reference/plans.md": plans_page(),
        "reference/python.md": python_page(),
        "models/index.md": models_page(),
        "results/index.md": results_page(),
    }
    return pages | {f"models/{name}.md": model_page(name, tables) for name in MODELS}


def assemble(target: Path) -> None:
    """The source of the whole site."""
    shutil.copytree(
        DOCS, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("package.md", "_build", "__pycache__")
    )
    for page, text in generated().items():
        (target / page).parent.mkdir(parents=True, exist_ok=True)
        (target / page).write_text(text, encoding="utf-8")
    for path in sorted(DOCS.rglob("*.md")):
        if path.name != "package.md":
            page = path.relative_to(DOCS)
            (target / page).write_text(on_site(path, page, target), encoding="utf-8")
    for source, page in OUTSIDE.items():
        if source != "README.md":
            (target / page).write_text(on_site(ROOT / source, Path(page), target), encoding="utf-8")
    for page, text in contents(target).items():
        with (target / f"{page}.md").open("a", encoding="utf-8") as file:
            file.write("\n" + text)


def on_site(path: Path, page: Path, target: Path) -> str:
    """The text of a page with links that hold on the site. Files outside docs/ that it links to are copied along."""

    def moved(match: re.Match[str]) -> str:
        label, link = match.groups()
        name, hash_, part = link.partition("#")
        if re.match(r"[a-z]+:", link) or not name:
            return match.group(0)
        goal = (path.parent / name).resolve()
        if goal.is_relative_to(DOCS):
            place = goal.relative_to(DOCS)
        else:
            place = Path(OUTSIDE.get(str(goal.relative_to(ROOT)), f"files/{goal.relative_to(ROOT)}"))
            if place.parts[0] == "files" and goal.is_file():
                (target / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(goal, target / place)
        if (DOCS / place).is_dir():
            place = place / "index.md"
        up = "../" * (len(page.parts) - 1)
        return f"{label}({up}{place.as_posix()}{hash_}{part})"

    return LINK.sub(moved, path.read_text(encoding="utf-8"))


def contents(target: Path) -> dict[str, str]:
    """The tables of contents as hidden directives of Sphinx, by the page that has them: the start page unless a group is `under`
    another one."""
    parts: dict[str, str] = {}
    for group in tomllib.loads((DOCS / "site.toml").read_text(encoding="utf-8"))["groups"]:
        pages = [
            page for given in group["pages"] for page in (sorted_pages(target, given) if "*" in given else [given])
        ]
        if not pages:
            continue
        under = group.get("under", "index")
        caption = [f":caption: {group['title']}"] if "title" in group else []
        listed = [f"/{page}" for page in dict.fromkeys(pages) if page != under]
        parts[under] = "\n".join([parts.get(under, ""), "```{toctree}", ":hidden:", *caption, "", *listed, "```", ""])
    return parts


def sorted_pages(target: Path, pattern: str) -> list[str]:
    found = sorted(
        str(path.relative_to(target).with_suffix(""))
        for path in target.glob(f"{pattern}.*")
        if path.suffix in (".md", ".ipynb")
    )
    if pattern.startswith("models/"):
        return [page for name in MODELS for page in found if page == f"models/{name}"]
    return list(reversed(found)) if pattern.startswith("results/") else found


def broken_links(site: Path) -> list[str]:
    """Relative links of Markdown pages that lead nowhere."""
    found = []
    for page in sorted(site.rglob("*.md")):
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
        for _, link in LINK.findall(text):
            name, _, part = link.partition("#")
            goal = page.parent / name if name else page
            if re.match(r"[a-z]+:", link):
                continue
            if not goal.is_file():
                found.append(f"{page.relative_to(site)}: {link}")
            elif part and part not in anchors(goal):
                found.append(f"{page.relative_to(site)}: {link} (no such heading)")
    return found


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def build(target: Path) -> int:
    from sphinx.cmd.build import main as sphinx

    # cells call the program as a reader with an active environment would
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    source = target / "source"
    shutil.rmtree(target, ignore_errors=True)
    source.mkdir(parents=True)
    assemble(source)
    return sphinx(
        ["-b", "html", "-W", "--keep-going", "-q", "-d", str(target / "doctrees"), str(source), str(target / "html")]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the documentation site.")
    parser.add_argument("--pages", type=Path, metavar="DIR", help="write the pages to DIR and build nothing")
    parser.add_argument(
        "--out", type=Path, default=ROOT / "build/docs", help="folder of the site (default: build/docs)"
    )
    options = parser.parse_args()
    if options.pages is not None:
        assemble(options.pages)
        return
    code_ = build(options.out)
    if not code_:
        print(f"open {options.out / 'html/index.html'}")
    sys.exit(code_)


if __name__ == "__main__":
    main()
