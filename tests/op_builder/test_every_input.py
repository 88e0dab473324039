"""After any input of a build changes, a new process must get the new result.

``sites.py`` has the table. Inputs that cannot be tracked are rejected by name, and never cached.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..programs import run_program
from .conftest import ZIG_CACHE, ZIG_SECONDS
from .sites import FUNCTION, LINKED, ROWS, SPELLINGS, Row, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Ask = Callable[[Site], dict[str, Any]]

OF_CHECKOUTS = ("quoted", "in a branch", "by a macro's name")
BUILDS = Path(__file__).with_name("site_program.py").read_text()


@pytest.fixture
def ask(tmp_path: Path) -> Ask:
    """Return a function that builds a site in a new process, with one cache for the whole test."""

    def ask(site: Site) -> dict[str, Any]:
        changes = {"ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), "CXX": None, **site.environment}
        environment = {name: value for name, value in {**os.environ, **changes}.items() if value is not None}
        done = run_program(BUILDS, [json.dumps(site.request())], environment, tmp_path)
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    return ask


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "the site"
    folder.mkdir()
    return Site(folder)


@pytest.fixture
def below_usr() -> Iterator[str]:
    if not os.access("/usr/src", os.W_OK):
        pytest.skip("only root writes below /usr")
    folder = tempfile.mkdtemp(prefix="anyaccel-test-", dir="/usr/src")
    yield folder
    shutil.rmtree(folder)


def test_the_table_is_long_enough() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_changed_input_is_served_fresh(row: Row, site: Site, ask: Ask, request: pytest.FixtureRequest) -> None:
    if "below /usr" in row.name:
        site.environment["BELOW_USR"] = request.getfixturevalue("below_usr")
    row.prepare(site)
    first = ask(site)
    assert first.get("value") == 1, first
    again = ask(site)
    assert (again.get("value"), again.get("was_built")) == (1, False), again
    row.change(site)
    changed = ask(site)
    assert changed.get("value") == 2, changed
    assert not ask(site)["was_built"]


def test_a_version_script_counts(site: Site, ask: Ask) -> None:
    site.main(
        'const int kAnswer = 1;\nextern "C" __attribute__((visibility("default"))) int extra() { return 0; }\n'
        + FUNCTION
    )
    script = site.write("exports.map", "{ global: answer; extra; local: *; };\n")
    site.ldflags = [f"-Wl,--version-script={script}"]
    assert ask(site)["has_extra"]
    site.write("exports.map", "{ global: answer; local: *; };\n")
    assert not ask(site)["has_extra"]


def test_a_run_path_from_the_environment_is_not_served_without_it(site: Site, ask: Ask) -> None:
    site.main("const int kAnswer = 1;\n" + FUNCTION)
    site.environment["LD_RUN_PATH"] = "/from/the/environment"
    site.texts = ["/from/the/environment"]
    assert ask(site)["texts"]
    site.environment["LD_RUN_PATH"] = None
    assert not ask(site)["texts"]


@pytest.mark.parametrize(
    "spelling",  # the others differ in how a header is found, of which the table has a row each
    [one if one in OF_CHECKOUTS else pytest.param(one, marks=pytest.mark.slow) for one in SPELLINGS],
)
def test_two_checkouts_that_share_a_cache(tmp_path: Path, ask: Ask, spelling: str) -> None:
    """Each has its own header for the same source; neither gets the other's build."""
    sites = []
    for value in (1, 2):
        site = Site(tmp_path / f"checkout {value}")
        site.main(SPELLINGS[spelling] + FUNCTION)
        site.write("src/cfg.h", f"const int kAnswer = {value};\n")
        site.include_dirs = [str(site.folder / "src")]
        sites.append(site)
    assert [ask(site).get("value") for site in (*sites, *sites)] == [1, 2, 1, 2]


def test_two_checkouts_whose_headers_mean_others_by_one_name(tmp_path: Path, ask: Ask) -> None:
    """Both have the same names and contents, in the same order."""
    sites = []
    for number, own in enumerate(({"p1/k.h": 1, "inc/k.h": 2}, {"inc/k.h": 1, "p2/k.h": 2})):
        site = Site(tmp_path / f"checkout {number}")
        included = "".join(f'#include "p{part}/m{part}.h"\n' for part in (1, 2, 3))
        site.main(f"{included}const int kAnswer = 100 * f1() + 10 * f2() + f3();\n{FUNCTION}")
        for part in (1, 2, 3):
            site.write(f"src/p{part}/m{part}.h", f'#include "k.h"\nstatic int f{part}() {{ return N; }}\n#undef N\n')
        for name, value in own.items():
            site.write(f"src/{name}", f"#define N {value}\n")
        site.include_dirs = [str(site.folder / "src/inc")]
        sites.append(site)
    assert [ask(site).get("value") for site in (*sites, *sites)] == [122, 121, 122, 121]


