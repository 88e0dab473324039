"""Every input that affects a build, and a way to change it; ``test_every_input.py`` builds before and after."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FUNCTION = 'extern "C" __attribute__((visibility("default"))) int answer() { return kAnswer; }\n'
LINKED = 'extern "C" int part();\nextern "C" __attribute__((visibility("default"))) int answer() { return part(); }\n'


@dataclass
class Site:
    """A source with everything that affects its build; ``answer()`` in the result shows which version was built."""

    folder: Path
    source: str = ""
    include_dirs: list[str] = field(default_factory=list)
    cxx_args: list[str] = field(default_factory=list)
    ldflags: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    environment: dict[str, str | None] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def request(self) -> dict[str, Any]:
        """Return what ``site_program.py`` needs."""
        return {
            "sources": [self.source],
            "include_dirs": self.include_dirs,
            "cxx_args": self.cxx_args,
            "ldflags": self.ldflags,
            "libraries": self.libraries,
            "texts": self.texts,
        }

    def write(self, name: str, text: str) -> str:
        """Write a file below the folder like an editor: by replacing the old one."""
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        staged = file.with_name(f"{file.name}.new")
        staged.write_text(text)
        staged.replace(file)
        return str(file)

    def main(self, text: str) -> None:
        """Write the source."""
        self.source = self.write("src/site.cpp", text)

    def program(self, name: str, text: str) -> str:
        """Write a script."""
        file = self.write(name, f"#!/bin/sh\n{text}\n")
        os.chmod(file, 0o755)  # noqa: S103
        return file

    def archive(self, name: str, value: int) -> str:
        """Make a static library whose ``part()`` returns a given value."""
        part = self.write(f"parts/{value}.cpp", f'extern "C" int part() {{ return {value}; }}\n')
        made = self.folder / f"parts/{value}.o"
        subprocess.run(["c++", "-fPIC", "-c", part, "-o", made], check=True)
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".o"):
            shutil.copyfile(made, file)
        else:
            file.unlink(missing_ok=True)
            subprocess.run(["ar", "rcs", file, made], check=True)
        return str(file)


@dataclass(frozen=True)
class Row:
    """One input. ``prepare`` makes a site whose answer is 1; ``change`` changes the input so that the answer must become 2."""

    name: str
    prepare: Callable[[Site], None]
    change: Callable[[Site], None]


ROWS: list[Row] = []


def _row(name: str) -> Callable[[Callable[[Site, int], None]], Callable[[Site, int], None]]:
    """Add a row whose function sets up everything for the answer 1, and again for 2."""

    def add(setup: Callable[[Site, int], None]) -> Callable[[Site, int], None]:
        ROWS.append(Row(name, lambda site: setup(site, 1), lambda site: setup(site, 2)))
        return setup

    return add


def _header(value: int) -> str:
    return f"const int kAnswer = {value};\n"


@_row("the source")
def _(site: Site, value: int) -> None:
    site.main(_header(value) + FUNCTION)


SPELLINGS = {
    "quoted": '#include "cfg.h"\n',
    "bracketed": "#include <cfg.h>\n",
    "imported": '#import "cfg.h"\n',
    "with a comment between": '#include/**/"cfg.h"\n',
    "after a comment": '/* a */ # /* b */ include "cfg.h"\n',
    "by a digraph": '%:include "cfg.h"\n',
    "cut by a line's end": '#incl\\\nude "cf\\\ng.h"\n',
    "by a macro's name": '#define WHICH "cfg.h"\n#include WHICH\n',
    "by a macro with an argument": "#define WHICH(x) #x\n#include WHICH(cfg.h)\n",
    "by include_next": "#include_next <cfg.h>\n",
    "in a branch": "#if 1\n#include <cfg.h>\n#endif\n",
}
for _spelling, _text in SPELLINGS.items():

    @_row(f"an own header, {_spelling}")
    def _(site: Site, value: int, text: str = _text) -> None:
        site.main(text + FUNCTION)
        site.write("include/cfg.h", _header(value))
        site.include_dirs = [str(site.folder / "include")]


@_row("a header beside the source, by a macro")
def _(site: Site, value: int) -> None:
    site.main(SPELLINGS["by a macro's name"] + FUNCTION)
    site.write("src/cfg.h", _header(value))


@_row("a header by its absolute path")
def _(site: Site, value: int) -> None:
    header = site.write("else where/cfg.h", _header(value))
    site.main(f'#include "{header}"\n{FUNCTION}')


for _flag in ("-I", "-isystem", "-iquote", "-idirafter"):

    @_row(f"a header found by {_flag}")
    def _(site: Site, value: int, flag: str = _flag) -> None:
        site.main('#include "cfg.h"\n' + FUNCTION)
        site.write("third party/cfg.h", _header(value))
        site.cxx_args = [flag, str(site.folder / "third party")]


for _variable in ("CPATH", "CPLUS_INCLUDE_PATH"):

    @_row(f"a header found by {_variable}")
    def _(site: Site, value: int, variable: str = _variable) -> None:
        site.main("#include <cfg.h>\n" + FUNCTION)
        site.write("told/cfg.h", _header(value))
        site.environment[variable] = str(site.folder / "told")


@_row("a header of a header that only the compiler is told of")
def _(site: Site, value: int) -> None:
    site.main("#include <outer.h>\n" + FUNCTION)
    site.write("told/outer.h", '#include "detail/inner.h"\n')
    site.write("told/detail/inner.h", _header(value))
    site.environment["CPATH"] = str(site.folder / "told")


@_row("a header that a flag includes")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.cxx_args = ["-include", site.write("forced.h", _header(value))]


@_row("a directory below /usr that is not the compiler's")
def _(site: Site, value: int) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    place = site.environment["BELOW_USR"]
    with open(f"{place}/cfg.h", "w", encoding="utf-8") as file:
        file.write(_header(value))
    site.cxx_args = ["-I", str(place)]


def _switch(site: Site, name: str, target: str) -> str:
    link = site.folder / name
    staged = site.folder / f"{name}.new"
    staged.symlink_to(site.folder / target)
    staged.replace(link)
    return str(link)


@_row("a link to an include directory, given as a flag")
def _(site: Site, value: int) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    site.write(f"v{value}/cfg.h", _header(value))
    site.cxx_args = ["-I", _switch(site, "current", f"v{value}")]


@_row("a link to an include directory of the op")
def _(site: Site, value: int) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    site.write(f"v{value}/cfg.h", _header(value))
    site.include_dirs = [_switch(site, "current", f"v{value}")]


@_row("a link to a header")
def _(site: Site, value: int) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    site.write(f"v{value}.h", _header(value))
    (site.folder / "links").mkdir(exist_ok=True)
    _switch(site, "links/cfg.h", f"v{value}.h")
    site.cxx_args = ["-I", str(site.folder / "links")]


@_row("a header that appears earlier in the search path")
def _(site: Site, value: int) -> None:
    site.main("#include <cfg.h>\n" + FUNCTION)
    site.write("late/cfg.h", _header(1))
    (site.folder / "early").mkdir(exist_ok=True)
    site.cxx_args = ["-isystem", str(site.folder / "early"), "-isystem", str(site.folder / "late")]
    if value == 2:
        site.write("early/cfg.h", _header(2))


@_row("a header in a folder that appears earlier in the search path")
def _(site: Site, value: int) -> None:
    site.main("#include <deep/down/cfg.h>\n" + FUNCTION)
    site.write("late/deep/down/cfg.h", _header(1))
    site.cxx_args = ["-isystem", str(site.folder / "early"), "-isystem", str(site.folder / "late")]
    (site.folder / "early").mkdir(exist_ok=True)
    if value == 2:
        site.write("early/deep/down/cfg.h", _header(2))


@_row("a header that appears beside the header that quotes it")
def _(site: Site, value: int) -> None:
    site.main("#include <outer.h>\n" + FUNCTION)
    site.write("told/outer.h", '#include "inner.h"\n')
    site.write("late/inner.h", _header(1))
    site.cxx_args = ["-isystem", str(site.folder / "told"), "-isystem", str(site.folder / "late")]
    if value == 2:
        site.write("told/inner.h", _header(2))


@_row("a system's header that appears in an include directory of the op")
def _(site: Site, value: int) -> None:
    site.main("#include <cctype>\nconst int kAnswer = 1\n#ifdef MINE\n+ 1\n#endif\n;\n" + FUNCTION)
    site.include_dirs = [str(site.folder / "include")]
    site.write("include/other.h", "")
    if value == 2:
        site.write("include/ctype.h", "#define MINE\n#include_next <ctype.h>\n")


@_row("a header that __has_include finds")
def _(site: Site, value: int) -> None:
    site.main(
        "#if __has_include(<optional_part.h>)\nconst int kAnswer = 2;\n#else\nconst int kAnswer = 1;\n#endif\n"
        + FUNCTION
    )
    (site.folder / "told").mkdir(exist_ok=True)
    site.environment["CPATH"] = str(site.folder / "told")
    if value == 2:
        site.write("told/optional_part.h", "")


@_row("a response file of the compiler")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.cxx_args = [f"@{site.write('flags.rsp', f'-DkAnswer={value}')}"]


@_row("a response file within a response file")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    inner = site.write("inner.rsp", f"-DkAnswer={value}")
    outer = site.write("outer.rsp", f'"@{inner}"')
    site.cxx_args = [f"@{outer}"]


@_row("a compiler that is a script, of the same version")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = site.program("bin/wrapper", f'exec c++ -DkAnswer={value} "$@"')


@_row("a script that a script starts")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    inner = site.program("bin/inner", f'exec c++ -DkAnswer={value} "$@"')
    site.environment["CXX"] = site.program("bin/wrapper", f'exec "{inner}" "$@"')


@_row("the compiler behind one that stands in for it")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.program("masquerade/ccache", 'PATH=$(echo "$PATH" | cut -d: -f2-); exec "$(basename "$0")" "$@"')
    (site.folder / "masquerade/c++").unlink(missing_ok=True)
    (site.folder / "masquerade/c++").symlink_to("ccache")
    site.program("real/c++", f'exec {shutil.which("c++")} -DkAnswer={value} "$@"')
    site.environment["PATH"] = f"{site.folder}/masquerade:{site.folder}/real:{os.environ['PATH']}"
    site.environment["CXX"] = None


@_row("a variable that a compiler's script reads")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = site.program("bin/wrapper", 'exec c++ -DkAnswer=$MY_ANSWER "$@"')
    site.environment["MY_ANSWER"] = str(value)


@_row("an argument of CXX")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = f"c++ -DkAnswer={value}"


DATA = 'asm(".section .rodata\\n.globl kData\\nkData: .long VALUE\\n.previous");\nextern "C" const int kData;\n'
DATA += 'extern "C" __attribute__((visibility("default"))) int answer() { return kData; }\n'


@_row("an assembler that -B names")
def _(site: Site, value: int) -> None:
    site.main(
        DATA.replace('extern "C" const int kData;', 'extern "C" __attribute__((visibility("hidden"))) const int kData;')
    )
    site.program("tools/as", f'exec {shutil.which("as")} --defsym VALUE={value} "$@"')
    site.cxx_args = [f"-B{site.folder}/tools"]


@_row("an assembler that COMPILER_PATH names")
def _(site: Site, value: int) -> None:
    site.main(
        DATA.replace('extern "C" const int kData;', 'extern "C" __attribute__((visibility("hidden"))) const int kData;')
    )
    site.program("tools/as", f'exec {shutil.which("as")} --defsym VALUE={value} "$@"')
    site.environment["COMPILER_PATH"] = str(site.folder / "tools")


EMBEDDED = 'asm(".section .rodata\\n.globl kData\\nkData: .incbin " FILE "\\n.previous");\n'
EMBEDDED += 'extern "C" __attribute__((visibility("hidden"))) const char kData;\n'
EMBEDDED += 'extern "C" __attribute__((visibility("default"))) int answer() { return kData - \'0\'; }\n'


@_row("data that the assembler embeds")
def _(site: Site, value: int) -> None:
    data = site.write("data.bin", str(value))
    site.main(EMBEDDED.replace("FILE", f'"\\"{data}\\""'))


@_row("data that the assembler embeds, named by a flag")
def _(site: Site, value: int) -> None:
    data = site.write("data.bin", str(value))
    site.main(EMBEDDED)
    site.cxx_args = [f'-DFILE="\\"{data}\\""']


@_row("a static library by -L and -l")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.archive("lib/libpart.a", value)
    site.libraries, site.ldflags = ["part"], [f"-L{site.folder}/lib"]


@_row("a static library by -l: and its name")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.archive("lib/libpart.a", value)
    site.ldflags = ["-l:libpart.a", "-L", f"{site.folder}/lib"]


@_row("a static library found by LIBRARY_PATH")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.archive("lib/libpart.a", value)
    site.libraries = ["part"]
    site.environment["LIBRARY_PATH"] = str(site.folder / "lib")


@_row("a library that appears earlier in the search path")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.archive("late/libpart.a", 1)
    (site.folder / "early").mkdir(exist_ok=True)
    site.libraries, site.ldflags = ["part"], [f"-L{site.folder}/early", f"-L{site.folder}/late"]
    if value == 2:
        site.archive("early/libpart.a", 2)


@_row("an object file by its path")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.ldflags = [site.archive("objects/part.o", value)]


@_row("a library that is a linker script")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    part = site.archive(f"objects/part{value}.o", value)
    site.write("lib/libpart.so", f'INPUT("{part}")\n')
    site.libraries, site.ldflags = ["part"], [f"-L{site.folder}/lib"]


@_row("an object file that a linker script names")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    part = site.archive("objects/part.o", value)
    site.write("lib/libpart.so", f'INPUT("{part}")\n')
    site.libraries, site.ldflags = ["part"], [f"-L{site.folder}/lib"]


@_row("a response file of the linker")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    part = site.archive(f"objects/part{value}.o", value)
    flags = site.write("link.rsp", f'"{part}"')
    site.ldflags = [f"@{flags}"]


@_row("a library that a response file names")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    site.archive("lib/libpart.a", value)
    flags = site.write("link.rsp", f'"-L{site.folder}/lib" -lpart')
    site.ldflags = [f"@{flags}"]


@_row("a symbol that the linker defines by a script")
def _(site: Site, value: int) -> None:
    site.main(
        'extern "C" __attribute__((visibility("hidden"))) const char kPlace;\n'
        'extern "C" __attribute__((visibility("default"))) int answer() { return (int)((long)&kPlace & 0xff); }\n'
    )
    site.ldflags = [site.write("place.ld", f"HIDDEN(kPlace = ABSOLUTE({value}));\n"), "-Wl,--no-relax"]


HIDDEN = 'extern "C" __attribute__((visibility("hidden"))) const int kData;'


@_row("an assembler that appears earlier in PATH")
def _(site: Site, value: int) -> None:
    site.main(DATA.replace('extern "C" const int kData;', HIDDEN))
    printed = subprocess.run(["c++", "-print-prog-name=as"], capture_output=True, text=True, check=True).stdout.strip()
    for number in (1, 2):  # some distributions' compilers call it x86_64-linux-gnu-as
        site.program(
            f"tools{number}/{os.path.basename(printed)}", f'exec {shutil.which(printed)} --defsym VALUE={number} "$@"'
        )
    site.environment["PATH"] = f"{site.folder}/tools{value}:{os.environ['PATH']}"


@_row("a program that a wrapper finds elsewhere in PATH")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    for number in (1, 2):
        site.program(f"tools{number}/mycc", f'exec c++ -DkAnswer={number} "$@"')
    site.environment["CXX"] = site.program("bin/wrapper", 'exec mycc "$@"')
    site.environment["PATH"] = f"{site.folder}/tools{value}:{os.environ['PATH']}"


@_row("a file that a compiler's script reads")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    flags = site.write("flags.txt", f"-DkAnswer={value}")
    site.environment["CXX"] = site.program("bin/wrapper", f'exec c++ $(cat "{flags}") "$@"')


@_row("a module that a compiler's script in Python imports")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.write("bin/conf.py", f"VALUE = {value}\n")
    script = site.program("bin/wrapper", "")
    with open(script, "w", encoding="utf-8") as file:
        file.write("#!/usr/bin/env python3\nimport os, sys, conf\n")
        file.write("os.execvp('c++', ['c++', f'-DkAnswer={conf.VALUE}', *sys.argv[1:]])\n")
    site.environment["CXX"] = script
    site.environment["PYTHONDONTWRITEBYTECODE"] = "1"


@_row("a variable that a compiler's script reads without a dollar")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = site.program("bin/wrapper", 'exec c++ -DkAnswer="$(printenv MY_ANSWER)" "$@"')
    site.environment["MY_ANSWER"] = str(value)


@_row("a script that an assembler of -B starts, by a response file")
def _(site: Site, value: int) -> None:
    site.main(DATA.replace('extern "C" const int kData;', HIDDEN))
    inner = site.program("inner/as", f'exec {shutil.which("as")} --defsym VALUE={value} "$@"')
    site.program("tools/as", f'exec "{inner}" "$@"')
    flags = site.write("flags.rsp", f'"-B{site.folder}/tools"')
    site.cxx_args = [f"@{flags}"]


@_row("a header named by a macro that appears beside the source")
def _(site: Site, value: int) -> None:
    site.main('#define WHICH "cfg.h"\n#include WHICH\n' + FUNCTION)
    site.write("late/cfg.h", _header(1))
    site.cxx_args = ["-isystem", str(site.folder / "late")]
    if value == 2:
        site.write("src/cfg.h", _header(2))


OPTIONAL = "const int kAnswer = 2;\n#else\nconst int kAnswer = 1;\n#endif\n" + FUNCTION
for _name, _condition in {
    "a macro": "#define OPT <opt.h>\n#if __has_include(OPT)\n",
    "a macro with an argument": "#define HAS(x) __has_include(x)\n#if HAS(<opt.h>)\n",
    "a macro for a name without a suffix": "#define OPT <opt>\n#if defined(__has_include) && __has_include( OPT )\n",
    "a macro with an argument without a suffix": "#define HAS(x) __has_include(x)\n#if HAS(<opt>)\n",
    "a comment between": "#if __has_include/**/(<opt.h>)\n",
    "an absolute path": '#if __has_include("{folder}/told/opt.h")\n',
}.items():

    @_row(f"a header that __has_include finds, by {_name}")
    def _(site: Site, value: int, condition: str = _condition) -> None:
        site.main(condition.format(folder=site.folder) + OPTIONAL)
        (site.folder / "told").mkdir(exist_ok=True)
        site.environment["CPATH"] = str(site.folder / "told")
        if value == 2:
            site.write("told/opt.h" if "opt.h" in condition else "told/opt", "")


for _folder in (
    *("a folder\u3000of headers", "lib/ziglang/include", "toolchain/include/c++/20"),
    *("a\ttab", "a\\ space", "a\u2028b"),
):

    @_row(f"a header in {_folder!r}")
    def _(site: Site, value: int, folder: str = _folder) -> None:
        site.main("#include <cfg.h>\n" + FUNCTION)
        site.write(f"{folder}/cfg.h", _header(value))
        site.environment["CXX"] = site.program("toolchain/bin/wrapper", 'exec c++ "$@"')
        site.cxx_args = ["-isystem", str(site.folder / folder)]


@_row("a precompiled header that appears beside a header")
def _(site: Site, value: int) -> None:
    site.main('#include "cfg.h"\n' + FUNCTION)
    header = site.write("told/cfg.h", _header(2))
    site.cxx_args = ["-I", str(site.folder / "told")]
    flags = ["-O0", "-std=c++20", "-fPIC", "-DTORCH_TARGET_VERSION=0x020a000000000000", "-fvisibility=hidden"]
    if value == 2:
        subprocess.run(["c++", *flags, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    site.write("told/cfg.h", _header(1))


@_row("a static library that appears where a shared one is")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    (site.folder / "early").mkdir(exist_ok=True)
    (site.folder / "early" / "libpart.so").write_bytes(b"")
    site.archive("late/libpart.a", 1)
    site.ldflags = ["-Wl,-Bstatic", "-lpart", "-Wl,-Bdynamic", f"-L{site.folder}/early", f"-L{site.folder}/late"]
    if value == 2:
        site.archive("early/libpart.a", 2)


@_row("a library that the linker itself is told of")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    (site.folder / "early").mkdir(exist_ok=True)
    site.archive("late/libpart.a", 1)
    site.ldflags = ["-Wl,-lpart", f"-L{site.folder}/early", f"-L{site.folder}/late"]
    if value == 2:
        site.archive("early/libpart.a", 2)


@_row("a library of a linker script that appears earlier")
def _(site: Site, value: int) -> None:
    site.main(LINKED)
    (site.folder / "early").mkdir(exist_ok=True)
    site.archive("late/libpart.a", 1)
    script = site.write("inputs.ld", "INPUT(-lpart)\n")
    site.ldflags = [script, f"-L{site.folder}/early", f"-L{site.folder}/late"]
    if value == 2:
        site.archive("early/libpart.a", 2)


@_row("a script that a compiler's script starts beside itself")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = site.program("bin/wrapper", 'exec "$(dirname "$0")/inner" "$@"')
    site.program("bin/inner", f'exec c++ -DkAnswer={value} "$@"')


@_row("a file that appears beside a compiler's script")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    script = 'F=-DkAnswer=1; here=${0%/*}; [ -f "$here/more" ] && . "$here/more"; exec c++ $F "$@"'
    site.environment["CXX"] = site.program("bin/wrapper", script)
    if value == 2:
        site.write("bin/more", "F=-DkAnswer=2")


@_row("a script that a compiler's script reads from a file beside itself")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.environment["CXX"] = site.program("bin/wrapper", '. "$(dirname "$0")/one.sh"; exec c++ $F "$@"')
    site.write("bin/one.sh", '. "$(dirname "$0")/two.sh"\n')
    site.write("bin/two.sh", f"F=-DkAnswer={value}\n")


@_row("a file that a compiler's script reads below a variable's folder")
def _(site: Site, value: int) -> None:
    site.main(FUNCTION)
    site.write("root/etc/flags", f"-DkAnswer={value}")
    site.environment["my_root"] = str(site.folder / "root")
    site.environment["CXX"] = site.program("bin/wrapper", 'exec c++ @"${my_root}/etc/flags" "$@"')


@_row("a link from one header to another that is read, too")
def _(site: Site, value: int) -> None:
    site.main('#if 0\n#include "v1/cfg.h"\n#include "v2/cfg.h"\n#endif\n#include <cfg.h>\n' + FUNCTION)
    for each in (1, 2):
        site.write(f"src/v{each}/cfg.h", _header(each))
    site.cxx_args = ["-I", _switch(site, "current", f"src/v{value}")]


for _flag in ("-DOPT=<opt.h>", '-DOPT="opt.h"'):

    @_row(f"a header that __has_include finds, by the flag {_flag}")
    def _(site: Site, value: int, flag: str = _flag) -> None:
        site.main("#if __has_include(OPT)\n" + OPTIONAL)
        (site.folder / "told").mkdir(exist_ok=True)
        site.cxx_args = [flag, "-I", str(site.folder / "told")]
        if value == 2:
            site.write("told/opt.h", "")
