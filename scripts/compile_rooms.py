"""Compiles the rooms on the way of a message with mypyc: the same source, two to three times as fast.

    python scripts/compile_rooms.py            unless there is a library of these sources and this Python
    python scripts/compile_rooms.py --remove   from now on the source runs

The result is one shared library beside the package, which git ignores. `tidegate.compiled` loads it, and only while it
is of exactly the source that is there. Wheels are built with it as well (`scripts/wheel_hook.py`).

Without a C compiler, with `TIDEGATE_PURE=1`, or if something fails, this says so and ends well: Tidegate runs from its
source. With `--must` that is an error.
"""

from __future__ import annotations

import argparse
import ast
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SRC / "tidegate"
sys.path.insert(0, str(SRC))
os.environ["TIDEGATE_PURE"] = "1" if os.environ.get("TIDEGATE_PURE", "0") not in ("", "0") else "0"

from tidegate import compiled  # noqa: E402

PURE = {}
"""Modules of these rooms that are not compiled, and why."""

FLAGS = ["-O2", "-g0", "-w", "-fno-strict-overflow", "-fwrapv", "-DNDEBUG"]
OPTIONS = ["--ignore-missing-imports", "--follow-untyped-imports", "--cache-dir=/dev/null", "--config-file="]
ROOMS_C = """#include <Python.h>
#include <string.h>
{declarations}
static struct {{ const char *name; PyObject *(*init)(void); }} rooms[] = {{
{rows}
    {{NULL, NULL}}
}};
static PyObject *load(PyObject *self, PyObject *name) {{
    const char *wanted = PyUnicode_AsUTF8(name);
    if (wanted == NULL) return NULL;
    for (int i = 0; rooms[i].name; i++)
        if (strcmp(rooms[i].name, wanted) == 0) return rooms[i].init();
    PyErr_SetObject(PyExc_KeyError, name);
    return NULL;
}}
static PyMethodDef methods[] = {{{{"load", load, METH_O, NULL}}, {{NULL, NULL, 0, NULL}}}};
static struct PyModuleDef definition = {{PyModuleDef_HEAD_INIT, "tidegate.rooms", NULL, -1, methods}};
PyMODINIT_FUNC PyInit_rooms(void) {{
    PyObject *module = PyModule_Create(&definition);
    if (module == NULL) return NULL;
{constants}
    return module;
}}
"""


class Failed(Exception):
    """Why there is no library."""


def chosen(package: Path) -> list[str]:
    """The files that are compiled, from the package on."""
    files: list[Path] = []
    for room in sorted(compiled.ROOMS):
        folder = package / room
        files += sorted(folder.glob("*.py")) if folder.is_dir() else [folder.with_suffix(".py")]
    names = (file.relative_to(package).as_posix() for file in files if file.name != "__init__.py")
    return [name for name in names if name not in PURE]


