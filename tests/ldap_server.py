"""A real LDAP directory for tests: Debian's slapd, in a folder of its own, on loopback, with TLS.

It is a child of the test process and is stopped at the end.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import ldap3

from harness import PATIENCE, free_port
from processes import missing
from tidegate.cli import certificates

SUFFIX = "dc=corp,dc=example"
ROOT, SECRET = f"cn=tidegate,{SUFFIX}", "search only"
PEOPLE = {"ana": "wonder", "bob": "b(o)b*\\", "eve": "e"}
GROUPS = {"ops": ["ana"], "heads": ["ana", "bob"], "everybody": list(PEOPLE)}
CONFIGURATION = """
include /etc/ldap/schema/core.schema
include /etc/ldap/schema/cosine.schema
include /etc/ldap/schema/inetorgperson.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile FOLDER/pid
TLSCACertificateFile FOLDER/ca.pem
TLSCertificateFile FOLDER/ldap.pem
TLSCertificateKeyFile FOLDER/ldap.key
allow bind_anon_cred
database mdb
suffix "SUFFIX"
rootdn "ROOT"
rootpw "SECRET"
directory FOLDER/data
access to attrs=userPassword by anonymous auth by * none
access to * by * read
"""


def slapd() -> str:
    """The program; without it the test is skipped, or fails where nothing may be skipped."""
    found = shutil.which("slapd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        missing("slapd is not installed")
    if find_spec("ldap3") is None:
        missing("ldap3 is not installed")
    assert found is not None
    return found


def _entries() -> str:
    entries = [f"dn: {SUFFIX}\nobjectClass: dcObject\nobjectClass: organization\ndc: corp\no: corp"]
    entries += [f"dn: ou={unit},{SUFFIX}\nobjectClass: organizationalUnit\nou: {unit}" for unit in ("people", "groups")]
    for name, password in PEOPLE.items():
        person = (
            f"dn: {dn(name)}\nobjectClass: inetOrgPerson\nuid: {name}\ncn: {name}\nsn: {name}\ntitle: {name} of corp"
        )
        entries.append(f"{person}\nuserPassword: {password}")
    for name, members in GROUPS.items():
        group = f"dn: cn={name},ou=groups,{SUFFIX}\nobjectClass: groupOfNames\ncn: {name}"
        entries.append("\n".join([group, *(f"member: {dn(member)}" for member in members)]))
    return "\n\n".join(entries) + "\n"


def dn(name: str) -> str:
    return f"uid={name},ou=people,{SUFFIX}"


class Directory:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.plain_port = free_port(), free_port()
        self.ca = folder / "ca.pem"
        self._program = slapd()
        self._process: subprocess.Popen[bytes] | None = None
        certificates.make_ca(folder, "LDAP tests", days=2)
        certificates.issue(folder, "ldap", ["127.0.0.1"], client=False, days=2)
        (folder / "data").mkdir()
        text = CONFIGURATION.replace("FOLDER", str(folder))
        for word, value in (("SUFFIX", SUFFIX), ("ROOT", ROOT), ("SECRET", SECRET)):
            text = text.replace(word, value)
        (folder / "slapd.conf").write_text(text)
        (folder / "entries.ldif").write_text(_entries())
        add = [str(Path(self._program).with_name("slapadd")), "-f", "slapd.conf", "-l", "entries.ldif"]
        added = subprocess.run(add, cwd=folder, capture_output=True, text=True)
        assert added.returncode == 0, added.stderr

    def start(self) -> None:
        urls = f"ldaps://127.0.0.1:{self.port}/ ldap://127.0.0.1:{self.plain_port}/ ldaps://127.0.0.2:{self.port}/"
        with (self.folder / "log").open("ab") as log:
            command = [self._program, "-d", "0", "-f", "slapd.conf", "-h", urls]
            self._process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        deadline = time.monotonic() + 3 * PATIENCE
        while True:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.plain_port)):
                return
            assert time.monotonic() < deadline, (self.folder / "log").read_text()
            time.sleep(0.02)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE)
            self._process = None

    def connection(self) -> ldap3.Connection:
        """One of an administrator, to change it."""
        server = ldap3.Server("127.0.0.1", port=self.plain_port, get_info=ldap3.NONE)
        return ldap3.Connection(server, user=ROOT, password=SECRET, auto_bind=True)

    def change(self, group: str, members: list[str]) -> None:
        connection = self.connection()
        changes = {"member": [(ldap3.MODIFY_REPLACE, [dn(each) for each in members])]}
        assert connection.modify(f"cn={group},ou=groups,{SUFFIX}", changes), connection.result
        connection.unbind()


@contextlib.contextmanager
def running() -> Iterator[Directory]:
    folder = Path(tempfile.mkdtemp(prefix="tidegate-ldap-"))
    directory = None
    try:
        directory = Directory(folder)
        directory.start()
        yield directory
    finally:
        if directory is not None:
            directory.stop()
        shutil.rmtree(folder, ignore_errors=True)