@pytest.mark.parametrize("name", ["__FILE__", "__BASE_FILE__", "__builtin_FILE()"])
def test_two_checkouts_whose_source_names_itself(tmp_path: Path, ask: Ask, name: str) -> None:
    sites = [Site(tmp_path / folder) for folder in ("a checkout", "another checkout")]
    for site in sites:
        site.main(f'#include "size.h"\nconst int kAnswer = length({name});\n' + FUNCTION)
        site.write("src/size.h", "static int length(const char* text) { return __builtin_strlen(text); }\n")
    lengths = [len(os.path.realpath(site.source)) for site in sites]
    assert [ask(site).get("value") for site in (*sites, *sites)] == [*lengths, *lengths]


@pytest.mark.parametrize("flags", [["-MMD"], ["-MMD", "-MP"], ["-M"], ["-Wp,-MMD,listed.d"], ["@flags.rsp"]])
def test_a_flag_that_changes_the_list_of_headers_is_refused_by_name(site: Site, ask: Ask, flags: list[str]) -> None:
    site.main(FUNCTION)
    response = site.write("flags.rsp", "-MMD")
    site.cxx_args = ["-DkAnswer=1", *(f"@{response}" if flag.startswith("@") else flag for flag in flags)]
    error = ask(site).get("error", "")
    assert error.startswith("OpError: building the op 'site' failed: got the flag '-")
    assert "changes the list of headers" in error


def test_a_compiler_with_such_a_flag_is_refused(site: Site, ask: Ask) -> None:
    site.main(FUNCTION)
    site.cxx_args, site.environment["CXX"] = ["-DkAnswer=1"], "c++ -MMD"
    assert "got the flag '-MMD', which changes the list of headers" in ask(site).get("error", "")


def _while_compiling(site: Site, commands: str) -> None:
    """Run commands around the first compilation."""
    begin, end = commands.split("COMPILE")
    done = site.folder / "done"
    real = shutil.which("c++")
    site.environment["CXX"] = site.program(
        "bin/editing",
        f'case "$*" in *"-o 0.o"*) ;; *) exec {real} "$@" ;; esac\n'
        f"[ -f '{done}' ] && exec {real} \"$@\"\n{begin}\n{real} \"$@\"; status=$?\n{end}\ntouch '{done}'; exit $status",
    )


def test_an_edit_that_is_taken_back_while_it_compiles(site: Site, ask: Ask) -> None:
    site.main('#include "cfg.h"\n' + FUNCTION)
    header = site.write("src/cfg.h", "const int kAnswer = 1;\n")
    _while_compiling(
        site,
        f"cp -p '{header}' '{header}.kept'; echo 'const int kAnswer = 9;' > '{header}'\nCOMPILE\n"
        f"cat '{header}.kept' > '{header}'; touch -r '{header}.kept' '{header}'",
    )
    assert ask(site).get("value") == 1


@pytest.mark.parametrize("flag", ["-I", "-isystem"])
def test_an_older_header_that_is_moved_into_place_while_it_compiles(site: Site, ask: Ask, flag: str) -> None:
    """The compiled header is gone by then, and the new one is older than the build."""
    site.main("#include <cfg.h>\n" + FUNCTION)
    older = site.write("older.h", "const int kAnswer = 2;\n")
    header = site.write("told/cfg.h", "const int kAnswer = 1;\n")
    site.cxx_args = [flag, str(site.folder / "told")]
    os.utime(older, (1, 1))
    _while_compiling(site, f"COMPILE\nmv '{older}' '{header}'")
    assert ask(site).get("value") == 2


def test_a_link_that_is_switched_and_switched_back_while_it_compiles(site: Site, ask: Ask) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    for value in (1, 2):
        site.write(f"v{value}/cfg.h", f"const int kAnswer = {value};\n")
    link = site.folder / "current"
    link.symlink_to(site.folder / "v1")
    site.cxx_args = ["-isystem", str(link)]
    _while_compiling(site, f"ln -sfn '{site.folder}/v2' '{link}'\nCOMPILE\nln -sfn '{site.folder}/v1' '{link}'")
    assert ask(site).get("value") == 1


MEANWHILE: dict[str, str] = {  # commands around the compilation; the answer is that of a new build
    "a header that appears earlier": "COMPILE\necho 'const int kAnswer = 2;' > early/cfg.h",
    "a header that exists only meanwhile": "echo 'const int kAnswer = 9;' > early/cfg.h\nCOMPILE\nrm early/cfg.h",
    "a folder that is replaced": "COMPILE\nmv late late1; mv other late",
    "a folder that is swapped and swapped back": "mv late late1; mv other late\nCOMPILE\nmv late other; mv late1 late",
}


