//! `ovs-ofctl` without a switch: messages printed, texts read, and commands with wrong arguments.
//!
//! `ofctl_messages.txt` has a message of every kind and version in hexadecimal digits; those behind
//! `cut` are printed cut off at every byte too.

use crate::run::{Daemons, Group, Row, Table, row, run, step};

const FILES: &[(&str, &str)] = &[
    ("messages.txt", include_str!("ofctl_messages.txt")),
    ("empty.txt", ""),
    ("bad.txt", "foo=bar\n"),
    ("flows.txt", "table=3,actions=1\n# comment\n\nip,actions=2 # more\n"),
    ("hex10.txt", "0000 0008 0001 0000\n"),
];

/// `messages.bin` has the complete messages, `cuts.bin` those cut off.
const MESSAGES: &[Row] = &[
    step(
        "perl -we 'open I, q(messages.txt); open O, q(>messages.bin); while (<I>) { s/^cut //; chomp; print O pack(q(H*), $_) }'",
    ),
    step(
        "perl -we 'open I, q(messages.txt); open O, q(>cuts.bin); while (<I>) { next unless s/^cut //; chomp; \
         $m = pack(q(H*), $_); for $n (8 .. length($m) - 1) { print O substr($m, 0, 2) . pack(q(n), $n) . substr($m, 4, $n - 4) } }'",
    ),
    row("ovs-ofctl ofp-parse messages.bin"),
    row("ovs-ofctl -m ofp-parse messages.bin"),
    row("ovs-ofctl -mm ofp-parse messages.bin"),
    row("ovs-ofctl -mmm ofp-parse messages.bin"),
    row("ovs-ofctl --names ofp-parse messages.bin"),
    row("ovs-ofctl --no-names ofp-parse messages.bin"),
    row("ovs-ofctl -vconsole:off ofp-parse cuts.bin"),
    row("ovs-ofctl -vconsole:off -mmm ofp-parse cuts.bin"),
];

/// Lists of match fields that are read.
const FIELDS: &str = "# comment\n\
     <any>\n\
     NXM_OF_IN_PORT(0000)\n\
     NXM_OF_IN_PORT(fffe)\n\
     NXM_OF_ETH_DST(0002e30f80a4)\n\
     NXM_OF_ETH_DST_W(010000000000/010000000000)\n\
     NXM_OF_ETH_DST_W(ffffffffffff/010000000000)\n\
     NXM_OF_ETH_DST_W(ffffffffffff/000000000000)\n\
     NXM_OF_ETH_DST_W(ffffffffffff/ffffffffffff)\n\
     NXM_OF_ETH_TYPE(05ff) NXM_OF_ETH_SRC(0002e30f80a4)\n\
     NXM_OF_VLAN_TCI(0000)\n\
     NXM_OF_VLAN_TCI_W(1123/1fff)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_TOS(f0)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_TOS(41)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC_W(C0a80000/FFFF0000)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC_W(C0a80000/5a5a5a5a)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_SRC_W(C0a80000/00000000)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_PROTO(06) NXM_OF_TCP_SRC(4231)\n\
     NXM_OF_ETH_TYPE(0800) NXM_OF_IP_PROTO(06) NXM_OF_TCP_SRC_W(5050/F0F0)\n\
     NXM_OF_ETH_TYPE(86dd) NXM_NX_IPV6_SRC(20010db83c4d00010002000300040005)\n\
     NXM_NX_REG0(acebdf56)\n\
     NXM_NX_REG0_W(a0e0d050/f0f0f0f0)\n\
     NXM_NX_TUN_ID(00000000abcdef01)\n\
     01020304(1111/2222)\n\
     NXM_OF_IN_PORT(0001), 01020304(1111/3333), NXM_OF_ETH_TYPE(0800)\n\
     00010a06(aabbccddeeff)\n\
     00010002(0001)\n\
     NXM_OF_IN_PORT(0001) NXM_OF_IN_PORT(0002)\n\
     OXM_OF_ETH_TYPE(0800)\n\
     OXM_OF_METADATA(5a5a5a5a5a5a5a5a)\n\
     NXM_NX_COOKIE(00000000abcdef01)\n\
     NXM_NX_COOKIE_W(00000000abcdef01/00000000FFFFFFFF)\n\
     NXM_NX_CT_STATE_W(00000001/00000001)\n\
     NXM_NX_CT_STATE(000000ff)\n\
     NXM_NX_PKT_MARK(00000001)\n\
     OXM_OF_VLAN_VID(1009),OXM_OF_VLAN_PCP(01)\n\
     NXM_OF_ETH_TYPE(0800),,NXM_OF_IP_PROTO(06)\n\
     NXM_OF_ETH_TYPE( 08 00 )\n\
      NXM_OF_ETH_TYPE(0800) # hi\n";

