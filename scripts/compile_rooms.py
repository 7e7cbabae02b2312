"""Compiles the rooms on the way of a message with mypyc: the same source, about twice as fast.

    python scripts/compile_rooms.py            unless there is a library of these sources and this Python
    python scripts/compile_rooms.py --remove   from now on the source runs

The result is one shared library beside the package, which git ignores. `tidegate.compiled` loads it, and only while it
is of exactly the source that is there. `make test-compiled` does this first, and with `TIDEGATE_COMPILE=1`
`make run` and the building of a wheel do (`scripts/wheel_hook.py`).

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
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

SRC = Path(__file__).resolve().parents[1] / "src"
PACKAGE = SRC / "tidegate"
sys.path.insert(0, str(SRC))

from tidegate import compiled  # noqa: E402

PURE = {"wire/envelope_static.py": "reads what another node says into fields of a class, and checks their types then"}
"""Modules of these rooms that are not compiled, and why."""

FLAGS = ["-O1", "-g0", "-w", "-fwrapv", "-DNDEBUG"]
OPTIONS = ["--ignore-missing-imports", "--cache-dir=/dev/null", "--config-file="]
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
    rooms = sorted(compiled.ROOMS)
    files = [file for room in rooms for file in (*package.glob(f"{room}.py"), *sorted(package.glob(f"{room}/*.py")))]
    names = (file.relative_to(package).as_posix() for file in files if file.name != "__init__.py")
    return [name for name in names if name not in PURE]


def needed(package: Path, names: list[str]) -> list[str]:
    """These files and all of the package that they import, also for types alone: what is compiled depends on it."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found and (package / name).exists():
            found.add(name)
            for module in _imported((package / name).read_bytes()):
                path = module.removeprefix("tidegate.").replace(".", "/")
                waiting += [f"{path}.py", f"{path}/__init__.py", f"{path.rpartition('/')[0]}/__init__.py"]
    return sorted(found)


def _imported(source: bytes) -> Iterator[str]:
    """Modules of the package, and names in them, which may be modules."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (module := node.module or "").startswith("tidegate"):
            yield from (module, *(f"{module}.{each.name}" for each in node.names))


def maker() -> str:
    """What the library depends on besides the sources."""
    return f"mypy-{version('mypy')}-{compiled.digest(Path(__file__).parent, [Path(__file__).name])[:16]}"


def present(package: Path, sources: list[str]) -> bool:
    """Whether there is a library of exactly this."""
    file = package / compiled.LIBRARY
    if not file.exists():
        return False
    try:
        library = compiled.open_library(file)
    except ImportError:
        return False
    return (library.digest, library.maker) == (compiled.digest(package, sources), maker())


def c_compiler() -> tuple[list[str], str]:
    """Its command, and the folder with Python's header files. Raises `Failed` if one is not there."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    if shutil.which(compiler[0]) is None:
        raise Failed(f"there is no C compiler ({compiler[0]})")
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        raise Failed(f"Python's header files are not in {include}; Debian has them in python3-dev")
    return compiler, include


def compile_rooms(package: Path, sources: list[str], names: list[str]) -> None:
    """Raises `Failed` with the reason."""
    compiler, include = c_compiler()
    with tempfile.TemporaryDirectory(prefix="tidegate-rooms-") as folder:
        build = Path(folder)
        # in a process of its own: mypyc ends it where it fails, and its memory is free when the C compiler begins
        _run("mypyc", [sys.executable, __file__, "--translate", str(package.parent), str(build), *names])
        modules = [f"tidegate.{name.removesuffix('.py').replace('/', '.')}" for name in names]
        (build / "rooms.c").write_text(_table(modules, sources, compiled.digest(package, sources)))
        made = _build(compiler, include, build)
        beside = package / f"{compiled.LIBRARY}.{os.getpid()}"
        shutil.copy(made, beside)
        beside.replace(package / compiled.LIBRARY)  # whoever has loaded the last one keeps it


def _table(modules: list[str], sources: list[str], digest: str) -> str:
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


def _build(compiler: list[str], include: str, build: Path) -> Path:
    flags = [*FLAGS, *shlex.split(sysconfig.get_config_var("CCSHARED") or ""), f"-I{include}", f"-I{build}"]

    def compile_file(file: Path) -> str:
        made = str(file.with_suffix(".o"))
        _run(compiler[0], [*compiler, *flags, f"-I{_runtime()}", "-c", str(file), "-o", made])
        return made

    files = sorted(build.glob("*.c"), key=lambda file: -file.stat().st_size)
    with ThreadPoolExecutor(os.cpu_count()) as workers:
        objects = list(workers.map(compile_file, files))
    link, made = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared"), build / compiled.LIBRARY
    _run(link[0], [*link, *objects, "-o", str(made)])
    return made


def _run(name: str, command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(f"{name}: {(done.stdout + done.stderr).strip()[-4000:]}")


def _runtime() -> Path:
    import mypyc

    return Path(mypyc.__file__).parent / "lib-rt"


def translate(src: str, build: str, names: list[str]) -> None:
    """mypyc's part: C sources in `build`."""
    from mypyc.build import mypyc_build
    from mypyc.common import RUNTIME_C_FILES
    from mypyc.options import CompilerOptions

    os.chdir(src)  # places in tracebacks begin with `tidegate/`
    os.environ["MYPYPATH"] = "."
    options = CompilerOptions(
        multi_file=True, target_dir=build, group_name="tidegate_rooms", include_runtime_files=False
    )
    _, _, more = mypyc_build([*OPTIONS, *(f"tidegate/{name}" for name in names)], options)
    for name in (*RUNTIME_C_FILES, *(each.path for each in more)):
        shutil.copy(_runtime() / name, Path(build, Path(name).name))


def main() -> int:
    if sys.argv[1:2] == ["--translate"]:
        translate(sys.argv[2], sys.argv[3], sys.argv[4:])
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--remove", action="store_true", help="from now on the source runs")
    parser.add_argument("--must", action="store_true", help="exit code 1 if it cannot be compiled")
    arguments = parser.parse_args()
    file = PACKAGE / compiled.LIBRARY
    if arguments.remove:
        file.unlink(missing_ok=True)
        return 0
    begun = time.monotonic()
    try:
        if compiled.pure_wanted():
            raise Failed("TIDEGATE_PURE is set")
        names = chosen(PACKAGE)
        sources = needed(PACKAGE, names)
        if present(PACKAGE, sources):
            return 0
        c_compiler()
        print(f"==> compiling {len(names)} modules, again only when their source changes: ", end="", flush=True)
        try:
            compile_rooms(PACKAGE, sources, names)
        except BaseException:
            print("failed", flush=True)
            raise
    except (Failed, ImportError, OSError) as error:
        print(f"Tidegate runs from its source: {error}", file=sys.stderr)
        return int(arguments.must)
    print(f"{time.monotonic() - begun:.0f} s, {file.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
