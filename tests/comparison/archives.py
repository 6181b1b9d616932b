"""What is in archives, and how somebody would change it."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import IO


def members(path: Path | IO[bytes]) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path: Path, contents: dict[str, bytes], hashed: bool = True) -> Path:
    """An archive with these contents; hashed: its manifest lists them rightly, as somebody who cheats would do."""
    if hashed:
        manifest = json.loads(contents["manifest.json"])
        listed = {name: data for name, data in contents.items() if name != "manifest.json"}
        manifest["files"] = {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)} for name, data in listed.items()
        }
        contents = contents | {"manifest.json": json.dumps(manifest).encode()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return path
