//! The text of `--help`.

use mgmt::stream::tls;
use mgmt::{daemon, paths};

use crate::table;

pub(super) fn text() -> String {
    format!(
        "\
ovsdb-client: talks to a database server
usage: ovsdb-client [OPTIONS] COMMAND [SERVER] [DATABASE] [ARG...]

What there is:
  list-dbs                      names of the server's databases
  get-schema                    a database's schema, as JSON
  get-schema-version            its version
  get-schema-cksum              its checksum
  list-tables                   its tables
  list-columns [TABLE]          the columns of a table, or of all
  dump [TABLE [COLUMN...]]      what the database holds

Transactions, as the params of a \"transact\" request in JSON:
  transact TRANSACTION          run it, print the results
  query TRANSACTION             the same, changing nothing

Watching; COLUMNS is a list with commas, which may hold !initial, !insert, !delete, !modify
to leave out that kind of change:
  monitor TABLE [COLUMNS...]    print a table, then each change to it
  monitor ALL                   print all tables, then each change
  monitor-cond CONDITIONS TABLE [COLUMNS...]
                                the same for rows that meet CONDITIONS, e.g. '[[\"name\",\"==\",\"p1\"]]'
  monitor-cond-since [LASTID] CONDITIONS TABLE [COLUMNS...]
                                the same, from transaction LASTID on
  wait DATABASE STATE           wait until DATABASE is added, connected or removed

Copies and conversion:
  backup > FILE                 write the database as a file
  restore < FILE                replace the database's contents by a file's
                                (--force: even if the schemas differ)
  needs-conversion SCHEMA       does the database differ from the schema file? yes or no
  convert SCHEMA                convert the database to the schema file

Locks, for tests:
  lock LOCK                     wait for a lock, and print when it is lost
  steal LOCK                    take it from its owner
  unlock LOCK                   give it back

SERVER is one of these (default: {remote}):
  tcp:HOST:PORT                 connect over TCP
  ssl:HOST:PORT                 connect over TLS
  unix:FILE                     connect to a socket of this machine
  ptcp:PORT[:IP]                wait for a connection over TCP
  pssl:PORT[:IP]                wait for a connection over TLS
  punix:FILE                    wait for a connection to a socket
DATABASE is one that list-dbs shows (default: Open_vSwitch).
{table}{tls}{daemon}
Other options:
  --user=USER[:GROUP]         accepted for the user that runs this program
  -t, --timeout=SECS          give up after SECS seconds
  -h, --help                  show this text
  -V, --version               show the version of this program
",
        remote = paths::default_remote(),
        table = table::HELP,
        tls = tls::help(),
        daemon = daemon::help("ovsdb-client"),
    )
}