@pytest.mark.parametrize(("what", "commands"), MEANWHILE.items(), ids=MEANWHILE)
@pytest.mark.parametrize("is_own", [False, True], ids=["of others", "own"])
def test_what_happens_while_it_compiles_does_not_last(
    site: Site, ask: Ask, what: str, commands: str, is_own: bool
) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    for folder, value in (("late", 1), ("other", 2)):
        site.write(f"{folder}/cfg.h", f"const int kAnswer = {value};\n")
    (site.folder / "early").mkdir()
    folders = [str(site.folder / "early"), str(site.folder / "late")]
    site.include_dirs = folders if is_own else []
    site.cxx_args = [] if is_own else [word for folder in folders for word in ("-isystem", folder)]
    _while_compiling(
        site,
        f"cd '{site.folder}'\n" + commands.replace("COMPILE", "cd - > /dev/null\nCOMPILE\n" + f"cd '{site.folder}'"),
    )
    expected = 2 if what in ("a header that appears earlier", "a folder that is replaced") else 1
    assert [ask(site).get("value"), ask(site).get("value")] == [expected, expected]


def test_a_thin_archive_is_refused_by_name(site: Site, ask: Ask) -> None:
    site.main(LINKED)
    site.archive("objects/part.o", 1)
    archive = site.folder / "libpart.a"
    subprocess.run(["ar", "rcsT", archive, site.folder / "objects" / "part.o"], check=True)
    site.ldflags = [str(archive)]
    assert f"the thin archive {archive}" in ask(site).get("error", "")


def test_two_checkouts_that_include_one_absolute_header_take_no_turns(tmp_path: Path, ask: Ask) -> None:
    shared = tmp_path / "shared.h"
    shared.write_text("const int kAnswer = 1;\n")
    sites = []
    for number in (1, 2):
        site = Site(tmp_path / f"checkout {number}")
        site.main(f'#include "{shared}"\n{FUNCTION}')
        sites.append(site)
    ask(sites[0])
    assert [ask(site)["was_built"] for site in (*sites, *sites)] == [False] * 4


@pytest.mark.parametrize("flag", ["-fprofile-use=/tmp", "-fprofile-use", "-fauto-profile", "-fmodules-ts"])
def test_what_cannot_be_tracked_is_refused_by_name(site: Site, ask: Ask, flag: str) -> None:
    site.main(FUNCTION)
    site.cxx_args = ["-DkAnswer=1", flag]
    error = ask(site).get("error", "")
    assert error.startswith(f"OpError: building the op 'site' failed: the flag {flag!r}")


def test_a_header_of_unknown_name_that_is_only_looked_for_is_refused_by_name(site: Site, ask: Ask) -> None:
    site.main(
        "#define S_(x) #x\n#define S(x) S_(x)\n#if __has_include(S(ARCH/tuning.h))\n#endif\n"
        f"const int kAnswer = 1;\n{FUNCTION}"
    )
    site.cxx_args = ["-DARCH=avx2"]
    error = ask(site).get("error", "")
    assert f"{site.source} looks for a header that the macro S names" in error


@pytest.mark.timeout(ZIG_SECONDS)
def test_data_that_a_compiler_does_not_list_is_refused_by_name(site: Site, ask: Ask) -> None:
    """ziglang's assembler lists no data; but a path in the source is still tracked."""
    from anyaccel.op_builder.engine.toolchains.cxx import _zig_command

    zig = _zig_command()
    if zig is None:
        pytest.skip("ziglang is not installed")
    data = site.write("data.bin", "1")
    text = 'asm(".section .rodata\\n.globl kData\\nkData: .incbin " FILE "\\n.previous");\n'
    text += 'extern "C" __attribute__((visibility("hidden"))) const char kData;\n'
    text += 'extern "C" __attribute__((visibility("default"))) int answer() { return kData - \'0\'; }\n'
    site.environment |= {"CXX": shlex.join(zig), "ZIG_GLOBAL_CACHE_DIR": str(ZIG_CACHE)}
    site.ldflags = ["-nostdlib++"]  # ziglang would compile its own first, which takes a minute
    site.main(text)
    site.cxx_args = [f'-DFILE="\\"{data}\\""']
    error = ask(site).get("error", "")
    assert f".incbin in {site.source}" in error
    site.cxx_args = []
    site.main(text.replace('" FILE "', f'\\"{data}\\"'))
    assert ask(site).get("value") == 1
    site.write("data.bin", "2")
    assert ask(site).get("value") == 2


def test_an_unchanged_site_is_found_though_its_files_were_touched(site: Site, ask: Ask) -> None:
    """Content counts, not time stamps."""
    site.main(LINKED)
    site.archive("lib/libpart.a", 1)
    site.write("told/cfg.h", "")
    site.main("#include <cfg.h>\n" + LINKED)
    site.libraries, site.ldflags = ["part"], [f"-L{site.folder}/lib"]
    site.cxx_args = ["-isystem", str(site.folder / "told")]
    assert ask(site)["was_built"]
    for file in site.folder.rglob("*"):
        os.utime(file, (10**9, 10**9))
    (site.folder / "told" / "unrelated.h").write_text("")
    assert not ask(site)["was_built"]
