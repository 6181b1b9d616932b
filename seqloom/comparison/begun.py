"""What is there of a comparison when it is called again: it goes on only with what the plan still says."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.batches.store import MANIFEST, Store
from seqloom.errors import UsageError
from seqloom.files import sha256

REMEDY = "choose another --out, or start anew with --overwrite"


def check_text(folder: Path, files: Sequence[Path], options: dict[str, Any]) -> None:
    """What was prepared before must be of these files, by these options: rows of one comparison learn from one text."""
    there = [Store.open(path.parent).manifest for path in sorted((folder / "data").glob(f"*/{MANIFEST}"))]
    now = [sha256(file) for file in files] if there else []
    for manifest in there:
        before = manifest.options
        changed = [f"{name} = {before[name]}, now {value}" for name, value in options.items() if before[name] != value]
        if [source.sha256 for source in manifest.sources] != now:
            changed.append(f"the content of {', '.join(source.name for source in manifest.sources)} was another")
        if changed:
            raise UsageError(f"{folder} holds a comparison with another text ({'; '.join(changed)}): {REMEDY}")
