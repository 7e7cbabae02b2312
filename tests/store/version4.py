"""A database of version 4, with the statements that made it then and rows that were written then.

Nothing here may follow a change of the store: it is what lies on disks. There is something in every table, and both
kinds of every column that may be NULL.
"""

from __future__ import annotations

from pathlib import Path

from store.trial import lay

NODE = "79aee75ac431b692"
BOOT = 3

TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE session (
        id INTEGER PRIMARY KEY,
        principal TEXT NOT NULL,
        client TEXT NOT NULL,
        version INTEGER NOT NULL,
        expiry INTEGER NOT NULL,
        ended REAL,
        will_topic TEXT,
        will_payload BLOB,
        will_qos INTEGER,
        will_retain INTEGER,
        will_properties BLOB,
        context BLOB NOT NULL,
        scope TEXT NOT NULL DEFAULT '' -- where it lives; at the end, where a migration can add it
    ) STRICT;
CREATE TABLE subscription (
        session INTEGER NOT NULL,
        filter TEXT NOT NULL,
        qos INTEGER NOT NULL,
        no_local INTEGER NOT NULL,
        retain_as_published INTEGER NOT NULL,
        retain_handling INTEGER NOT NULL,
        identifier INTEGER,
        terms BLOB NOT NULL DEFAULT x'', -- opaque
        PRIMARY KEY (session, filter)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE message (
        id INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        payload BLOB NOT NULL,
        qos INTEGER NOT NULL,
        retain INTEGER NOT NULL,
        published REAL NOT NULL,
        node TEXT NOT NULL,
        boot INTEGER NOT NULL,
        number INTEGER NOT NULL,
        output INTEGER NOT NULL,
        context BLOB NOT NULL,
        link TEXT NOT NULL,
        properties BLOB NOT NULL,
        expires REAL -- wall clock: the monotonic one does not outlive the boot
    ) STRICT;
CREATE TABLE delivery (
        id INTEGER PRIMARY KEY, -- ascending in the order of the queue
        session INTEGER NOT NULL,
        message INTEGER NOT NULL,
        qos INTEGER NOT NULL,
        retain INTEGER NOT NULL,
        pid INTEGER NOT NULL,
        state INTEGER NOT NULL,
        ids TEXT, -- subscription identifiers, separated by commas
        share TEXT, -- name/filter of the shared subscription; a share name holds no slash
        seen INTEGER NOT NULL DEFAULT 0 -- it has passed the monitors of its link
    ) STRICT;
CREATE TABLE incoming (
        id INTEGER PRIMARY KEY, -- (position << 48) + session * 65536 + packet id
        message INTEGER -- NULL: nothing is handed on for it, its packet id is still in use
    ) STRICT;
CREATE TABLE retained (
        scope TEXT NOT NULL,
        topic TEXT NOT NULL,
        message INTEGER NOT NULL,
        PRIMARY KEY (scope, topic)
    ) STRICT, WITHOUT ROWID;
CREATE TABLE record (
        room TEXT NOT NULL,
        key TEXT NOT NULL,
        value BLOB NOT NULL, -- opaque
        PRIMARY KEY (room, key)
    ) STRICT, WITHOUT ROWID;
PRAGMA application_id = 1413964148;
PRAGMA user_version = 4;
"""

ROWS = """
INSERT INTO meta VALUES('boot','3');
INSERT INTO meta VALUES('node','79aee75ac431b692');
INSERT INTO meta VALUES('policy','17-3fa9c1d2e4b5');
INSERT INTO session VALUES(1,'u','one',5,77,NULL,'last/words',X'00FF',2,1,
    X'1203000A746578742F706C61696E1800000005',X'01637478','main');
INSERT INTO session VALUES(2,'v','two',4,4294967295,1699999999.25,NULL,NULL,NULL,NULL,NULL,X'','main');
INSERT INTO subscription VALUES(1,'$share/g/a/+',2,0,1,2,268435455,X'01007465726D73');
INSERT INTO subscription VALUES(1,'x/#',1,1,0,0,NULL,X'');
INSERT INTO subscription VALUES(2,'x/ö',0,0,0,0,7,X'');
INSERT INTO message VALUES(1,'t/ö',X'00736861726564',2,1,1699999990.5,'0123456789abcdef',7,1099511627776,3,X'0263',
    'out',X'11080006616E73776572260001610002C3A4',4000000000.0);
INSERT INTO message VALUES(2,'a/b',X'',1,0,5.5,'0123456789abcdef',7,2,0,X'0163','in',X'00',NULL);
INSERT INTO message VALUES(3,'a/b',X'6E696E65',2,0,5.5,'0123456789abcdef',7,4,0,X'0163','in',X'00',NULL);
INSERT INTO message VALUES(5,'it''s "r"',X'72',0,1,5.5,'0123456789abcdef',7,6,0,X'','in',X'00',NULL);
INSERT INTO message VALUES(6,'a/b',X'38',2,0,5.5,'0123456789abcdef',7,10,0,X'0163','in',X'00',NULL);
INSERT INTO message VALUES(7,'a/b',X'3820616E6420612068616C66',2,0,5.5,'0123456789abcdef',7,11,0,X'0163',
    'in',X'00',NULL);
INSERT INTO delivery VALUES(1,1,1,2,1,65535,2,'1,268435455','g/a/+',0);
INSERT INTO delivery VALUES(2,1,2,1,0,0,0,NULL,NULL,0);
INSERT INTO delivery VALUES(3,2,1,1,0,1,1,NULL,NULL,1);
INSERT INTO incoming VALUES(131080,6);
INSERT INTO incoming VALUES(131081,3);
INSERT INTO incoming VALUES(196607,NULL);
INSERT INTO incoming VALUES(281474976841736,7);
INSERT INTO retained VALUES('main','it''s "r"',5);
INSERT INTO retained VALUES('main','t/ö',1);
INSERT INTO record VALUES('monitor/main','door' || char(10) || 'u client:one->scope:main',X'01A165737461746501');
INSERT INTO record VALUES('monitor/main','quiet' || char(10) || 'scope:main',X'01A0');
INSERT INTO record VALUES('revoked','cap-1',X'');
INSERT INTO record VALUES('rules','u',X'626F6F6B');
"""


def make(path: Path, *, crashed: bool = False) -> Path:
    """The database at `path`; `crashed`: the rows are only in its log."""
    return lay(path, TABLES, ROWS, crashed=crashed)
