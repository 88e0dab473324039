"""Messages and docstrings name the accelerator where what they are about is rewritten, and stay as they are elsewhere."""

from __future__ import annotations

import pytest

from anyaccel.migrate.source import migrate_source

_IN_BRANCH = {
    "CUDA memory": "Accelerator memory",
    "Emptying CUDA cache...": "Emptying accelerator cache...",
    "activate cuda": "activate the accelerator",
    "Using CUDA": "Using the accelerator",
    "Using CUDA for training": "Using the accelerator for training",
    "Using CUDA!": "Using the accelerator!",
    "moving model to cuda...": "moving model to the accelerator...",
    "CUDA is available": "Accelerator is available",
    "cuda is being used": "accelerator is being used",
    "CUDA is used": "Accelerator is used",
    "-> CUDA device:": "-> Accelerator:",
    "Found a CUDA device": "Found an accelerator",
    "Found two CUDA devices": "Found two accelerators",
    "CUDA GPU(s)": "Accelerator(s)",
    # not about the device, or true of CUDA alone
    "Using CUDA graphs": "Using CUDA graphs",
    "Using CUDA 12": "Using CUDA 12",
    "using cuda:0": "using cuda:0",
    "using `cuda`": "using `cuda`",
    "CUDA version": "CUDA version",
    "set CUDA_VISIBLE_DEVICES to use a CUDA device": "set CUDA_VISIBLE_DEVICES to use a CUDA device",
    "torch.cuda memory": "torch.cuda memory",
    "--cuda device": "--cuda device",
    "no_cuda cache": "no_cuda cache",
    "barracuda memory": "barracuda memory",
    "CUDA devices-per-node": "CUDA devices-per-node",
    "CUDA, MPS or a CPU: CUDA memory": "CUDA, MPS or a CPU: CUDA memory",
}


@pytest.mark.parametrize("call", ["print({})", "self.logger.info({})", "warnings.warn({}, stacklevel=2)"])
@pytest.mark.parametrize("text", ['"{}"', "'''{}'''", 'f"{}"', 'r"{}" + name', '"{}. %d" % n'])
@pytest.mark.parametrize(("old", "expected"), _IN_BRANCH.items())
def test_in_a_branch_of_a_rewritten_question(old: str, expected: str, text: str, call: str) -> None:
    source = "import torch\nif torch.cuda.is_available():\n    {}\n    x = x.cuda()\n"
    new = migrate_source(source.format(call.format(text.replace("{}", old))), "anyaccel").new
    assert call.format(text.replace("{}", expected)) in new.splitlines()[3]


