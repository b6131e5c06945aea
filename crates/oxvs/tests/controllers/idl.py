"""Drives the IDL of Open vSwitch's Python library against a database server.

usage: idl.py REMOTE SCHEMA [PRIVATE-KEY CERTIFICATE CA-CERT]

Prints a line for each kind of use that worked; ends with status 1 at the first that did not.
"""

import sys
import time
import warnings

warnings.filterwarnings("ignore")

import ovs.poller
import ovs.stream
from ovs.db import idl

REMOTE, SCHEMA = sys.argv[1:3]
if len(sys.argv) > 3:
    ovs.stream.Stream.ssl_set_private_key_file(sys.argv[3])
    ovs.stream.Stream.ssl_set_certificate_file(sys.argv[4])
    ovs.stream.Stream.ssl_set_ca_cert_file(sys.argv[5])


class Watching(idl.Idl):
    """An IDL that keeps the changes that it is told of."""

    def __init__(self, *args, **kwargs):
        self.changes = []
        super().__init__(*args, **kwargs)

    def notify(self, event, row, updates=None):
        self.changes.append((event, row._table.name))


def helper(**tables):
    schema = idl.SchemaHelper(SCHEMA)
    for table, columns in tables.items():
        if columns is None:
            schema.register_table(table)
        else:
            schema.register_columns(table, columns)
    if not tables:
        schema.register_all()
    return schema


def until(done, *all_of_them, what):
    end = time.monotonic() + 20
    while True:
        for one in all_of_them:
            one.run()
        if done():
            return
        if time.monotonic() > end:
            sys.exit(f"{what}: not within 20 seconds")
        poller = ovs.poller.Poller()
        for one in all_of_them:
            one.wait(poller)
        poller.timer_wait(100)
        poller.block()


def connect(schema, kind=Watching, **kwargs):
    one = kind(REMOTE, schema, **kwargs)
    until(one.has_ever_connected, one, what="the contents")
    return one


def commit(one, change):
    """Runs a transaction until it has ended; it may have to be repeated."""
    while True:
        txn = idl.Transaction(one)
        change(txn)
        status = txn.commit_block()
        if status != idl.Transaction.TRY_AGAIN:
            return status, txn


def names(one):
    return sorted(row.name for row in one.tables["Bridge"].rows.values())


def add_bridge(one, name):
    def change(txn):
        txn.add_comment("idl.py adds " + name)
        root = next(iter(one.tables["Open_vSwitch"].rows.values()))
        interface = txn.insert(one.tables["Interface"])
        interface.name, interface.type = name, "internal"
        port = txn.insert(one.tables["Port"])
        port.name, port.interfaces = name, [interface]
        bridge = txn.insert(one.tables["Bridge"])
        bridge.name, bridge.ports, bridge.datapath_type = name, [port], "dummy"
        root.addvalue("bridges", bridge)
        root.increment("next_cfg")

    return commit(one, change)


def remove_bridge(one, name):
    def change(_):
        root = next(iter(one.tables["Open_vSwitch"].rows.values()))
        bridge = next(row for row in one.tables["Bridge"].rows.values() if row.name == name)
        root.delvalue("bridges", bridge)

    return commit(one, change)


everything = connect(helper())
assert everything.tables["Open_vSwitch"].rows, "the root row"
print("all tables")

some = connect(helper(Bridge=["name", "external_ids"]))
assert set(some.tables["Bridge"].columns) == {"name", "external_ids"}
status, txn = add_bridge(everything, "idl0")
assert status == idl.Transaction.SUCCESS, (status, txn.get_error())
assert txn.get_increment_new_value() > 0
until(lambda: "idl0" in names(some), some, what="the new bridge")
assert (idl.ROW_CREATE, "Bridge") in some.changes, some.changes
print("chosen columns, changes, insertion and increment")

until(lambda: "idl0" in names(everything), everything, what="its own change")
bridge = next(row for row in everything.tables["Bridge"].rows.values() if row.name == "idl0")


def set_key(_):
    bridge.verify("external_ids")
    bridge.setkey("external_ids", "a", "1")


assert commit(everything, set_key)[0] == idl.Transaction.SUCCESS
until(
    lambda: any(row.external_ids.get("a") == "1" for row in some.tables["Bridge"].rows.values()),
    some,
    what="the key",
)
assert (idl.ROW_UPDATE, "Bridge") in some.changes, some.changes
until(lambda: bridge.external_ids.get("a") == "1", everything, what="its own key")
same = commit(everything, lambda _: setattr(bridge, "datapath_type", "dummy"))
assert same[0] == idl.Transaction.UNCHANGED, same[0]
assert commit(everything, lambda _: bridge.delkey("external_ids", "a"))[0] == idl.Transaction.SUCCESS
print("verification, mutation, no change")

status, txn = add_bridge(everything, "idl0")
assert status == idl.Transaction.ERROR, status
assert "constraint violation" in txn.get_error(), txn.get_error()
print("refusal")

indexed = idl.Idl(REMOTE, helper(Bridge=["name"]))
indexed.index_create("Bridge", "by_name").add_column("name")
until(indexed.has_ever_connected, indexed, what="the indexed contents")
found = list(indexed.index_equal("Bridge", "by_name", indexed.tables["Bridge"].rows[bridge.uuid]))
assert [row.name for row in found] == ["idl0"], found
print("index")

narrow = idl.Idl(REMOTE, helper(Bridge=["name"]))
narrow.cond_change("Bridge", [["name", "==", "idl1"]])
until(narrow.has_ever_connected, narrow, what="the contents under a condition")
assert add_bridge(everything, "idl1")[0] == idl.Transaction.SUCCESS
until(lambda: "idl1" in names(narrow), narrow, what="the bridge of the condition")
is_conditional = names(narrow) == ["idl1"]
narrow.cond_change("Bridge", [["name", "==", "idl0"]])
until(lambda: "idl0" in names(narrow), narrow, what="the bridge of the new condition")
if is_conditional:
    until(lambda: names(narrow) == ["idl0"], narrow, what="the other bridge to go")
print("conditions" if is_conditional else "conditions without effect")

holder, waiter = (idl.Idl(REMOTE, helper(Bridge=["name"])) for _ in range(2))
holder.set_lock("idl_py")
until(lambda: holder.has_lock, holder, what="the lock")
waiter.set_lock("idl_py")
until(lambda: waiter.is_lock_contended, waiter, what="the lock's contention")
holder.set_lock(None)
until(lambda: waiter.has_lock, holder, waiter, what="the lock given up")
print("locks")

before = some.change_seqno
some.force_reconnect()
assert remove_bridge(everything, "idl1")[0] == idl.Transaction.SUCCESS
until(lambda: some.change_seqno != before and names(some) == names(everything), some, everything, what="reconnection")
assert remove_bridge(everything, "idl0")[0] == idl.Transaction.SUCCESS
until(lambda: "idl0" not in names(some), some, what="the bridge to go")
assert (idl.ROW_DELETE, "Bridge") in some.changes, some.changes
print("reconnection and removal")
