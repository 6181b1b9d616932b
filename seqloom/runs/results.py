"""What runs give back in Python: results and reports that show themselves, and tables of pandas and datasets in and out.

Neither pandas nor datasets is imported here unless it is asked for: somebody who passes a table of theirs has imported it.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from seqloom.charts import NONE, note, table
from seqloom.errors import ModelError, UsageError, printable

SHOWN = 20  # rows of a table in a notebook
LONGEST = 160  # characters of a cell

Table = Any  # a pandas DataFrame or Series, or a Dataset of Hugging Face's datasets


class Results(list[dict[str, Any]]):
    """A list with a dict for each text: predictions, scores or translations.

    inputs: the fields of each text that was given, shown beside the results.
    """

    def __init__(self, rows: Iterable[dict[str, Any]] = (), inputs: Sequence[Mapping[str, Any]] = ()):
        super().__init__(rows)
        self.inputs = list(inputs)

    def __repr__(self) -> str:
        errors = sum("error" in row for row in self)
        wrong = f", {errors} with an error" if errors else ""
        first = "; ".join(", ".join(f"{key} {short(value, 40)}" for key, value in row.items()) for row in self[:3])
        more = "; …" if len(self) > 3 else ""
        return one_line(
            f"<{len(self)} result{'s' * (len(self) != 1)}{wrong}: {first}{more}>" if self else "<0 results>"
        )

    def _repr_html_(self) -> str:
        rows = self.beside_inputs(self[:SHOWN])
        names = list(dict.fromkeys(name for row in rows for name in row))
        lines = [[str(i), *(short(row[name]) if name in row else NONE for name in names)] for i, row in enumerate(rows)]
        left = len(self) - len(rows)
        return table(["", *names], lines) + note(f"and {left:,} more" if left else "")

    def beside_inputs(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Results with the fields that they are of before them."""
        given = self.inputs or [{}] * len(self)
        return [{**fields, **row} for fields, row in zip(given, rows, strict=False)]

    def columns(self, given: Mapping[Any, Callable[[], list[Any]]] = MappingProxyType({})) -> dict[str, list[Any]]:
        """The results by column. A dict in a result (the probabilities of classes) has a column for each of its keys, as
        "probabilities.positive". given: other columns; a result of such a name becomes "predicted_NAME", unless it only repeats
        the column, as an id does."""
        rows = [flatten(row) for row in self]
        found: dict[str, list[Any]] = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values, new = [row.get(name) for row in rows], name
            if given and (name == "id" or (name in given and given[name]() == values)):
                continue
            while new in given or new in found:
                new = f"predicted_{new}"
            found[new] = values
        return found

    def to_pandas(self) -> Any:
        """A DataFrame with a row for each text: its fields, then the results, as in `columns`."""
        pandas = import_optional("pandas", "to_pandas")
        if not self.inputs:
            return pandas.DataFrame(self.columns())
        given = pandas.DataFrame([dict(fields) for fields in self.inputs])
        return beside_frame(given, self)


class Report(dict[str, Any]):
    """The figures of an evaluation: a dict that shows itself."""

    def __repr__(self) -> str:
        figures = {name: value for name, value in self.items() if isinstance(value, int | float | str)}
        return one_line(f"<report: {', '.join(f'{name} {short(value, 40)}' for name, value in figures.items())}>")

    def _repr_html_(self) -> str:
        return table(["", "value"], [[name, short(value)] for name, value in self.items()])


def short(value: Any, longest: int = LONGEST) -> str:
    """A value in a few words."""
    if isinstance(value, bool) or value is None:
        text = NONE if value is None else str(value)
    elif isinstance(value, float):
        text = f"{value:.4g}"
    elif isinstance(value, int):
        text = f"{value:,}"
    elif isinstance(value, Mapping) and {"text", "kind"} <= set(value):  # an entity
        text = f"{value['text']} ({value['kind']})"
    elif isinstance(value, Mapping):
        text = ", ".join(f"{key} {short(each)}" for key, each in value.items())
    elif isinstance(value, list | tuple):
        text = (", " if any(isinstance(each, Mapping) for each in value) else " ").join(map(short, value[:longest]))
    else:
        text = str(value)
    text = " ".join(printable(text).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, Mapping) else {name: value}
    return found


