//! The help text.

use super::{COMMANDS, PROGRAM};
use mgmt::daemon;

pub(super) fn text() -> String {
    let mut out = format!(
        "\
{PROGRAM}, for asking and telling OpenFlow switches
usage: {PROGRAM} [OPTION...] COMMAND [ARG...]

SWITCH is a bridge, or tcp:HOST[:PORT], ssl:HOST[:PORT], unix:FILE.
FLOW, GROUP and METER are as ovs-ofctl(8), ovs-fields(7) and ovs-actions(7) describe them;
'-' in their place reads them from standard input, one a line.

Commands:
"
    );
    for command in COMMANDS {
        out += &format!("  {} {}\n", command.name, command.usage);
    }
    out += "
Options:
  -O, --protocols=VERSION,...  versions of OpenFlow: OpenFlow10 to OpenFlow15 (default: OpenFlow10)
  -F, --flow-format=FORMAT,... flow formats that may be used
  -P, --packet-in-format=FORMAT  how packets are told to a monitor
  -t, --timeout=SECS           give up after SECS seconds
  -m, --more                   print more; may be repeated
  --strict                     change and delete only the flow of this match and priority
  --bundle                     make all changes as one transaction
  --readd                      replace-flows: send flows that are there, too
  --may-create                 mod-group: make the group if it is not there
  --read-only                  refuse commands that change the switch
  --sort[=FIELD]               dump-flows: in the order of a field, or of priority
  --rsort[=FIELD]              the same the other way round
  --names, --no-names          print names of ports and tables; take numbers only
  --stats, --no-stats          dump-flows: with counters and ages, or without
  --color[=always|never|auto]  dump-flows: in colours
  --timestamp                  say when messages came
  -h, --help                   show this text
  -V, --version                show the version of this program
";
    out += &daemon::help(PROGRAM);
    out
}
