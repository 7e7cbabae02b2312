"""`tidegate import`: access rules of other brokers, written as policies, or a whole Mosquitto as a configuration.

The policies go to standard output or to a file, what has no equivalent to standard error. Exit code 1 if nothing
could be read, or with `--strict` if anything was left out.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from tidegate.cli import terminal
from tidegate.cli.options import Json
from tidegate.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.importing import Imported

MAX_BYTES: Final = 16 << 20

app = terminal.command_group("Take another broker over, or its access rules as policies.")

File = Annotated[Path, typer.Argument(help="File to read.", show_default=False, metavar="FILE")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", help="File to write; it must not exist. Default: standard output.", metavar="FILE"),
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 if anything has no equivalent.")]


_FORMATS: Final = {
    "mosquitto-acl": ("mosquitto_acl", "the `acl_file` of Mosquitto", "/etc/mosquitto/acl"),
    "mosquitto-dynsec": (
        "mosquitto_dynsec",
        "the file of Mosquitto's dynamic security plugin",
        "/var/lib/mosquitto/dynamic-security.json",
    ),
    "emqx-acl": ("emqx", "the `acl.conf` of EMQX", "/etc/emqx/acl.conf"),
    "xacml": ("xacml", "an XACML 2.0 policy or policy set", "policy.xml"),
}
"""The commands: the module that reads the format, what it reads, and an example."""


def _import_command(module: str) -> Callable[..., None]:
    def command(file: File, output: Output = None, json: Json = False, strict: Strict = False) -> None:
        read = import_module(f"tidegate.importing.{module}").read
        _take_over(read, file, output, json=json, strict=strict)

    return command


for _name, (_module, _what, _example) in _FORMATS.items():
    _command = _import_command(_module)
    _command.__doc__ = f"Read {_what}.\n\n[dim]tidegate import {_name} {_example}[/dim]\n"
    app.command(_name)(_command)


@app.command("mosquitto")
def mosquitto(
    conf: Annotated[Path, typer.Option("--conf", help="The `mosquitto.conf`.", show_default=False, metavar="FILE")],
    output: Output = None,
    guard: Annotated[
        bool, typer.Option("--guard", help="Keep Mosquitto, behind a guard; its files are written beside the output.")
    ] = False,
    shadow: Annotated[
        bool, typer.Option("--shadow", help="Enforce nothing at first: `enforce: false`. See `tidegate shadow report`.")
    ] = False,
    behind_port: Annotated[
        int, typer.Option("--behind-port", min=1, max=65535, help="Port of the Mosquitto behind the guard.")
    ] = 1884,
    name: Annotated[str, typer.Option("--name", help="Name of the node.", metavar="NAME")] = "broker",
    json: Json = False,
    strict: Strict = False,
) -> None:
    """Take a whole Mosquitto over: listeners, access, passwords, bridges, limits.

    [dim]tidegate import mosquitto --conf /etc/mosquitto/mosquitto.conf -o tidegate.yaml[/dim]
    """
    from tidegate.importing import mosquitto_takeover
    from tidegate.importing.imported_policies import aligned, to_yaml
    from tidegate.importing.mosquitto_behind import Wanted

    wanted = None
    if guard:
        if output is None:
            raise typer.BadParameter("needs `--output FILE`, because Mosquitto's own files are written beside it")
        folder = str(output.resolve().parent)
        password, salt = secrets.token_urlsafe(24), secrets.token_bytes(12)
        wanted = Wanted(port=behind_port, folder=folder, stem="mosquitto-behind", password=password, salt=salt)
    taken = mosquitto_takeover.read(_content(conf), str(conf), _Files(), name=name, behind=wanted, enforce=not shadow)
    text = to_yaml(taken.imported, str(conf))
    if output is not None:
        _write(output, text, private=True)
        for file, content in ({} if taken.behind is None else taken.behind.files).items():
            _write(output.parent / file, content)
    if json:
        terminal.print_json(taken.imported.data())
    elif output is None:
        sys.stdout.write(text)
    _list(aligned(taken.imported.left))
    if strict and taken.imported.left:
        raise typer.Exit(terminal.NO)


class _Files:
    """The files that a `mosquitto.conf` names, from the folder in which the command runs, as Mosquitto has it."""

    def text(self, path: str) -> str:
        return _content(Path(path))

    def names(self, folder: str) -> list[str]:
        try:
            return [str(path) for path in Path(folder).iterdir()]
        except OSError as broken:
            text = f"cannot be read ({broken.strerror}); check its name and permissions"
            raise ConfigError(text, file=folder) from None

    def absolute(self, path: str) -> str:
        return str(Path(path).absolute())


def _take_over(
    read: Callable[[str, str], Imported], file: Path, output: Path | None, *, json: bool, strict: bool
) -> None:
    from tidegate.importing.imported_policies import aligned, to_yaml

    imported = read(_content(file), str(file))
    text = to_yaml(imported, str(file))
    if imported.nothing:
        _list(aligned(imported.left))
        raise ConfigError("holds nothing that can be taken over; is it the right file?", file=str(file))
    if output is not None:
        _write(output, text)
    if json:
        terminal.print_json(imported.data())
    elif output is None:
        sys.stdout.write(text)
    _list(aligned(imported.left))
    if strict and imported.left:
        raise typer.Exit(terminal.NO)


def _content(file: Path) -> str:
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except OSError as broken:
        text = f"cannot be read ({broken.strerror}); check its name and permissions"
        raise ConfigError(text, file=str(file)) from None
    if len(content) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES >> 20} MiB; split it", file=str(file))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = content.count(b"\n", 0, broken.start) + 1
        raise ConfigError("not UTF-8 text; save the file as UTF-8", file=str(file), line=line) from None


def _write(output: Path, text: str, *, private: bool = False) -> None:
    """Writes a new file; a private one is for its owner alone."""
    try:
        with output.open("x", encoding="utf-8") as stream:
            if private:
                output.chmod(0o600)
            stream.write(text)
    except OSError as broken:
        text = f"cannot be written ({broken.strerror}); choose another name"
        raise ConfigError(text, file=str(output)) from None


def _list(lines: list[str]) -> None:
    if not lines:
        return
    terminal.note(f"without an equivalent ({len(lines)}):")
    for line in lines:
        terminal.err().print(terminal.harmless(line), markup=False)