_ALONE = {
    # a message with a rewritten place
    'print(f"CUDA memory: {torch.cuda.memory_allocated()}")': "Accelerator memory: {get_",
    'print("CUDA memory:", torch.cuda.memory_allocated())': '"Accelerator memory:", get_',
    'log.info("peak CUDA memory %d", torch.cuda.max_memory_allocated())': '"peak accelerator memory %d", get_',
    'print(f"Cuda {i}: {torch.cuda.get_device_properties(i)}")': "Accelerator {i}: {get_",
    'print(f"CUDA is available: {flag}, {torch.cuda.memory_allocated()}")': "CUDA is available: {flag}, {get_",
    'print("Using CUDA", torch.cuda.memory_allocated())': '"Using CUDA", get_',
    'print(f"Cuda #{i}: {torch.cuda.get_device_properties(i)}")': "Accelerator #{i}: {get_",
    # before a rewritten call about the memory
    'print("Clearing CUDA cache")\ntorch.cuda.empty_cache()': "Clearing accelerator cache",
    'print(f"Setting CUDA device {rank}")\ntorch.cuda.set_device(rank)': "Setting accelerator {rank}",
    # the help of an option
    'p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="CUDA if available")': (
        'help="The accelerator if available"'
    ),
    'p.add_argument("--device", default="cpu", help="CUDA if available")': 'help="CUDA if available"',
    # the parts of a text
    'print("all: " + "a CUDA device" + str(torch.cuda.memory_allocated()))': '"an accelerator"',
    'print("a CUDA device " "has %d" % torch.cuda.memory_allocated())': '"an accelerator " "has',
    'print("CUDA memory: {}".format(torch.cuda.memory_allocated()))': '"Accelerator memory: {}"',
    'print("CUDA memory" if torch.cuda.memory_allocated() else "no CUDA memory")': '"Accelerator memory" if',
    # what is not rewritten as a whole
    'print(f"CUDA {torch.version.cuda}, CUDA memory {torch.cuda.memory_allocated()}")': "CUDA memory {get_",
    'print(f"CUDA memory {torch.cuda.memory_allocated()} {torch.cuda.get_device_capability()}")': "CUDA memory {get_",
    'print("CUDA memory")\ntorch.cuda.synchronize()': "CUDA memory",
    'print("CUDA memory")\nx = 1\ntorch.cuda.empty_cache()': "CUDA memory",
    'if torch.cuda.is_available():\n    raise ValueError("a CUDA device")\nx = x.cuda()': "a CUDA device",
    'if torch.cuda.is_available():\n    x.find("CUDA memory")\n    x = x.cuda()': "CUDA memory",
    'print("CUDA memory")': "CUDA memory",
    # keys, the names of figures, and what another function gets
    'print(stats["CUDA memory"], torch.cuda.memory_allocated())': 'stats["CUDA memory"]',
    'print({"CUDA memory": torch.cuda.memory_allocated()})': '{"CUDA memory":',
    "print(f\"{stats['CUDA memory']} {torch.cuda.memory_allocated()}\")": "stats['CUDA memory']",
    'print(named("CUDA memory", torch.cuda.memory_allocated()))': 'named("CUDA memory"',
    'print("%s %d" % ("CUDA memory", torch.cuda.memory_allocated()))': '("CUDA memory"',
    'self.log("CUDA memory", torch.cuda.memory_allocated())': '"CUDA memory"',
    'wandb.log({"CUDA memory": torch.cuda.memory_allocated()})': '{"CUDA memory":',
    'table.write("CUDA memory", torch.cuda.memory_allocated())': '"CUDA memory"',
}


@pytest.mark.parametrize(("code", "expected"), _ALONE.items())
def test_messages_elsewhere(code: str, expected: str) -> None:
    new = migrate_source(f"import torch\n\n{code}\n", "anyaccel").new
    assert expected in new
    compile(new, "new", "exec")


_DOCSTRINGS = {
    ("Log the CUDA memory.", "torch.cuda.memory_allocated()"): "Log the accelerator memory.",
    ("Log a CUDA memory summary.", "torch.cuda.memory_summary()"): "Log an accelerator memory summary.",
    ("Empty the CUDA cache.", "torch.cuda.empty_cache()"): "Empty the accelerator cache.",
    ("Log the CUDA memory.", "torch.cuda.synchronize()"): "Log the CUDA memory.",
    ("Log the CUDA memory.", "torch.cuda.memory_snapshot()"): "Log the CUDA memory.",
    ("Does nothing if CUDA is not available.", "x = x.cuda() if torch.cuda.is_available() else x"): (
        "Does nothing if no accelerator is available."
    ),
    ("Moves if CUDA is available.", "x = x.cuda() if torch.cuda.is_available() else x"): (
        "Moves if an accelerator is available."
    ),
    ("Moves to a CUDA device if CUDA available.", "x = x.cuda() if torch.cuda.is_available() else x"): (
        "Moves to an accelerator if an accelerator is available."
    ),
    ("When CUDA is available, moves.", "x = x.cuda() if torch.cuda.is_available() else x"): (
        "When an accelerator is available, moves."
    ),
    ("Moves if CUDA is available.", "x = x.cuda()"): "Moves if CUDA is available.",
}