/// Commands that read standard input.
const INPUTS: &[Row] = &[
    row("ovs-ofctl parse-nxm").input(FIELDS),
    row("ovs-ofctl --strict parse-nxm").input(FIELDS),
    row("ovs-ofctl parse-nx-match").input(FIELDS),
    row("ovs-ofctl parse-oxm OpenFlow12").input(FIELDS),
    row("ovs-ofctl parse-oxm OpenFlow15").input(FIELDS),
    row("ovs-ofctl parse-nxm").input("NXM_OF_IN_PORT_W(fffe/ffff)\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_ETH_TYPE(5ff), NXM_OF_ETH_SRC(0002e30f80a4)\n"),
    row("ovs-ofctl parse-nxm").input("0x00010203\n"),
    row("ovs-ofctl parse-nxm").input("00010004\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_IN_PORT(1\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_IN_PORT\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_IN_PORT(zz)\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_IN_PORT(000011)\n"),
    row("ovs-ofctl parse-nxm").input("NXM_OF_ETH_DST_W(010000000000)\n"),
    row("ovs-ofctl parse-nxm").input("NXM_NX_REG99(00000001)\n"),
    row("ovs-ofctl parse-nxm").input("eth_type(0800)\n"),
    row("ovs-ofctl parse-ofp10-match").input(
        "# in_port=LOCAL\n003820fe fffe xxxxxxxxxxxx xxxxxxxxxxxx xxxx xx xx xxxx xx xx xxxx xxxxxxxx xxxxxxxx xxxx xxxx\n\n\
         003820fb 0001 000102030405 000000000000 0000 00 00 0000 00 00 0000 00000000 00000000 0000 0000\n\
         003820ef 0000 000102030405 000000000000 0000 00 00 0800 00 00 0000 00000000 00000000 0000 0000\n\
         00000000 0001 000102030405 000102030405 0001 01 00 0800 00 06 0000 01020304 01020305 0001 0002\n",
    ),
    row("ovs-ofctl parse-ofp10-match").input("003820ff\n"),
    row("ovs-ofctl parse-ofp10-match").input("zz\n"),
    row("ovs-ofctl parse-ofp11-match").input("0000 0058 fffffffe\n"),
    row("ovs-ofctl parse-ofp11-match").input("zz\n"),
    row("ovs-ofctl parse-actions OpenFlow10").input("0000 0008 0001 0000\n# c\n0000 0008 0002 ffff 0003 0008 00000000\n"),
    row("ovs-ofctl parse-actions OpenFlow13").input("0000 0010 00000001 0000 000000000000\nzz\n"),
    row("ovs-ofctl parse-instructions OpenFlow13").input("0001 0008 05 000000\n00ff 0008 00000000\n"),
    row("ovs-ofctl parse-flows -").input("ip,actions=1\ntcp,tp_dst=80,actions=2\n"),
    row("ovs-ofctl -vconsole:off parse-flow actions=debug_recirc,debug_slow,1"),
    row("ovs-ofctl -vconsole:off -O OpenFlow15 parse-flow actions=debug_slow:3,clone(debug_recirc())"),
    row("ovs-ofctl parse-flows -").input("ip,actions=1\nfoo\n"),
    row("ovs-ofctl parse-flows flows.txt"),
    row("ovs-ofctl parse-flows bad.txt"),
    row("ovs-ofctl parse-flows empty.txt"),
    row("ovs-ofctl parse-packet").input("50 54 00 00 00 02 and no more than that"),
    row("ovs-ofctl ofp-parse -").input("zz"),
    row("ovs-ofctl ofp-parse empty.txt"),
    row("ovs-ofctl ofp-parse bad.txt"),
    row("ovs-ofctl parse-pcap empty.txt"),
    row("ovs-ofctl parse-pcap flows.txt"),
    row("ovs-ofctl ofp-parse-pcap empty.txt"),
    row("ovs-ofctl ofp-parse-pcap flows.txt"),
    row("ovs-ofctl list-commands").superset(),
    row("ovs-ofctl --help").status(),
    row("ovs-ofctl help").status(),
    row("ovs-ofctl --version"),
];

