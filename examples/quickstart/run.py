"""The quick start: a node, the pipeline, a few simulated devices, and two who watch what comes of it.

Run by `make run`. Everything is as it would be elsewhere: `tidegate run` and `tidegate pipeline run` as processes, and
ordinary MQTT and HTTP clients. Where there is no Java everything but the pipeline runs. Ctrl-C stops all of it.

So that it can be read not every message is shown: of each topic one now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any

import aiomqtt
import httpx
from aiomqtt import ProtocolVersion
from rich.console import Console
from rich.markup import escape

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
sys.dont_write_bytecode = True  # what is made stays in var/

import devices  # noqa: E402

from tidegate.config import load  # noqa: E402
from tidegate.errors import PipelineError  # noqa: E402
from tidegate.pipeline.spark import java  # noqa: E402
from tidegate.pipeline.status import overview  # noqa: E402

CONFIG = HERE / "tidegate.yaml"
TIDEGATE = str(Path(sys.executable).with_name("tidegate"))
HOST, PORT = "127.0.0.1", 1883
WEB = "http://127.0.0.1:8080"
PORTS = (PORT, 8083, 8080)
LOG = HERE / "var" / "pipeline.log"
AGAIN = {"gym": 20.0, "scored": 6.0}  # seconds after which a topic is shown again
LOOK = 15.0  # seconds between two lines about the lake
PATIENCE = 60.0  # seconds that the pipeline has for the batch that it is at, when everything is stopped
TABLES = ("raw", "normalised", "quarantine", "audit")
SHOWN = 3  # of the scores the lowest

console = Console(highlight=False)


def show(who: str, topic: str, what: str) -> None:
    console.print(f"[dim]{datetime.now():%H:%M:%S}[/]  {who:<12}  [cyan]{topic:<27}[/]  {what}", soft_wrap=True)


# -- those who watch ---------------------------------------------------------------------------------------------------


async def watcher(name: str, password: str | None = None) -> None:
    """Subscribes to what the devices say and to what the pipeline makes of it; alice is a coach, the visitor nobody."""
    shown: dict[str, float] = {}
    client = aiomqtt.Client(
        *(HOST, PORT),
        identifier=f"{name}-phone",
        username=password and name,
        password=password,
        protocol=ProtocolVersion.V5,
    )
    async with client:
        for filter in ("gym/#", "scored/#"):
            await client.subscribe(filter, qos=1)
        async for message in client.messages:
            topic, now = str(message.topic), time.monotonic()
            if now < shown.get(topic, 0.0):
                continue
            shown[topic] = now + AGAIN[topic.partition("/")[0]] * (1 if password else 4)
            assert isinstance(message.payload, bytes)
            show(f"{name} got", topic, described(json.loads(message.payload), message))


def described(content: dict[str, Any], message: aiomqtt.Message) -> str:
    """The value; of what the pipeline says the lowest scores, too."""
    scores = json.loads(dict(getattr(message.properties, "UserProperty", ())).get("scores", "{}"))
    if not scores:
        return f"{content['value']:>7.2f}"
    lowest = sorted(scores.items(), key=lambda each: each[1])[:SHOWN]
    told = "  ".join(f"[{colour(score)}]{name} {score:.2f}[/]" for name, score in lowest if score < 0.995)
    return f"{content['value']:>7.2f} {content['unit']:<5}  {told or f'[green]all {len(scores)} scores are 1[/]'}"


def colour(score: float) -> str:
    return "red" if score < 0.5 else "yellow" if score < 0.9 else "green"


# -- the pipeline ------------------------------------------------------------------------------------------------------


def impossible() -> str | None:
    """Why the pipeline cannot run here."""
    if importlib.util.find_spec("pyspark") is None:
        return "Spark is not installed; run `pip install 'tidegate[pipeline]'`"
    try:
        java()
    except PipelineError as error:
        return str(error)
    return None


@contextlib.asynccontextmanager
async def pipeline() -> AsyncIterator[None]:
    """`tidegate pipeline run`. It and what it starts are a group of processes, of which none stays behind."""
    LOG.parent.mkdir(exist_ok=True)
    LOG.unlink(missing_ok=True)
    with LOG.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *(TIDEGATE, "pipeline", "run", "-c", str(CONFIG), "--json"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    telling = asyncio.create_task(tell(process))
    try:
        yield
        if process.returncode is None:
            show("pipeline", "", "it is being stopped, after the batch that it is at")
    finally:
        if process.returncode is None:
            process.terminate()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), PATIENCE)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await telling


async def tell(process: asyncio.subprocess.Process) -> None:
    """Shows what the pipeline logs, and why it ended if it failed. Everything that it printed is in the file."""
    assert process.stderr is not None
    last = ""
    with LOG.open("a") as log:
        async for line in process.stderr:
            text = line.decode(errors="replace")
            last = text.strip() or last
            log.write(text)
            log.flush()
            with contextlib.suppress(ValueError):
                said = json.loads(text)
                show("pipeline", "", f"[yellow]{escape(said['event'])}[/] {escape(said.get('reason', ''))}")
    if await process.wait() > 0:
        show("pipeline", "", f"[red]it failed[/]: {escape(last)} (all that it said: {LOG})")


async def lake() -> None:
    """Tells now and then how the pipeline is doing, and what is in the lake."""
    config, known = load(CONFIG), dict[Path, int]()
    began = False
    while True:
        found = await asyncio.to_thread(overview, config)
        if found["running"] and found.get("totals", {}).get("batches"):
            began = began or welcome()
            rows = await asyncio.to_thread(counted, Path(found["lake"]), known)
            rate = found.get("records_per_second")
            pace = "it begins" if rate is None else f"{rate:.1f} records/s"
            told = ", ".join(f"{table} {count:,}" for table, count in rows.items())
            show("lake", f"{pace}, {found['lag']} behind", f"[dim]{told}[/]")
        await asyncio.sleep(LOOK if began else 0.5)


def welcome() -> bool:
    show("pipeline", "", "[green]it runs[/]: scored messages follow; rows are in the lake")
    return True


def counted(folder: Path, known: dict[Path, int]) -> dict[str, int]:
    """The rows of each table. Files never change, so that each is looked at once."""
    import pyarrow as pa  # there where the pipeline is
    import pyarrow.parquet as pq

    rows = {}
    for table in TABLES:
        files = set((folder / table).rglob("part-*.parquet"))
        for file in files - known.keys():
            with contextlib.suppress(OSError, pa.ArrowInvalid):  # it has just been put together with others
                known[file] = pq.read_metadata(file).num_rows
        rows[table] = sum(known.get(file, 0) for file in files)
    return rows


# -- everything --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def node() -> AsyncIterator[asyncio.subprocess.Process]:
    """`tidegate run`."""
    process = await asyncio.create_subprocess_exec(TIDEGATE, "run", "-c", str(CONFIG), start_new_session=True)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def taken() -> str | None:
    """The first of the addresses at which somebody listens already, such as another quick start."""
    for port in PORTS:
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(HOST, port)
            writer.close()
            return f"{HOST}:{port}"
    return None


async def ready(process: asyncio.subprocess.Process) -> bool:
    """True as soon as the node says that it is ready; False if it stops before."""
    async with httpx.AsyncClient(base_url=WEB) as web:
        while process.returncode is None:
            with contextlib.suppress(httpx.HTTPError):
                if (await web.get("/health/ready")).status_code == httpx.codes.OK:
                    return True
            await asyncio.sleep(0.1)
    return False


async def token() -> str:
    """Of an administrator, for an hour: who may use the control socket of the node can make one."""
    command = (TIDEGATE, "token", "make", "--role", "admin", "--for", "1h", "--socket", "-c", str(CONFIG))
    pipe = asyncio.subprocess.PIPE
    made = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    printed, why = await made.communicate()
    if made.returncode:
        raise RuntimeError(why.decode().strip())
    return printed.decode().strip()


async def over_http() -> None:
    """The devices that post. Two of them have to be registered first, by an administrator."""
    admin = await token()
    async with httpx.AsyncClient(base_url=WEB) as web, asyncio.TaskGroup() as group:
        group.create_task(devices.room(web, "air-4", admin, devices.incomplete))
        group.create_task(devices.room(web, "thermo-5", admin, devices.wrong))
        group.create_task(devices.stranger(web))


def players() -> list[Coroutine[Any, Any, None]]:
    return [
        devices.machine(PORT, "treadmill-1", "speed", devices.wave(10.5, 2.0)),
        devices.machine(PORT, "bike-2", "power", devices.wave(180.0, 40.0), late=True),
        devices.machine(PORT, "strap-3", "heartbeats", devices.wave(128.0, 15.0)),
        devices.confused(PORT, show),
        watcher("alice", "alice"),
        watcher("visitor"),
        over_http(),
    ]


def introduce(missing: str | None) -> None:
    console.print(
        "\n  [bold]MQTT[/]       mqtt://127.0.0.1:1883      users: mary/mary, alice/alice"
        "\n  [bold]WebSocket[/]  ws://127.0.0.1:8083/mqtt"
        "\n  [bold]Console[/]    http://127.0.0.1:8080/ui/   grace/grace administers, mary/mary has a say"
        "\n  [bold]HTTP[/]       http://127.0.0.1:8080/docs"
        "\n  [bold]Lake[/]       examples/quickstart/var/quickstart/lake, Parquet"
        "\n  [bold]Rules[/]      examples/quickstart/rules.yaml: change a score, and save"
        "\n  [bold]Token[/]      .venv/bin/tidegate token make --socket -c examples/quickstart/tidegate.yaml"
        "\n  [bold]Denials[/]    .venv/bin/tidegate audit -c examples/quickstart/tidegate.yaml"
        "\n  [bold]Try next[/]   .venv/bin/tidegate sub -v -t 'scored/#' --where 'o.scores.accuracy < 0.5'"
        "\n  Ctrl-C stops everything.\n",
        soft_wrap=True,
    )
    if missing is None:
        show("pipeline", "", "Spark is starting: scored messages come in 15 seconds or so")
    else:
        show("pipeline", "", f"[yellow]it does not run[/], everything else does: {missing}")


async def play(*ends: Coroutine[Any, Any, object], pipeline: bool) -> int:
    """Everybody plays until one of the ends comes; 1 if somebody failed."""
    over = [asyncio.create_task(each) for each in ends]
    tasks = [asyncio.create_task(each) for each in (*players(), *([lake()] if pipeline else []))]
    await asyncio.wait([*over, *tasks], return_when=asyncio.FIRST_COMPLETED)
    failed = [task for task in tasks if task.done() and task.exception()]
    for task in (*over, *tasks):
        task.cancel()
    await asyncio.gather(*over, *tasks, return_exceptions=True)
    for task in failed:
        console.print(f"[red]stopped:[/] {escape(repr(task.exception()))}")
    return 1 if failed else 0


async def main() -> int:
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    failed = 0
    if where := await taken():
        console.print(f"[red]{where} is taken[/]; stop what listens there (another quick start?), and run it again")
        return 1
    async with node() as process:
        if await ready(process):
            missing = impossible()
            introduce(missing)
            async with pipeline() if missing is None else contextlib.nullcontext():
                failed = await play(process.wait(), stopping.wait(), pipeline=missing is None)
    return failed or process.returncode or 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