_WITHOUT = {
    "CUDA is not available": "No accelerator is available",
    "CUDA not available, using the CPU": "No accelerator available, using the CPU",
    "sorry: CUDA is unavailable": "sorry: no accelerator is available",
    "No CUDA device found": "No accelerator found",
    "No CUDA GPUs are available": "No accelerators are available",
    "CUDA is required but not available.": "An accelerator is required but not available.",
    "CUDA device is required!": "An accelerator is required!",
    "this requires CUDA": "this requires an accelerator",
    "needs CUDA to run": "needs an accelerator to run",
    "cannot run without a CUDA device": "cannot run without an accelerator",
    "requires CUDA 12": "requires CUDA 12",
    "torch.cuda.is_available() is False: CUDA is not available": "torch.cuda.is_available() is False: CUDA is not available",
    "build it with the CUDA toolkit": "build it with the CUDA toolkit",
    "nothing": "nothing",
}
_STOPS = [
    'assert torch.cuda.is_available(), "{}"\nx = x.cuda()',
    'assert torch.cuda.is_available(), f"{}: {{x}}"\nx = x.cuda()',
    'if not torch.cuda.is_available():\n    raise RuntimeError("{}")\nx = x.cuda()',
    'if not torch.cuda.is_available():\n    raise RuntimeError("a" + "{}")\nx = x.cuda()',
    'if torch.cuda.is_available():\n    x = x.cuda()\nelse:\n    warnings.warn("{}")',
    'if torch.cuda.is_available() == False:\n    print("{}")\n    exit(1)\nx = x.cuda()',
]


@pytest.mark.parametrize("code", _STOPS)
@pytest.mark.parametrize(("old", "expected"), _WITHOUT.items())
def test_what_is_said_without_an_accelerator(old: str, expected: str, code: str) -> None:
    source = f"import torch\n\n{code.format(old)}\n"
    new = migrate_source(source, "anyaccel").new
    is_kept = "torch.cuda.is_available()" in new.replace(old, "")
    assert not is_kept or "warn" in code  # a message that something needs CUDA keeps its question
    assert (old if is_kept else expected) in new
    assert migrate_source(new, "anyaccel").new == new


@pytest.mark.parametrize("place", ["{}", "class C:\n    def f(self, x):\n        {}"])
def test_what_is_said_by_a_stored_answer(place: str) -> None:
    code = (
        "has_cuda = torch.cuda.is_available()\n"
        "if has_cuda:\n    print('CUDA is available')\n    x = x.cuda()\nelse:\n    print('CUDA is not available')\n"
    )
    source = place.format(code.replace("\n", "\n        " if "class" in place else "\n").rstrip())
    new = migrate_source(f"import torch\n{source}\n", "anyaccel").new
    assert "'Accelerator is available'" in new
    assert "'No accelerator is available'" in new


@pytest.mark.parametrize("code", _STOPS)
def test_an_error_that_a_test_expects_stays(code: str) -> None:
    expected = 'def test(f):\n    with pytest.raises(RuntimeError, match="CUDA is not available"):\n        f()\n'
    source = f"import torch\n\n{code.format('CUDA is not available')}\n{expected}"
    assert migrate_source(source, "anyaccel").new.count("CUDA is not available") == 2


def test_an_error_stays_with_its_question() -> None:
    code = 'if not torch.cuda.is_available():\n    raise RuntimeError("needs CUDA")\nx = torch.cuda.get_device_capability()\n'
    assert migrate_source(f"import torch\n{code}", "anyaccel").new == f"import torch\n{code}"


@pytest.mark.parametrize(("old", "expected"), _DOCSTRINGS.items())
def test_docstrings(old: tuple[str, str], expected: str) -> None:
    text, code = old
    new = migrate_source(f'import torch\n\ndef show(x):\n    """{text}"""\n    {code}\n    return x\n', "anyaccel").new
    assert f'"""{expected}"""' in new


def test_an_ignored_message_stays() -> None:
    source = (
        "import torch\nif torch.cuda.is_available():\n"
        '    print("Using CUDA")  # anyaccel: ignore[message]\n    x = x.cuda()\n'
    )
    assert '"Using CUDA"' in migrate_source(source, "anyaccel").new


@pytest.mark.parametrize("text", ["is_cuda={x.is_cuda}", "{x.is_cuda=}", "on CUDA: {x.is_cuda}"])
def test_an_answer_that_is_called_cuda_in_an_f_string_stays(text: str) -> None:
    new = migrate_source(f'import torch\nx = torch.zeros(1).cuda()\nprint(f"{text}")\n', "anyaccel").new
    assert "x.is_cuda" in new
