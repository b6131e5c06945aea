//! `ovsdb-server`'s commands, `ovsdb-tool` and `ovsdb-client`.

use crate::run::{Daemons, Group, Table, row, run, step};

const TABLE: Table = Table {
    name: "ovsdb",
    groups: &[TOOL, SERVER, REPLICATION],
};

/// `ovsdb-tool` on files, and the client without a server.
const TOOL: Group = Group {
    daemons: Daemons::None,
    files: &[
        (
            "d.ovsschema",
            r#"{"name": "D", "version": "1.0.0", "cksum": "1 2", "tables": {"T": {"isRoot": true, "columns": {"n": {"type": "integer"}}}}}"#,
        ),
        (
            "e.ovsschema",
            r#"{"name": "D", "version": "2.0.0", "tables": {"T": {"isRoot": true, "columns": {"n": {"type": "integer"}, "s": {"type": "string"}}}}}"#,
        ),
        ("noise", "nothing of a database\n"),
    ],
    setup: &[],
    rows: &[
        row("ovsdb-tool --version"),
        row("ovsdb-tool --help").options(),
        row("ovsdb-tool"),
        row("ovsdb-tool nonsense"),
        row("ovsdb-tool create"),
        row("ovsdb-tool create a.db d.ovsschema"),
        row("ovsdb-tool create a.db d.ovsschema"),
        row("ovsdb-tool create b.db nosuch"),
        row("ovsdb-tool create b.db noise"),
        row("ovsdb-tool db-name a.db"),
        row("ovsdb-tool db-version a.db"),
        row("ovsdb-tool db-cksum a.db"),
        row("ovsdb-tool db-name nosuch"),
        row("ovsdb-tool db-name noise"),
        row("ovsdb-tool db-is-standalone a.db"),
        row("ovsdb-tool db-is-clustered a.db"),
        row("ovsdb-tool schema-name d.ovsschema"),
        row("ovsdb-tool schema-version d.ovsschema"),
        row("ovsdb-tool schema-cksum d.ovsschema"),
        row("ovsdb-tool schema-cksum e.ovsschema"),
        row("ovsdb-tool schema-name noise"),
        row("ovsdb-tool compare-versions 1.2.3 '<' 1.3.0"),
        row("ovsdb-tool compare-versions 1.2.3 == 1.3.0"),
        row("ovsdb-tool compare-versions 1 == 1.3.0"),
        row(
            r#"ovsdb-tool transact a.db '["D",{"op":"insert","table":"T","row":{"n":7}},{"op":"comment","comment":"seven"}]'"#,
        ),
        row(r#"ovsdb-tool transact a.db '["E"]'"#),
        row("ovsdb-tool transact a.db '['"),
        row(r#"ovsdb-tool query a.db '["D",{"op":"select","table":"T","where":[],"columns":["n"]}]'"#),
        row("ovsdb-tool needs-conversion a.db d.ovsschema"),
        row("ovsdb-tool needs-conversion a.db e.ovsschema"),
        row("ovsdb-tool convert a.db e.ovsschema"),
        row("ovsdb-tool db-version a.db"),
        row("ovsdb-tool compact a.db"),
        row("ovsdb-tool compact nosuch"),
        row(r#"ovsdb-tool query a.db '["D",{"op":"select","table":"T","where":[],"columns":["n","s"]}]'"#),
        row("ovsdb-client --version"),
        row("ovsdb-client --help").options(),
        row("ovsdb-client"),
        row("ovsdb-client nonsense"),
        row("ovsdb-client list-dbs unix:{dir}/nobody"),
    ],
};

const SERVER: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[],
    rows: &[
        row("ovs-appctl -t ovsdb-server list-commands").superset(),
        row("ovs-appctl -t ovsdb-server ovsdb-server/list-dbs"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote db:a"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote db:X,Y,Z"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote db:Open_vSwitch,Y,Z"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote db:Open_vSwitch,Open_vSwitch,Z"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-remote ptcp:0:127.0.0.1"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/remove-remote ptcp:0:127.0.0.1"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/remove-remote nobody"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/remove-remote"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-db"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/add-db {dir}/nosuch"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/remove-db nosuch"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/remove-db _Server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/compact"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/compact nosuch"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/compact _Server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-db-storage-status Open_vSwitch"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-db-storage-status nosuch"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-db-storage-status"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/memory-trim-on-compaction on"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/memory-trim-on-compaction x"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/perf-counters-clear"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/reconnect"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/sync-status"),
        row("ovs-appctl -t ovsdb-server cluster/status Open_vSwitch"),
        row("ovsdb-client list-dbs {db}"),
        row("ovsdb-client list-tables {db} nosuch"),
        row("ovsdb-client list-columns {db} nosuch"),
        row("ovsdb-client get-schema {db} nosuch"),
        row("ovsdb-client get-schema-cksum {db} _Server").status(),
        row("ovsdb-client dump {db} _Server Database name model connected leader"),
        row("ovsdb-client dump {db} Open_vSwitch Bridge name"),
        row(r#"ovsdb-client transact {db} '["Open_vSwitch",{"op":"select","table":"Bridge","where":[]}]'"#),
        row(r#"ovsdb-client transact {db} '["nosuch"]'"#),
        row(r#"ovsdb-client query {db} '["Open_vSwitch",{"op":"delete","table":"Bridge","where":[]}]'"#),
        row("ovsdb-client transact {db} '['"),
        step("ovs-appctl -t ovsdb-server ovsdb-server/disable-monitor-cond"),
        row("ovsdb-client dump {db} Open_vSwitch Bridge name"),
    ],
};

/// Active-backup replication. Open vSwitch 3.1 crashes at `set-sync-exclude-tables` without an
/// argument, and replies twice when a probe interval is not a number and when there is no active
/// server to connect to.
const REPLICATION: Group = Group {
    daemons: Daemons::Dummy(&[]),
    files: &[],
    setup: &[],
    rows: &[
        row("ovs-appctl -t ovsdb-server ovsdb-server/sync-status"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-sync-exclude-tables"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/disconnect-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/disconnect-active-ovsdb-server x"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-active-ovsdb-server-probe-interval"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-active-ovsdb-server-probe-interval -5"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-sync-exclude-tables nosuch,:x,b::c,a:z:y,a:z"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-sync-exclude-tables"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-sync-exclude-tables Open_vSwitch:SSL"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-sync-exclude-tables"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-active-ovsdb-server unix:{dir}/nobody"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/get-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/connect-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/set-active-ovsdb-server-probe-interval 3000"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/sync-status"),
        row(r#"ovsdb-client transact {db} '["Open_vSwitch",{"op":"insert","table":"Bridge","row":{}}]'"#),
        row(r#"ovsdb-client transact {db} '["Open_vSwitch",{"op":"commit","durable":true}]'"#),
        row(r#"ovsdb-client transact {db} '["_Server",{"op":"delete","table":"Database","where":[]}]'"#),
        row(r#"ovsdb-client transact {db} '["Open_vSwitch",{"op":"comment","comment":"x"}]'"#),
        row("ovsdb-client dump {db} _Server Database name model connected leader"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/disconnect-active-ovsdb-server"),
        row("ovs-appctl -t ovsdb-server ovsdb-server/sync-status"),
    ],
};

#[test]
fn the_database_server_and_its_tools_answer_as_in_open_vswitch() {
    run(&TABLE);
}
