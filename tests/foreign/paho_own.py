"""Runs paho-mqtt's own tests of MQTT 5 against the broker on a port, and prints what came of each as JSON.

    python paho_own.py PORT FOLDER [TEST …]

FOLDER is that of `tests/` in paho-mqtt's source distribution, unchanged; `scripts/foreign.sh` puts it there. Its tests
start a broker of their own, which is not published with them: here they get the one that runs already.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import types
import unittest


class Outcomes(unittest.TextTestResult):
    """Remembers what passed, too."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.passed: list[str] = []

    def addSuccess(self, test: unittest.TestCase) -> None:
        super().addSuccess(test)
        self.passed.append(test.id())


def main(port: int, folder: str, *names: str) -> dict[str, str]:
    """What came of each test: nothing, or why it failed."""
    brokers = types.ModuleType("mqtt.brokers")
    sys.modules |= {"mqtt": types.ModuleType("mqtt"), "mqtt.brokers": brokers}
    sys.modules["mqtt"].brokers = brokers  # type: ignore[attr-defined]
    sys.path.insert(0, folder)
    import test_mqttv5 as theirs

    def start(cls: type, port: int = port) -> None:
        cls._test_broker_port = port_of_ours  # type: ignore[attr-defined]

    port_of_ours = port
    theirs._TestBase._start_broker = classmethod(start)
    theirs._TestBase.tearDownClass = classmethod(lambda cls: None)
    loader = unittest.defaultTestLoader
    suite = (
        loader.loadTestsFromNames([f"Test.{name}" for name in names], theirs)
        if names
        else loader.loadTestsFromTestCase(theirs.Test)
    )
    outcomes = Outcomes(unittest.runner._WritelnDecorator(io.StringIO()), False, 0)
    with contextlib.redirect_stdout(io.StringIO()):
        suite.run(outcomes)
    said = {test.rpartition(".")[2]: "" for test in outcomes.passed}
    for test, why in (*outcomes.failures, *outcomes.errors):
        said[test.id().rpartition(".")[2]] = why
    return said


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), *sys.argv[2:])))
