"""Where the subject spends its time during a work: py-spy for Python, perf for the rest, whichever is installed.

Neither is a dependency. The text names functions and lines; folders of this machine are cut off.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.harness.generator import Generator
from bench.harness.rounds import Plan, loading
from bench.harness.servers import BenchError, Server, pinned, running
from bench.harness.work import Work
from bench.load.job import Outcome

Sampler = Callable[[str, int, float, Path], str]
RATE = 250  # samples a second
TOP = 40
LEAD = 1.5  # seconds of load before sampling starts
_FRAME = re.compile(r"^(?P<name>.+) \((?P<file>.+?)(?::(?P<line>\d+))?\)$")
_FOLDERS = re.compile(r"\S*?(?:site-packages|/src|lib/python3\.\d+)/")


def profile(work: Work, plan: Plan) -> str:
    """Runs the subject's side of `work` under the profilers and answers the text to keep."""
    spy, perf = _spy(), shutil.which("perf")
    if spy is None and perf is None:
        raise BenchError("neither py-spy (pip install py-spy) nor perf is installed")
    parts = [f"{plan.subject.value}: {work.title}, window {work.window}"]
    for tool, sample in ((spy, _with_spy), (perf, _with_perf)):
        if tool is not None:
            with running(plan.subject, work.setting, core=plan.server_core) as server:
                outcome, text = _sampled(server, work, plan, tool, sample)
            parts.append(
                f"{Path(tool).name}: {outcome.per_second / 1e3:.1f} k/s, {outcome.micros:.2f} µs of CPU per message "
                f"while sampled\n\n{text}"
            )
    return "\n\n".join(parts) + "\n"


def _spy() -> str | None:
    return shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))


def _sampled(server: Server, work: Work, plan: Plan, tool: str, sample: Sampler) -> tuple[Outcome, str]:
    with loading(server, work.job, plan, warmup=LEAD, duration=plan.duration + 1) as generator:
        return _sampled_under(generator, server, plan, tool, sample)


def _sampled_under(generator: Generator, server: Server, plan: Plan, tool: str, sample: Sampler) -> tuple[Outcome, str]:
    generator.tell("{}")
    time.sleep(LEAD)
    with tempfile.TemporaryDirectory() as folder, pinned(plan.load_core):
        text = sample(tool, server.process.pid, plan.duration, Path(folder) / "samples")
    return Outcome.from_json(generator.line()), text


def spied(generator: Generator, server: Server, plan: Plan) -> str:
    """Where one of several servers spends its time in Python under a load that lasts `LEAD` and a second longer."""
    spy = _spy()
    if spy is None:
        raise BenchError("py-spy is not installed (pip install py-spy)")
    outcome, text = _sampled_under(generator, server, plan, spy, _with_spy)
    rate = f"{outcome.per_second / 1e3:.1f} k/s, {outcome.micros:.2f} µs of CPU per message of all servers"
    return f"{rate} while sampled\n\n{text}"


def _with_spy(tool: str, pid: int, seconds: float, file: Path) -> str:
    # fmt: off
    _run([tool, "record", "--pid", str(pid), "--duration", str(max(1, round(seconds))), "--rate", str(RATE),
          "--format", "raw", "--output", str(file)])
    # fmt: on
    return summarise(file.read_text().splitlines())


def _with_perf(tool: str, pid: int, seconds: float, file: Path) -> str:
    _run([tool, "record", "-F", "1000", "-p", str(pid), "-o", str(file), "--", "sleep", str(seconds)])
    text = _run([tool, "report", "-i", str(file), "--stdio", "--percent-limit", "0.5", "--sort", "dso,symbol"])
    lines = [line.rstrip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return "\n".join(_FOLDERS.sub("", line) for line in lines[: 2 * TOP])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"{Path(command[0]).name} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def summarise(stacks: Iterable[str]) -> str:
    """Folded stacks (`outer;inner COUNT`) as lists of the hottest functions and lines."""
    own: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    inclusive: Counter[str] = Counter()
    total = 0
    for stack in stacks:
        frames_text, _, count_text = stack.rpartition(" ")
        if not count_text.isdigit():
            continue
        count = int(count_text)
        total += count
        found = [_frame(frame) for frame in frames_text.split(";")]
        own[found[-1][0]] += count
        lines[found[-1][1]] += count
        for function in {function for function, _ in found}:
            inclusive[function] += count
    parts = []
    for title, counter in (
        ("own time, by function", own),
        ("time with callees, by function", inclusive),
        ("own time, by line", lines),
    ):
        parts.append(f"{title} ({total} samples)")
        parts += [f"{count / max(total, 1):7.1%}  {name}" for name, count in counter.most_common(TOP)]
        parts.append("")
    return "\n".join(parts).rstrip()


def _frame(text: str) -> tuple[str, str]:
    """Function with file, and the same with line."""
    found = _FRAME.match(text)
    if found is None:
        return text, text
    file = _FOLDERS.sub("", found["file"])
    function = f"{found['name']} ({file})"
    return function, f"{found['name']} ({file}:{found['line']})" if found["line"] else function
