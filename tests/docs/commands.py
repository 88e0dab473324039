"""The page of the command line, from the signatures and docstrings of the commands."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from anyaccel import cli

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["commands", "page"]

_MARKUP = re.compile(r"\[/?(?:bold)?\]")


def commands() -> dict[str, Callable[..., Any]]:
    """Return the function of each command, by what the user types."""
    of_cache = cli.cache.app.registered_commands
    named = {f"cache {each.name}": each.callback for each in of_cache if each.callback is not None}
    return {**{name: module.command for name, module in cli._COMMANDS.items()}, **named}


def page() -> str:
    """Return a section for each command: what it does, its usage, an example, and a table of its options."""
    lines = [""]
    for name, function in commands().items():
        hints = get_type_hints(function, include_extras=True)
        rows: list[str] = []
        arguments: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            info = next(
                each for each in hints[parameter.name].__metadata__ if isinstance(each, ArgumentInfo | OptionInfo)
            )
            is_needed = parameter.default is inspect.Parameter.empty
            if isinstance(info, ArgumentInfo):
                arguments.append(parameter.name if is_needed else f"[{parameter.name}]")
                rows.append(f"| `{parameter.name}` | {info.help} | |")
            else:
                meaning = _meaning(str(info.help), hints[parameter.name].__origin__)
                rows.append(f"| {_options(parameter.name, info)} | {meaning} | {_default(parameter.default)} |")
        usage = " ".join(["anyaccel", name, *(["[options]"] if len(rows) > len(arguments) else []), *arguments])
        example = getattr(cli._COMMANDS.get(name), "EPILOG", "")
        lines += [
            f"## `anyaccel {name}`",
            "",
            str(inspect.getdoc(function)).replace("``", "`"),
            "",
            f"Usage: `{usage}`",
        ]
        lines += ["", _as_code(example)] if example else []
        lines += ["", "| option or argument | meaning | default |", "|---|---|---|", *rows] if rows else []
        lines.append("")
    return "\n".join([*lines, ""])


def _as_code(example: str) -> str:
    code = re.sub(r"\[bold\](.*?)\[/\]", r"`\1`", example)
    return f"{_MARKUP.sub('', code)}{'' if code.endswith('.') else '.'}"


def _meaning(text: str, kind: Any) -> str:
    """Return an option's help with the values that it may have, and whether it may be given several times."""
    kinds = get_args(kind) or (kind,)
    values = [str(each.value) for one in kinds if isinstance(one, type) and issubclass(one, Enum) for each in one]
    is_list = any(get_origin(each) is list for each in (kind, *kinds))
    of_values = f" One of {', '.join(f'`{value}`' for value in values)}." if values else ""
    return f"{text}{of_values}{' Repeatable.' if is_list and 'epeatable' not in text else ''}"


def _options(name: str, info: OptionInfo) -> str:
    first = info.default if isinstance(info.default, str) else f"--{name.replace('_', '-')}"
    return ", ".join(f"`{each}`" for each in (first, *(info.param_decls or ())))


def _default(value: object) -> str:
    if value is None or value is False:
        return ""
    return f"`{value.value if isinstance(value, Enum) else value}`"