def import_optional(module: str, what: str, package: str | None = None) -> Any:
    """A module that is not needed otherwise. what: that needs it, for the message; package: that has it, if of another name."""
    package = package or module
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ModelError(f"{what} needs {package}, which is not installed: pip install {package}") from error


# ---- tables in and out


class Given(NamedTuple):
    """Texts that were given in some form. put: the results in the same form."""

    rows: Iterable[Any]
    put: Callable[[Results], Any]


def read_given(given: Any, fields: Sequence[str], columns: Mapping[str, Any]) -> Given:
    """The rows of a text, a dict, an iterable of them, or a table. fields: those that are read; columns: what each is called
    in what was given, where that is another name."""
    for name in columns:
        if name not in (*fields, "id"):
            raise UsageError(f"{name}=: there is no such field: give a column for {', '.join((*fields, 'id'))}")
    if is_of(given, "pandas", "Series"):
        given = given.to_frame(columns.get(fields[0], fields[0]))
    if is_of(given, "pandas", "DataFrame"):
        rows = table_rows(given, list(given.columns), lambda name: given[name].tolist(), fields, columns)
        return Given(rows, lambda found: beside_frame(given, found))
    if is_of(given, "datasets", "Dataset"):
        rows = table_rows(given, given.column_names, lambda name: list(given[name]), fields, columns)
        return Given(rows, lambda found: beside_dataset(given, found))
    if type(given).__module__.split(".")[0] == "datasets":
        raise UsageError(f"a {type(given).__name__} is not a table of rows: give one of its splits, a Dataset")
    if isinstance(given, str | Mapping):
        given = [given]
    renamed = [rename(row, columns) for row in given]
    return Given(renamed, lambda found: found)


def is_of(given: Any, module: str, name: str) -> bool:
    """Whether something is of a class of a package, which is not imported for that."""
    return module in sys.modules and isinstance(given, getattr(sys.modules[module], name, ()))


def rename(row: Any, columns: Mapping[str, Any]) -> Any:
    if not isinstance(row, Mapping):
        return row
    return {**row, **{field: row.get(column) for field, column in columns.items()}}


def table_rows(
    given: Any, names: list[Any], column: Callable[[Any], list[Any]], fields: Sequence[str], columns: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The fields of each row of a table. column: the values of one by its name."""
    found = ", ".join(map(str, names))
    used = {field: columns.get(field, field) for field in (*fields, "id") if field in columns or field in fields}
    for field, name in used.items():
        if names.count(name) > 1:
            raise UsageError(f"the table has {names.count(name)} columns {name!r}: rename them")
        if field in columns and name not in names:
            raise UsageError(f"{field}={name!r}: the table has no such column; it has {found}")
    used = {field: name for field, name in used.items() if name in names}
    if not set(used) & set(fields):
        raise UsageError(
            f"the table has no column {' or '.join(map(repr, fields))}, only {found}: name the one that holds the texts, "
            f"as {fields[0]}={(str(names[0]) if names else 'review')!r}"
        )
    values = {field: column(name) for field, name in used.items()}
    return [{field: values[field][i] for field in values} for i in range(len(given))]


def beside_frame(given: Any, found: Results) -> Any:
    frame = given.copy()
    columns = {name: partial(lambda name: given[name].tolist(), name) for name in given.columns}
    for name, values in found.columns(columns).items():
        frame[name] = values
    return frame


def beside_dataset(given: Any, found: Results) -> Any:
    columns = {name: partial(lambda name: list(given[name]), name) for name in given.column_names}
    for name, values in found.columns(columns).items():
        given = given.add_column(name, values)
    return given