macro_rules! rows {
    ($($line:literal),* $(,)?) => { &[$(row(concat!("ovs-ofctl ", $line))),*] };
}

const TEXTS: &[Row] = rows![
    "check-vlan 0000 0000",
    "check-vlan 1005 ffff",
    "check-vlan 0000 ffff",
    "check-vlan 3009 ffff",
    "check-vlan 3000 f000",
    "check-vlan 1000 1000",
    "check-vlan 0000 1000",
    "check-vlan 1009 1fff",
    "check-vlan 0x1009 0x1fff",
    "compose-packet tcp",
    "compose-packet tcp 10",
    "compose-packet tcp 0102030405",
    "compose-packet udp,nw_src=1.2.3.4 0102",
    "compose-packet udp6,ipv6_src=::1 80",
    "compose-packet icmp,icmp_type=8 aabb",
    "compose-packet icmp6,icmpv6_type=128 aabb",
    "compose-packet tcp zz",
    "compose-packet tcp 1",
    "compose-packet foo",
    "compose-packet foo=3",
    "compose-packet tcp,actions=drop",
    "compose-packet arp,arp_op=1,arp_spa=1.2.3.4",
    "compose-packet dl_vlan=5,dl_type=0x1234",
    "compose-packet dl_vlan=5,dl_type=0x1234 0102",
    "compose-packet dl_vlan=5,tcp,tcp_flags=syn 0102",
    "compose-packet tcp,tcp_flags=syn",
    "compose-packet mpls,mpls_label=4",
    "compose-packet tcp,nw_frag=first",
    "compose-packet tcp,nw_frag=later",
    "compose-packet ip,nw_proto=47 0102",
    "compose-packet icmp6,icmpv6_type=135,nd_target=::1",
    "compose-packet tcp,nw_src=1.2.3.4/24",
    "parse-key-value a",
    "parse-key-value a=",
    "parse-key-value =a",
    "parse-key-value a=b=c",
    "parse-key-value a(b(c))d",
    "parse-key-value a:b",
    "parse-key-value a(b",
    "parse-key-value a=1,b=2,c x=y",
    "parse-key-value a(b),c(d(e,f))",
    "parse-key-value ,a",
    "encode-error-reply OFPBRC_BAD_TYPE 0100000800000001",
    "encode-error-reply OFPBRC_BAD_TYPE 0600000800000001",
    "encode-error-reply NXBRC_NXM_INVALID 0100000800000001",
    "encode-error-reply NXBRC_NXM_INVALID 0400000800000001",
    "encode-error-reply OFPHFC_INCOMPATIBLE 0400000800000001",
    "encode-error-reply OFPBMC_BAD_FIELD 0100000800000001",
    "encode-error-reply OFPBMC_BAD_FIELD 0200000800000001",
    "encode-error-reply OFPBRC_BAD_TYPE 010000500000000100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    "encode-error-reply foo 01",
    "encode-error-reply OFPBRC_BAD_TYPE 0100",
    "encode-error-reply OFPBRC_BAD_TYPE zz",
    "parse-pcap /nonexistent",
    "parse-packet",
    "parse-nx-match a",
    "parse-oxm",
    "parse-oxm OpenFlow10",
    "parse-oxm foo",
    "parse-oxm OpenFlow11",
    "parse-oxm openflow13",
    "check-vlan 0",
    "print-error OFPBRC_BAD_TYPE",
    "print-error NXBRC_NXM_INVALID",
    "print-error OFPBMC_BAD_FIELD",
    "print-error foo",
    "encode-hello 0x2",
    "encode-hello 0x12",
    "encode-hello 12",
    "encode-hello 0xffff",
    "ofp-print 0101001400000001000100060105000800000001",
    "ofp-print 01",
    "ofp-print ",
    "ofp-print zz",
    "ofp-print 0102000d0000000168656c6c6f 0",
    "ofp-print 0102000d0000000168656c6c6f 1",
    "ofp-print 0102000d0000000168656c6c6f 3",
    "ofp-print 0102000d0000000168656c6c6f zz",
    "-m ofp-print 0102000d0000000168656c6c6f",
    "ofp-print 0102000d0000000168656c6c6f ",
    "ofp-print '0102000d00000001 68656c6c6f'",
    "ofp-parse /nonexistent",
    "ofp-parse-pcap /nonexistent",
    "parse-flow",
    "parse-flow foo",
    "parse-flow tcp,actions=drop",
    "-m parse-flow tcp,actions=drop",
    "-mm parse-flow tcp,actions=drop",
    "-mmm parse-flow tcp,actions=drop",
    "-F nxm parse-flow tcp,actions=drop",
    "-F nxm -mmm parse-flow tcp,actions=drop",
    "-F openflow10 parse-flow reg0=1,actions=drop",
    "-O OpenFlow10 -F oxm parse-flow tcp,actions=drop",
    "-O OpenFlow99 parse-flow tcp,actions=drop",
    "-F foo parse-flow tcp,actions=drop",
    "-O OpenFlow13 parse-flow tcp,actions=drop",
    "-O OpenFlow13 -mm parse-flow tcp,actions=drop",
    "-O OpenFlow13 -F openflow10 parse-flow tcp,actions=drop",
    "parse-flow ip,actions=1,2,3",
    "parse-flow ip",
    "parse-flow ip,actions=",
    "parse-flow priority=70000,actions=drop",
    "parse-flow in_port=foo,actions=drop",
    "parse-flow actions=foo",
    "parse-flow actions=output:",
    "parse-flow actions=resubmit()",
    "parse-flow actions=learn()",
    "parse-flow actions=ct(",
    "parse-flow actions=bundle()",
    "parse-flow actions=group:5",
    "parse-flow -O OpenFlow11 actions=group:5",
    "-O OpenFlow11 parse-flow actions=meter:5",
    "-O OpenFlow13 parse-flow actions=meter:5",
    "-O OpenFlow13 parse-group group_id=1,type=all,bucket=actions=1",
    "-O OpenFlow15 parse-group group_id=1,type=all,bucket=actions=1",
    "parse-group group_id=1,type=all,bucket=actions=1",
    "parse-group foo",
    "-O OpenFlow15 parse-group group_id=1,type=foo",
    "-O OpenFlow15 parse-group group_id=1,type=select,selection_method=hash,fields(eth_src),bucket=actions=1",
    "parse-flows /nonexistent",
    "parse-actions",
    "parse-actions OpenFlow10",
    "parse-actions foo",
    "parse-instructions OpenFlow10",
    "parse-instructions OpenFlow13",
    "foo",
    "--foo",
    "--timeout=zz show br0",
    "--timeout=0 ofp-print 01",
    "-t 1 ofp-print 01",
    "--color=foo ofp-print 01",
    "--color=always ofp-print 01",
    "--sort=foo ofp-print 01",
    "--rsort=foo ofp-print 01",
    "--sort=nw_src ofp-print 01",
    "--sort=NXM_NX_REG0 ofp-print 01",
    "--packet-in-format=foo ofp-print 01",
    "-P nxm ofp-print 01",
    "--stats ofp-print 01",
    "--no-stats ofp-print 01",
    "--no-names ofp-print 01",
    "--names ofp-print 01",
    "--read-only parse-nxm",
    "--read-only compose-packet tcp",
    "--read-only ofp-print 01",
    "--read-only add-flow br0 ip",
    "--read-only show br9",
    "--strict ofp-print 01",
    "--readd ofp-print 01",
    "--may-create ofp-print 01",
    "--bundle ofp-print 01",
    "--timestamp ofp-print 01",
    "--unixctl=foo ofp-print 01",
    "--more ofp-print 01",
    "--strict=foo ofp-print 01",
    "--flow-format ofp-print",
    "-F",
    "-O",
    "--st ofp-print 01",
    "-vfoo ofp-print 01",
    "-vofctl:off ofp-print 01",
    "show br9",
    "show",
    "show a b",
    "show foo:bar",
    "show unix:/nonexistent",
    "show /nonexistent/a",
    "show br9@foo",
    "show dummy@br9",
    "show ./nonexistent",
    "dump-flows br9",
    "dump-flows br9 foo",
    "dump-flows br9 actions=1",
    "dump-aggregate br9 foo",
    "add-flow br9 ip,actions=1",
    "add-flow br9 foo",
    "add-flow br9",
    "mod-flows br9 foo",
    "del-flows br9 foo",
    "del-flows br9 actions=1",
    "--strict del-flows br9 foo",
    "diff-flows /nonexistent /nonexistent",
    "diff-flows br9 br9",
    "add-group br9 foo",
    "mod-group br9 foo",
    "del-groups br9 foo",
    "insert-buckets br9 foo",
    "remove-buckets br9 foo",
    "dump-groups br9 foo",
    "dump-group-stats br9 foo",
    "dump-group-features br9",
    "add-meter br9 foo",
    "mod-meter br9 foo",
    "del-meter br9 foo",
    "del-meters br9",
    "dump-meter br9 foo",
    "dump-meters br9",
    "meter-stats br9 foo",
    "meter-features br9",
    "packet-out br9",
    "packet-out br9 foo",
    "packet-out br9 1 2 3",
    "mod-port br9 1",
    "mod-port br9 1 foo",
    "mod-table br9 1 foo",
    "mod-table br9 foo",
    "get-frags br9",
    "set-frags br9 foo",
    "probe br9",
    "ping br9",
    "ping br9 zz",
    "ping br9 70000",
    "benchmark br9 1 1",
    "benchmark br9 zz zz",
    "benchmark br9 1",
    "monitor br9 watch:foo",
    "snoop br9",
    "queue-stats br9 a",
    "queue-get-config br9 a",
    "add-tlv-map br9 foo",
    "del-tlv-map br9 foo",
    "dump-tlv-map br9",
    "ct-flush-zone br9 zz",
    "ct-flush br9 foo",
    "ct-flush br9 zone=1 foo",
    "ct-flush br9 zone=foo",
    "dump-ipfix-bridge br9",
    "dump-ipfix-flow br9",
    "dump-desc br9",
    "dump-tables br9",
    "dump-table-features br9",
    "dump-table-desc br9",
    "dump-ports br9",
    "dump-ports-desc br9",
    "mod-table br9 1 2 3",
];

const fn offline(files: &'static [(&'static str, &'static str)], rows: &'static [Row]) -> Group {
    Group {
        daemons: Daemons::None,
        files,
        setup: &[],
        rows,
    }
}

pub(crate) static TABLE: Table = Table {
    name: "ofctl",
    groups: &[offline(FILES, MESSAGES), offline(FILES, INPUTS), offline(FILES, TEXTS)],
};

#[test]
fn ofctl_without_a_switch_says_what_open_vswitch_says() {
    run(&TABLE);
}
