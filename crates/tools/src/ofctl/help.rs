//! The help text.

use super::{COMMANDS, PROGRAM};
use mgmt::daemon;
use mgmt::stream::tls;

/// What each command does, under a heading for those of a kind.
const TOLD: &[(&str, &[(&str, &str)])] = &[
    (
        "The switch and its ports",
        &[
            ("show", "what the switch can do, and its ports"),
            ("dump-desc", "the switch's maker and model"),
            ("dump-ports", "ports' statistics"),
            ("dump-ports-desc", "ports' addresses, state and speed"),
            (
                "mod-port",
                "up, down, stp, receive, flood, forward, packet-in, or no- before it",
            ),
            ("queue-stats", "queues' statistics"),
            ("queue-get-config", "queues' rates"),
            ("queue-desc", "the same"),
            ("get-frags", "how fragments are treated"),
            ("set-frags", "normal, drop, reassemble or nx-match"),
        ],
    ),
    (
        "Tables",
        &[
            ("dump-tables", "tables' statistics"),
            ("dump-table-features", "what each table can match and do"),
            ("dump-table-desc", "tables' configuration (OpenFlow 1.4)"),
            (
                "mod-table",
                "controller, continue, drop; evict, noevict, vacancy:LOW,HIGH, novacancy",
            ),
        ],
    ),
    (
        "Flows",
        &[
            ("dump-flows", "flows with their statistics, all or the matching ones"),
            ("dump-aggregate", "sums of the statistics of flows"),
            (
                "add-flow",
                "add a flow, or put it in the place of one with its match and priority",
            ),
            (
                "add-flows",
                "add each line's flow; a line may begin with add, modify, delete",
            ),
            ("mod-flows", "give matching flows other actions"),
            ("del-flows", "delete flows, all or the matching ones"),
            ("replace-flows", "change the flows to a file's"),
            (
                "diff-flows",
                "compare two switches or files; exits with 2 if they differ",
            ),
            (
                "bundle",
                "do each line, of flows, groups and packets out, as one transaction",
            ),
        ],
    ),
    (
        "Groups and meters",
        &[
            ("dump-groups", "groups and their buckets"),
            ("dump-group-stats", "groups' statistics"),
            ("dump-group-features", "what groups can do"),
            ("add-group", "add a group"),
            (
                "add-groups",
                "do each line; it may begin with add, modify, insert_bucket and so on",
            ),
            ("mod-group", "give a group other buckets"),
            ("del-groups", "delete groups, all or one"),
            ("insert-buckets", "add buckets to a group"),
            ("remove-buckets", "take buckets from a group"),
            ("dump-meters", "meters and their bands"),
            ("dump-meter", "one of them"),
            ("meter-stats", "meters' statistics"),
            ("meter-features", "what meters can do"),
            ("add-meter", "add a meter"),
            ("mod-meter", "give a meter other bands"),
            ("del-meters", "delete all meters"),
            ("del-meter", "delete one"),
        ],
    ),
    (
        "Packets and events",
        &[
            ("packet-out", "have the switch carry out actions on a packet"),
            (
                "monitor",
                "print what the switch tells a controller, and changes of flows",
            ),
            ("monitor2", "the same"),
            ("snoop", "print what the switch and its controller say to each other"),
        ],
    ),
    (
        "Tunnel options, connections, IPFIX",
        &[
            ("dump-tlv-map", "which options are which tun_metadata fields"),
            ("add-tlv-map", "map options to fields"),
            ("del-tlv-map", "take mappings away, all or some"),
            ("ct-flush", "forget tracked connections, all or the matching ones"),
            ("ct-flush-zone", "forget a zone's tracked connections"),
            ("dump-ipfix-bridge", "statistics of a bridge's IPFIX"),
            ("dump-ipfix-flow", "statistics of the IPFIX of flows"),
        ],
    ),
    (
        "Is it there, and how fast",
        &[
            ("probe", "whether a switch or controller answers"),
            ("ping", "how long echoes of n bytes take"),
            ("benchmark", "how many echoes of n bytes a second"),
        ],
    ),
    (
        "Without a switch",
        &[
            ("ofp-parse", "print a file's OpenFlow messages"),
            ("ofp-parse-pcap", "print the OpenFlow messages in captured packets"),
            ("ofp-print", "print a message of hexadecimal digits"),
            ("print-error", "print an error's number in each version"),
            ("encode-hello", "write the hello of a bitmap of versions"),
            ("parse-flow", "print how a flow is sent"),
            ("parse-flows", "the same of each line of a file"),
            ("parse-group", "print how a group is sent"),
            (
                "parse-actions",
                "read and print actions in hexadecimal digits, each line's",
            ),
            ("parse-instructions", "the same of instructions"),
            (
                "parse-nxm",
                "read matches as lists of fields, and print them as a switch has them",
            ),
            ("parse-nx-match", "the same"),
            ("parse-oxm", "the same with the fields of a version"),
            ("parse-ofp10-match", "read OpenFlow 1.0 matches in hexadecimal digits"),
            ("parse-ofp11-match", "the same of OpenFlow 1.1"),
            ("check-vlan", "print how each version matches a VLAN tag"),
            ("encode-error-reply", "write the error that answers a message"),
            ("parse-key-value", "print the keys and values in texts"),
            ("compose-packet", "write a packet with a flow's fields"),
            ("parse-packet", "print the headers of a packet"),
            ("parse-pcap", "print the headers of captured packets"),
            ("help", "show this text"),
            ("list-commands", "list the commands"),
        ],
    ),
];

/// Where descriptions begin.
const COLUMN: usize = 36;

pub(super) fn text() -> String {
    let mut out = format!(
        "\
{PROGRAM}, for asking and telling OpenFlow switches
usage: {PROGRAM} [OPTION...] COMMAND [ARG...]

SWITCH is a bridge, or one of
  tcp:HOST[:PORT]              a host, port 6653 if not given
  ssl:HOST[:PORT]              the same under TLS
  unix:FILE                    a socket
FLOW, GROUP and METER are as ovs-ofctl(8), ovs-fields(7) and ovs-actions(7) describe them;
'-' in a file's place reads standard input, one a line.

For example:
  {PROGRAM} add-flow br0 'priority=10,ip,nw_dst=10.0.0.0/8,actions=dec_ttl,output:2'
  {PROGRAM} --names dump-flows br0 table=0
  {PROGRAM} -O OpenFlow13 add-group br0 'group_id=1,type=select,bucket=output:1,bucket=output:2'
"
    );
    for (heading, commands) in TOLD {
        out += &format!("\n{heading}:\n");
        for (name, told) in *commands {
            let usage = COMMANDS.iter().find(|c| c.name == *name).map_or("", |c| c.usage);
            let line = format!("  {name} {usage}");
            match line.len() < COLUMN {
                true => out += &format!("{line:COLUMN$}{told}\n"),
                false => out += &format!("{line}\n{:COLUMN$}{told}\n", ""),
            }
        }
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
  --bare                       compose-packet: digits only
  --bad-csum                   compose-packet: wrong checksums
  --timestamp                  say when messages came
  -h, --help                   show this text
  -V, --version                show the version of this program
";
    out += tls::help();
    out += &daemon::help(PROGRAM);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_tells_of_every_command_and_of_no_other() {
        let mut told: Vec<_> = TOLD.iter().flat_map(|(_, c)| c.iter().map(|(name, _)| *name)).collect();
        let mut known: Vec<_> = COMMANDS.iter().map(|c| c.name).collect();
        told.sort_unstable();
        known.sort_unstable();
        assert_eq!(told, known);
    }
}
