"""How far one has to walk in the code, measured: by calls that are followed, and by counts over the sources.

    python tools/walks.py [--json]      of the tree that this script stands in
    python tools/walks.py --tree PATH   of another one

A walk is `pretrain bert-tiny` or `finetune --task classify` in this process, two steps on made-up text, seen by a reader who
opens every function where it is called first. Each function of seqloom counts once, at its first call; lambdas, comprehensions,
bodies of classes and what runs while a module is imported do not count. The modules of these first calls, in order, are the
walk. `modules` are the different ones in it; a `return` is a step of the walk into another module than the one before, which was
in it already. (At a9d7d73 that gives 55 / 134 and 72 / 159; the design page has 54 / 135 and 71 / 157.)

Complexity is McCabe's with and, or, conditional expressions, comprehensions and their ifs counted: 1 + the number of branches.
"""

import argparse
import ast
import inspect
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def followed(package: Path, work: Callable[[], Any]) -> tuple[int, int]:
    """Modules that a call goes through, and how often it returns to one."""
    seen: set[Any] = set()
    walk: list[str] = []
    prefix = f"{package}{os.sep}"

    def look(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or code in seen or not code.co_filename.startswith(prefix) or code.co_name.startswith("<"):
            return
        seen.add(code)
        if code.co_flags & inspect.CO_OPTIMIZED and not importing(frame):  # the body of a class is none
            walk.append(code.co_filename)

    sys.setprofile(look)
    try:
        work()
    finally:
        sys.setprofile(None)
    return len(set(walk)), returns(walk)


def importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def returns(walk: list[str]) -> int:
    """Steps into a module that was left before."""
    known: set[str] = set()
    count = 0
    for before, now in zip(["", *walk], walk, strict=False):
        count += now != before and now in known
        known.add(now)
    return count


def walks(tree: Path) -> dict[str, int]:
    """Runs both commands with the seqloom of a tree, which must be on the path."""
    sys.path.insert(0, str(Path(__file__).parent))
    import golden

    import seqloom

    package = Path(seqloom.__file__).parent
    if package != tree / "seqloom":
        raise SystemExit(f"seqloom comes from {package}, not from {tree}: call it through main()")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        golden.write_text(place)
        text = [str(place / "text.txt"), "--out", str(place / "data"), "--valid", "0.1", "--tokenizer", "wordpiece"]
        golden.call(["prepare", *text, "--keep-duplicates"])
        steps = ["--set", "budget={steps=2}", "--set", "train.log_every=1", "--device", "cpu"]
        bert, run = str(place / "bert"), str(place / "run")
        files = [str(place / f"{split}.classify.jsonl") for split in ("train", "valid")]
        pretrain = ["pretrain", "bert-tiny", "--data", str(place / "data"), "--out", bert, *steps, *golden.PACKED]
        given = ["--task", "classify", "--train", files[0], "--valid", files[1]]
        found = {}
        for name, command in (("pretrain", pretrain), ("finetune", ["finetune", bert, *given, "--out", run, *steps])):
            found[f"{name}_modules"], found[f"{name}_returns"] = followed(package, lambda c=command: golden.call(c))
        return found


def parsed(folder: Path) -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(folder.rglob("*.py")):
        yield path, ast.parse(path.read_text("utf-8"))


def learners(package: Path) -> set[str]:
    """Names of all classes below Learner, and its own."""
    bases: dict[str, set[str]] = {}
    for _, tree in parsed(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                names = {part.id if isinstance(part, ast.Name) else getattr(part, "attr", "") for part in node.bases}
                bases.setdefault(node.name, set()).update(names)
    found, size = {"Learner", "Objective", "Task"}, 0
    while size != len(found):
        size = len(found)
        found |= {name for name, above in bases.items() if above & found}
    return found


def questions_of_kind(package: Path, questions: tuple[str, ...], kinds: set[str]) -> int:
    """Calls of isinstance (issubclass) that name one of these classes."""
    count = 0
    for _, tree in parsed(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in questions:
                named = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                named |= {part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)}
                count += bool(named & kinds)
    return count


def backbone_attributes(package: Path) -> int:
    """Class attributes of Backbone, by annotation or value."""
    for _, tree in parsed(package):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == "Backbone":
                return sum(isinstance(part, ast.AnnAssign | ast.Assign) for part in node.body)
    return 0


def functions(tree: ast.AST, where: str = "") -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        name = where
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{where}.{node.name}"
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        yield from functions(node, name)


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    given = node.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return [each for each in every if each.arg not in ("self", "cls")]


def is_command(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """A command of the command line: typer makes an option of each parameter, so their number is that of the options."""
    return any(ast.unparse(each).startswith("app.command(") for each in node.decorator_list)


def loose_records(package: Path) -> int:
    """Parameters that are dict[str, Any] in comparison/ and the card."""
    count = 0
    for path, tree in parsed(package):
        if "comparison" in path.relative_to(package).parts or path.stem == "card":
            for _, node in functions(tree):
                notes = [ast.unparse(each.annotation) for each in parameters_of(node) if each.annotation is not None]
                count += sum("dict[str, Any]" in note for note in notes)
    return count


def complexity(function: ast.AST) -> int:
    count = 1
    for node in ast.walk(function):
        match node:
            case (
                ast.If()
                | ast.For()
                | ast.AsyncFor()
                | ast.While()
                | ast.ExceptHandler()
                | ast.IfExp()
                | ast.match_case()
            ):
                count += 1
            case ast.BoolOp():
                count += len(node.values) - 1
            case ast.comprehension():
                count += 1 + len(node.ifs)
    return count


def largest(package: Path, measure: Callable[[Any], int]) -> list[tuple[int, str]]:
    """The five functions of which there is most."""
    found = []
    for path, tree in parsed(package):
        stem = ".".join(path.relative_to(package).with_suffix("").parts)
        found += [(measure(node), f"{stem}{name}") for name, node in functions(tree)]
    return sorted(found, reverse=True)[:5]


def import_order(tree: Path) -> int:
    for node in ast.walk(ast.parse((tree / "tests" / "test_imports.py").read_text("utf-8"))):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "ORDER":
            return len(ast.literal_eval(node.value))
    return 0


def figures(tree: Path) -> dict[str, Any]:
    package = tree / "seqloom"
    outside = ("__init__", "__main__")
    return {
        "top_level_modules": sum(path.stem not in outside for path in package.glob("*.py")),
        "folders": sum((path / "__init__.py").exists() for path in package.iterdir()),
        "import_order": import_order(tree),
        "isinstance_on_learners": questions_of_kind(package, ("isinstance",), learners(package)),
        "isinstance_and_issubclass_on_learners_and_bodies": questions_of_kind(
            package, ("isinstance", "issubclass"), learners(package) | {"Backbone", "EncoderDecoder"}
        ),
        "backbone_attributes": backbone_attributes(package),
        "dict_parameters_in_comparison_and_card": loose_records(package),
        "largest_complexity": largest(package, complexity),
        "most_parameters": largest(package, lambda node: 0 if is_command(node) else len(parameters_of(node))),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--walk", action="store_true", help=argparse.SUPPRESS)  # in a process of its own
    options = parser.parse_args()
    tree = options.tree.resolve()
    if options.walk:
        print(json.dumps(walks(tree)))
        return
    environment = os.environ | {"PYTHONPATH": str(tree)}
    call = [sys.executable, __file__, "--walk", "--tree", str(tree)]
    done = subprocess.run(
        call, env=environment, stdout=subprocess.PIPE, text=True, check=True, cwd=tempfile.gettempdir()
    )
    found = json.loads(done.stdout.splitlines()[-1]) | figures(tree)
    if options.as_json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        told = ", ".join(f"{what} {number}" for number, what in value) if isinstance(value, list) else value
        print(f"{name.replace('_', ' '):50} {told}")


if __name__ == "__main__":
    main()