def needed(package: Path, names: list[str]) -> list[str]:
    """These files and all of the package that they import, also for types alone: what is compiled depends on it."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found or not (package / name).exists():
            continue
        found.add(name)
        for node in ast.walk(ast.parse((package / name).read_bytes())):
            modules = (
                [node.module or "", *(f"{node.module}.{each.name}" for each in node.names)]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            for module in modules:
                first, _, rest = module.partition(".")
                if first == "tidegate":
                    path = rest.replace(".", "/")
                    waiting += [f"{path}.py", f"{path}/__init__.py"]
                    waiting += [f"{path.rsplit('/', 1)[0]}/__init__.py"] if "/" in path else []
    return sorted(found)


def maker() -> str:
    """What the library depends on besides the sources."""
    own = compiled.digest(Path(__file__).parent, [Path(__file__).name])[:16]
    return f"mypy-{version('mypy')}-{own}"


def present(package: Path, sources: list[str]) -> bool:
    """Whether there is a library of exactly this."""
    # in a process of its own: what is loaded here could not be replaced
    program = "import sys, pathlib; from tidegate.compiled import open_library as o;"
    program += "rooms = o(pathlib.Path(sys.argv[1])); print(rooms.digest, rooms.maker)"
    file = package / compiled.LIBRARY
    if not file.exists():
        return False
    ask = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(
        ask, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(package.parent)}
    )
    return done.stdout.split() == [compiled.digest(package, sources), maker()]


def compile_rooms(package: Path = PACKAGE) -> None:
    """Raises `Failed` with the reason."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise Failed(f"there is no C compiler ({compiler[0]})")
    include = sysconfig.get_path("include")
    if not (Path(include) / "Python.h").exists():
        raise Failed(f"Python's header files are missing ({include}); Debian has them in python3-dev")
    names = chosen(package)
    sources = needed(package, names)
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder)
        # mypyc ends the process where it fails, and is not needed any more when the C compiler is at work
        ask = [sys.executable, __file__, "--translate", str(package.parent), str(build), *names]
        done = subprocess.run(ask, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Failed(f"mypyc: {(done.stdout + done.stderr).strip()}")
        modules = [f"tidegate.{name.removesuffix('.py').replace('/', '.')}" for name in names]
        (build / "rooms.c").write_text(_rooms(modules, sources, compiled.digest(package, sources)))
        _build(compiler, include, build)
        made = build / compiled.LIBRARY
        beside = package / f".{compiled.LIBRARY}.{os.getpid()}"
        shutil.copy(made, beside)
        beside.replace(package / compiled.LIBRARY)


def _rooms(modules: list[str], sources: list[str], digest: str) -> str:
    inits = {name: f"CPyInit_{name.replace('.', '___')}" for name in modules}
    constants = {"digest": digest, "maker": maker(), "modules": " ".join(modules), "sources": " ".join(sources)}
    return ROOMS_C.format(
        declarations="\n".join(f"extern PyObject *{init}(void);" for init in inits.values()),
        rows="\n".join(f'    {{"{name}", {init}}},' for name, init in inits.items()),
        constants="\n".join(
            f'    if (PyModule_AddStringConstant(module, "{name}", "{text}") < 0) return NULL;'
            for name, text in constants.items()
        ),
    )


def _build(compiler: list[str], include: str, build: Path) -> None:
    import mypyc

    runtime = Path(mypyc.__file__).parent / "lib-rt"
    flags = [
        *FLAGS,
        *shlex.split(sysconfig.get_config_var("CCSHARED") or ""),
        f"-I{include}",
        f"-I{runtime}",
        f"-I{build}",
    ]

    def one(file: Path) -> Path:
        made = file.with_suffix(".o")
        _run([*compiler, *flags, "-c", str(file), "-o", str(made)])
        return made

    files = sorted(build.rglob("*.c"), key=lambda file: -file.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = [str(made) for made in workers.map(one, files)]
    link = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    _run([*link, *objects, "-o", str(build / compiled.LIBRARY)])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{command[0]}: {done.stderr.strip()[-2000:]}")


def translate(src: str, build: str, names: list[str]) -> None:
    """mypyc's part: C sources in `build`."""
    import mypyc
    from mypyc.build import mypyc_build
    from mypyc.common import RUNTIME_C_FILES
    from mypyc.options import CompilerOptions

    os.chdir(src)  # places in tracebacks begin with `tidegate/`
    os.environ["MYPYPATH"] = "."
    options = CompilerOptions(
        multi_file=True, target_dir=build, group_name="tidegate_rooms", include_runtime_files=False
    )
    _, _, more = mypyc_build([*OPTIONS, *(f"tidegate/{name}" for name in names)], options)
    runtime = Path(mypyc.__file__).parent / "lib-rt"
    for name in (*RUNTIME_C_FILES, *(each.path for each in more)):
        shutil.copy(runtime / name, Path(build) / Path(name).name)


def main() -> int:
    if sys.argv[1:2] == ["--translate"]:
        translate(sys.argv[2], sys.argv[3], sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--remove", action="store_true", help="the source runs from now on")
    parser.add_argument("--must", action="store_true", help="exit code 1 if nothing can be compiled")
    arguments = parser.parse_args()
    file = PACKAGE / compiled.LIBRARY
    if arguments.remove:
        file.unlink(missing_ok=True)
        return 0
    begun = time.monotonic()
    try:
        if os.environ["TIDEGATE_PURE"] != "0":
            raise Failed("TIDEGATE_PURE is set")
        if present(PACKAGE, needed(PACKAGE, chosen(PACKAGE))):
            return 0
        print("==> compiling rooms", flush=True)
        compile_rooms()
    except Failed as error:
        print(f"Tidegate runs uncompiled: {error}", file=sys.stderr)
        return int(arguments.must)
    print(f"    {time.monotonic() - begun:.0f} s, {file.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
