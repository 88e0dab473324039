"""Verdicts: what a program reaches on a CPU, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyaccel.migrate.files import migrate_files
from anyaccel.migrate.verdict import verdicts

MAIN = 'if __name__ == "__main__":\n    main()\n'
UNKNOWN = "def stop(x, thing):\n    return x.cuda(*thing)\n"
PACKAGES = {
    "hub/__init__.py": "from .deep import stop\n",
    "hub/deep.py": "import torch\n" + UNKNOWN,
    "hub/all.py": "from .deep import *\n",
    "hub/user.py": "from . import deep\ndef use():\n    deep.stop(1)\n",
    "hub/safe.py": "from .b import stop\ndef use():\n    stop(1)\n",
    "hub/b.py": "def stop(x):\n    return x\n",
    "costly/__init__.py": "import torch\nCAPABILITY = torch.cuda.get_device_capability()\n",
    "costly/part.py": "def f():\n    pass\n",
    "answers.py": "import torch\nFAST = torch.cuda.device_count() > 1\ndef has_gpu():\n    return torch.cuda.is_available()\n",
    "tool.py": "import torch\ndef help_me(): pass\nif __name__ in ('__main__',):\n    torch.cuda.get_device_capability()\n",
    "src/deeper/__init__.py": "import torch\ndef f():\n    torch.cuda.get_device_capability()\n",
}
PROGRAMS = {
    "nothing stops it": ("import torch\ndef main():\n    return torch.ones(1).cuda()\n" + MAIN, "yes"),
    "a function that is called": (f"import torch\n{UNKNOWN}def main():\n    stop(1, thing)\n" + MAIN, "no a.py:3"),
    "a function that is handed on": (f"import torch\n{UNKNOWN}def main():\n    spawn(stop)\n" + MAIN, "no a.py:3"),
    "a function that nobody calls": (f"import torch\n{UNKNOWN}def main():\n    pass\n" + MAIN, "yes"),
    "a function of another file": ("from b import stop\ndef main():\n    stop(1)\n" + MAIN, "no b.py:3"),
    "a function of a module": ("import pkg.c as c\ndef main():\n    c.stop(1)\n" + MAIN, "no pkg/c.py:3"),
    "a file that is not imported": ("def main():\n    stop(1)\n" + MAIN, "yes"),
    "a method of a class that is made": (
        "import torch\nclass Net:\n    def forward(self, x):\n        return x.cuda(*thing)\ndef main():\n    Net()\n"
        + MAIN,
        "no a.py:4",
    ),
    "a method of a base": (
        "from pkg.c import Net\nclass Mine(Net): pass\ndef main():\n    Mine()(1)\n" + MAIN,
        "no pkg/c.py:6",
    ),
    "a method that is not called": (
        "import torch\nclass Net:\n    def other(self, x):\n        return x.cuda(*thing)\ndef main():\n    Net()\n"
        + MAIN,
        "yes",
    ),
    "under a test for CUDA": (
        "import torch\ndef main():\n    if torch.cuda.is_available():\n        f(torch.cuda.get_device_capability())\n"
        + MAIN,
        "yes",
    ),
    "a guard in a function": (
        "import torch\ndef check():\n    if not torch.cuda.is_available():\n        raise RuntimeError\n    f(x)\n"
        "def main():\n    check()\n" + MAIN,
        "no a.py:3",
    ),
    "a guard of a library that is rewritten": (
        "from c import move\ndef main():\n    move(1)\n" + MAIN,
        "no c.py:3",
    ),
    "a class that is not made": (
        "import torch\nfrom typing import Union\nAny = Union[torch.cuda.Stream, int]\ndef main():\n    f(Any)\n" + MAIN,
        "yes",
    ),
    "a text that may be a device": ("import torch\ndef main():\n    f('cuda')\n" + MAIN, "cannot tell a.py:3"),
    "what surely stops comes first": (
        "import torch\ndef main():\n    f('cuda')\n    torch.cuda.ipc_collect()\n" + MAIN,
        "no a.py:4",
    ),
    "a loop at the top level": (f"import torch\n{UNKNOWN}while True:\n    stop(1, some)\n", "no a.py:3"),
    "after a character of two bytes": (
        "import torch\ndef main():\n    print('\u00e9', torch.cuda.get_device_capability())\n" + MAIN,
        "no a.py:3",
    ),
    "a default of a function that nobody calls": (
        "import torch\ndef unused(x=torch.cuda.get_device_capability()):\n    pass\ndef main():\n    pass\n" + MAIN,
        "no a.py:2",
    ),
    "a decorator of a function that nobody calls": (
        "import torch\n@needs(torch.cuda.get_device_capability())\ndef unused():\n    pass\ndef main():\n    pass\n"
        + MAIN,
        "no a.py:2",
    ),
    "a default of a method that nobody calls": (
        "import torch\nclass Net:\n    def f(self, x=torch.cuda.get_device_capability()):\n        pass\ndef main():\n    pass\n"
        + MAIN,
        "no a.py:3",
    ),
    "a method of a class in a class": (
        "import torch\nclass Outer:\n    class Inner:\n        def run_it(self):\n"
        "            return torch.cuda.get_device_capability()\n"
        "def main():\n    Outer.Inner().run_it()\n" + MAIN,
        "no a.py:5",
    ),
    "a library that looks for a main module": (
        f"import torch\n{UNKNOWN}def f(name):\n    if '.__main__.' in name:\n        pass\n",
        None,
    ),
    "a library": (f"import torch\n{UNKNOWN}", None),
    "an import of itself": ("import a\ndef main():\n    main()\n" + MAIN, "yes"),
    "in a try that goes on": (
        "import torch\ndef main():\n    try:\n        f(torch.cuda.get_device_capability())\n"
        "    except Exception:\n        pass\n" + MAIN,
        "yes",
    ),
    "in a try that raises again": (
        "import torch\ndef main():\n    try:\n        f(torch.cuda.get_device_capability())\n"
        "    except Exception:\n        raise\n" + MAIN,
        "no a.py:4",
    ),
    "in a try that ends the program": (
        "import sys, torch\ndef main():\n    try:\n        f(torch.cuda.get_device_capability())\n"
        "    except Exception:\n        sys.exit(1)\n" + MAIN,
        "no a.py:4",
    ),
    "in a try that takes another error": (
        "import torch\ndef main():\n    try:\n        f(torch.cuda.get_device_capability())\n"
        "    except KeyError:\n        pass\n" + MAIN,
        "no a.py:4",
    ),
    "under a stored choice": (
        "import torch\ndef main():\n    kind = 'gpu' if torch.cuda.is_available() else 'cpu'\n"
        "    if kind == 'gpu':\n        f(torch.cuda.get_device_capability())\n" + MAIN,
        "yes",
    ),
    "under the other answer of a stored choice": (
        "import torch\ndef main():\n    kind = 'gpu' if torch.cuda.is_available() else 'cpu'\n"
        "    if kind == 'cpu':\n        f(torch.cuda.get_device_capability())\n" + MAIN,
        "no a.py:5",
    ),
    "a name that a package passes on": ("from hub import stop\ndef main():\n    stop(1)\n" + MAIN, "no hub/deep.py:3"),
    "a name of a package that passes it on": ("import hub\ndef main():\n    hub.stop(1)\n" + MAIN, "no hub/deep.py:3"),
    "a name that a package passes on with all": (
        "from hub.all import stop\ndef main():\n    stop(1)\n" + MAIN,
        "no hub/deep.py:3",
    ),
    "a module of a package": ("from hub import deep as d\ndef main():\n    d.stop(1)\n" + MAIN, "no hub/deep.py:3"),
    "the package of a module": ("from costly.part import f\ndef main():\n    f()\n" + MAIN, "no costly/__init__.py:2"),
    "a package above": ("from hub.user import use\ndef main():\n    use()\n" + MAIN, "no hub/deep.py:3"),
    "a file of the same name elsewhere": ("from hub.safe import use\ndef main():\n    use()\n" + MAIN, "yes"),
    "the other branch of a test for CUDA": (
        "import torch\ndef main():\n    if torch.cuda.is_available():\n        pass\n    else:\n"
        "        torch.cuda.get_device_capability()\n" + MAIN,
        "no a.py:6",
    ),
    "under an early return": (
        "import torch\ndef main():\n    if not torch.cuda.is_available():\n        return\n"
        "    torch.cuda.get_device_capability()\n" + MAIN,
        "yes",
    ),
    "under a count": (
        "import torch\ndef main():\n    for i in range(torch.cuda.device_count()):\n        torch.cuda.get_device_capability(i)\n"
        + MAIN,
        "yes",
    ),
    "a count that ends the program": (
        "import sys, torch\ndef main():\n    n = torch.cuda.device_count()\n    if n == 0:\n        sys.exit('no GPU')\n"
        "    f(torch.cuda.get_device_capability())\n" + MAIN,
        "no a.py:4",
    ),
    "an answer that a function gives": (
        "import torch\ndef has_gpu():\n    return torch.cuda.is_available()\ndef main():\n    if has_gpu():\n"
        "        torch.cuda.get_device_capability()\n" + MAIN,
        "yes",
    ),
    "an answer of another file": (
        "import torch\nfrom answers import has_gpu, FAST\ndef main():\n    if has_gpu() or FAST:\n"
        "        torch.cuda.get_device_capability()\n" + MAIN,
        "yes",
    ),
    "an import under a test for CUDA": (
        "import torch\nif torch.cuda.is_available():\n    import costly\ndef main():\n    pass\n" + MAIN,
        "yes",
    ),
    "an import for types": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import costly\ndef main():\n    pass\n" + MAIN,
        "yes",
    ),
    "an import that may fail": (
        "try:\n    import costly\nexcept Exception:\n    costly = None\ndef main():\n    pass\n" + MAIN,
        "yes",
    ),
    "an import in a function that nobody calls": (
        "def unused():\n    import costly\ndef main():\n    pass\n" + MAIN,
        "yes",
    ),
    "one of two imports of a name": (
        "import sys\nif len(sys.argv) > 9:\n    from hub.b import stop\nelse:\n"
        "    from hub.deep import stop\ndef main():\n    stop(1)\n" + MAIN,
        "no hub/deep.py:3",
    ),
    "what only an imported program runs": ("import tool\ndef main():\n    tool.help_me()\n" + MAIN, "yes"),
    "an option that nobody gives": (
        "import argparse, torch\ndef main():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--capability', action='store_true')\n    args = parser.parse_args()\n"
        "    if args.capability:\n        torch.cuda.get_device_capability()\n" + MAIN,
        "yes",
    ),
    "a command": (
        "import click, torch\n@click.group()\ndef cli():\n    pass\n@cli.command()\ndef info():\n"
        "    torch.cuda.get_device_capability()\nif __name__ == '__main__':\n    cli()\n",
        "no a.py:7",
    ),
    "an attribute by its text": (
        "import torch\nclass Net:\n    def go(self):\n        torch.cuda.get_device_capability()\n"
        "def main():\n    getattr(Net(), 'go')()\n" + MAIN,
        "no a.py:4",
    ),
    "a module by its text": (
        "import importlib\ndef main():\n    importlib.import_module('costly')\n" + MAIN,
        "no costly/__init__.py:2",
    ),
    "a package in another folder": (
        "from deeper import f\ndef main():\n    f()\n" + MAIN,
        "no src/deeper/__init__.py:3",
    ),
    "a script without a guard": (f"import torch\n{UNKNOWN}def main():\n    stop(1, thing)\nmain()\n", "no a.py:3"),
    "a metaclass": (
        "import torch\nclass Meta(type):\n    def __new__(cls, *rest):\n        torch.cuda.get_device_capability()\n"
        "class Net(metaclass=Meta): pass\ndef main():\n    Net()\n" + MAIN,
        "no a.py:4",
    ),
    "a function that two modules define": (
        "import tool, b\nfrom pkg import c\ndef main():\n    c.stop(1)\n" + MAIN,
        "no b.py:3",
    ),
    "a list of answers": (
        "import torch\nHAS = [torch.cuda.is_available(), torch.cuda.device_count()]\ndef main():\n    pass\n" + MAIN,
        "yes",
    ),
    "a global that is set after it is read": (
        "import torch\nfirst = True\ndef main():\n    global first\n    if first:\n        torch.cuda.get_device_capability()\n"
        "        first = False\n" + MAIN,
        "no a.py:6",
    ),
    "a constant that a configuration may set": (
        "import torch\nfast = False\nexec(open('configurator.py').read())\ndef main():\n    if fast:\n"
        "        torch.cuda.get_device_capability()\n" + MAIN,
        "no a.py:6",
    ),
    "an option that is on": (
        "import argparse, torch\ndef main():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--capability', action='store_true', default=True)\n    args = parser.parse_args()\n"
        "    if args.capability:\n        torch.cuda.get_device_capability()\n" + MAIN,
        "no a.py:7",
    ),
    "a parameter by the name of a constant": (
        "import torch\nfast = False\ndef outer(fast):\n    def inner():\n        if fast:\n"
        "            torch.cuda.get_device_capability()\n"
        "    inner()\ndef main():\n    outer(True)\n" + MAIN,
        "no a.py:6",
    ),
    "a function that a try defines": (
        "import torch\ntry:\n    def f():\n        return torch.cuda.get_device_capability()\nexcept Exception:\n    pass\n"
        "def main():\n    f()\n" + MAIN,
        "no a.py:4",
    ),
    "another Python": ("print 1\n" + MAIN, None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, expected = PROGRAMS[name]
    Path("pkg").mkdir()
    Path("pkg/__init__.py").write_text("")
    Path("a.py").write_text(code)
    Path("b.py").write_text("import torch\n" + UNKNOWN)
    Path("c.py").write_text("import torch\ndef move(x):\n    assert torch.cuda.is_available()\n    return x.cuda()\n")
    net = "class Net:\n    def forward(self, x):\n        return x.cuda(*thing)\n"
    Path("pkg/c.py").write_text("import torch\n" + UNKNOWN + net)
    paths = [Path("a.py"), Path("b.py"), Path("c.py"), Path("pkg/__init__.py"), Path("pkg/c.py")]
    for name, text in PACKAGES.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
    paths += [Path(name) for name in PACKAGES]
    results = migrate_files(paths, "anyaccel")
    found = [f"{one.answer} {one.stops or ''}".strip() for one in verdicts(results) if one.path != Path("tool.py")]
    assert found == ([] if expected is None else [expected])
