"""Runs deepspeed's own tests with stock deepspeed and with the integration; ``make test-deepspeed`` calls this.

    python tests/ecosystem/own_tests.py CLONE OUTCOMES [--limit SECONDS] [--resume] NAME...

Each name is a file of tests, or a folder with such files, in the clone's folder ``tests``. Each file runs twice, in a process of
its own, so that one that hangs or crashes costs that file only. Under OUTCOMES, each side has one log and one report per file;
``outcomes.py`` compares them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from outcomes import is_finished, outcomes

EVERY_PROCESS = Path(__file__).parent / "every_process"
SIDES = ("stock", "ours")
NAMES = """
from deepspeed.ops.op_builder.all_ops import ALL_OPS
print(*(name for name, builder in ALL_OPS.items() if type(builder).__name__ != "NotImplementedBuilder"))
"""
BUILD = """
import sys
from deepspeed.ops.op_builder.all_ops import ALL_OPS
builder = ALL_OPS[sys.argv[1]]
if not builder.is_compatible():
    sys.exit("not compatible with this machine")
builder.load(verbose=False)
"""
STALE_AFTER_S = 60
STACKS_WITHIN_S = 20
TEST_LIMIT_S = 300
"""For one test. deepspeed's own limit is shorter: when it ends a test whose rank has died, it waits for that rank once more,
without a limit, and pytest-timeout interrupts a test only once."""


def find_files(tests: Path, names: list[str]) -> list[str]:
    """Return the files of tests that the names stand for, in order; exit if there are none."""
    found = []
    for name in names:
        path = tests / name
        files = sorted(path.rglob("test_*.py")) if path.is_dir() else [path] if path.exists() else []
        if not files:
            print(f"not in this clone: {name}")
        found += [str(file.relative_to(tests)) for file in files]
    if not found:
        sys.exit(f"{tests} has none of these tests")
    return list(dict.fromkeys(found))


def environment(side: str) -> dict[str, str]:
    """Return the variables for one side; on the CPU, LOCAL_SIZE is deepspeed's number of devices, so 4 ranks can start."""
    given = {"DS_ACCELERATOR": "cpu", "DS_TEST_USE_INSTALLED_DEEPSPEED": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    given |= {"DS_UNITTEST_TIMEOUT": str(TEST_LIMIT_S * 2 // 3), "PYTHONFAULTHANDLER": "1"}
    path = str(EVERY_PROCESS) if side == "ours" else ""
    return {"LOCAL_SIZE": "4", "OMP_NUM_THREADS": "1", **os.environ, **given, "PYTHONPATH": path}


def remove_stale_locks() -> None:
    """Remove the locks that killed builds of stock deepspeed have left: every later load would wait for them.

    torch's lock is a file without an owner. It is stale if it is a minute old and no process works in its folder, as the
    compiler of a running build does.
    """
    at_work = set()
    for link in Path("/proc").glob("[0-9]*/cwd"):
        with contextlib.suppress(OSError):
            at_work.add(link.readlink())
    for lock in Path(os.environ["TORCH_EXTENSIONS_DIR"]).resolve().glob("**/lock"):
        if lock.parent not in at_work and time.time() - lock.stat().st_mtime > STALE_AFTER_S:
            print(f"removing the lock of a build that was killed: {lock}")
            lock.unlink()


def build_stock(limit_s: float) -> None:
    """Build all ops of stock deepspeed that this machine can build, so that no test's time limit covers a build."""
    remove_stale_locks()
    # The last line: deepspeed logs to stdout.
    found = subprocess.run(
        [sys.executable, "-c", NAMES], env=environment("stock"), capture_output=True, text=True, check=True
    )
    for name in last_line(found.stdout).split():
        begin = time.monotonic()
        status, output = run_alone([sys.executable, "-c", BUILD, name], Path.cwd(), "stock", limit_s)
        how = "built" if status == 0 else f"stopped after {limit_s:.0f} s" if status is None else last_line(output)
        print(f"stock {name}: {how}, {time.monotonic() - begin:.0f} s", flush=True)


def last_line(output: str) -> str:
    return (output.strip().splitlines() or [""])[-1]


def run_alone(command: list[str], folder: Path, side: str, limit_s: float) -> tuple[int | None, str]:
    """Run a command in a session of its own, and kill all of it at the end or at the limit.

    Returns:
        The exit status, None at the limit, and the output; at the limit with the stack of each of its Python processes.
    """
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment(side),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        end = time.monotonic() + limit_s
        try:
            while time.monotonic() < end:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, _ = process.communicate(timeout=min(STALE_AFTER_S, limit_s))
                    return process.returncode, output
                remove_stale_locks()  # a test may wait for one whose owner has been killed
            signal_session(process.pid, signal.SIGABRT)  # faulthandler prints the stacks
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=STACKS_WITHIN_S)
            signal_session(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return None, output
        finally:
            # ranks that outlived the tests, and all of it if this program is interrupted
            signal_session(process.pid, signal.SIGKILL)


def signal_session(leader: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, number)


def run_file(file: str, side: str, tests: Path, folder: Path, limit_s: float) -> str:
    """Run one file of tests and return how it ended, in words."""
    stem = file.removesuffix(".py").replace("/", ".")
    report = folder / f"{stem}.jsonl"
    report.unlink(missing_ok=True)
    remove_stale_locks()
    plugins = ["-p", "no:cacheprovider", "-p", "pytest_timeout", "-p", "pytest_reportlog.plugin"]
    # deepspeed's pytest.ini leaves out tests marked sequential or inference_ops, such as those of asynchronous I/O.
    options = ["-v", *plugins, "-m", "not nightly", "--timeout", str(TEST_LIMIT_S), "--report-log", str(report)]
    options += ["--capture", "no"]  # what a stopped process has printed would be lost
    status, output = run_alone([sys.executable, "-m", "pytest", *options, file], tests, side, limit_s)
    (folder / f"{stem}.log").write_text(output, encoding="utf-8")
    counts = Counter(outcome for (one, _), outcome in outcomes(folder).items() if one == file)
    words = ", ".join(f"{counts[kind]} {kind}" for kind in ("passed", "failed", "skipped"))
    if status is None:
        return f"{words}; stopped after {limit_s:.0f} s"
    return words if is_finished(report) else f"{words}; ended early with status {status}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("outcomes", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument(
        "--limit", type=float, default=1800, help="seconds per file and side, and per op of stock deepspeed"
    )
    parser.add_argument(
        "--resume", action="store_true", help="keep the files that an earlier run has finished on a side"
    )
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # in the background, a shell ignores the first
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    tests = given.clone.resolve() / "tests"
    files = find_files(tests, given.names)
    for side in SIDES:
        (given.outcomes / side).mkdir(parents=True, exist_ok=True)
        if not given.resume:
            for old in (given.outcomes / side).iterdir():
                old.unlink()
    build_stock(given.limit)
    for number, file in enumerate(files, 1):
        for side in SIDES:
            folder = (given.outcomes / side).resolve()
            begin = time.monotonic()
            if is_finished(folder / f"{file.removesuffix('.py').replace('/', '.')}.jsonl"):
                continue
            ended = run_file(file, side, tests, folder, given.limit)
            print(f"[{number}/{len(files)}] {side} {file}: {ended}, {time.monotonic() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
