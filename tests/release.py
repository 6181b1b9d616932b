"""The folders of release 0.1 (made by tools/make_release_folders.py), and what that release printed about them."""

import importlib.util
import json
import shutil
import sys
from pathlib import Path

RELEASE = Path(__file__).parent / "release_0_1"
TOOLS = Path(__file__).parent.parent / "tools"


def tool(name):
    """A script of tools/ as a module."""
    if name not in sys.modules:
        sys.path.insert(0, str(TOOLS))
        try:
            spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
            sys.modules[name] = module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        finally:
            sys.path.remove(str(TOOLS))
    return sys.modules[name]


def copy_release(target):
    """All of it in a folder that may be changed."""
    shutil.copytree(RELEASE, target, dirs_exist_ok=True)
    return target


def expected():
    return json.loads((RELEASE / "expected.json").read_text())


def differences(before, now):
    """What a later version gives differently, with no regard to versions and times: to 1e-6, beside new keys."""
    golden = tool("golden")
    plain = json.loads(json.dumps(now))
    return golden.differences(golden.steady(before), golden.steady(plain), golden.Table.read(), near=1e-6, more=True)
