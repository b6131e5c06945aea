//! The differences that there may be, and why.

/// Why the packet `frame`, whose way through Open vSwitch `trace` tells, may come out differently; `None` where it may not.
pub(super) fn reason(frame: &[u8], trace: &str) -> Option<&'static str> {
    let tags = tags(frame);
    let pushed = trace.matches("push_vlan:").count();
    let pushed_label = trace.contains("push_mpls:");
    let malformed_arp = trace.contains("arp_op=0") && trace.contains("arp_spa=0.0.0.0,arp_tpa=0.0.0.0");
    let has = |fields: &[&str]| fields.iter().any(|field| trace.contains(field));
    let rules: [(bool, &str); 12] = [
        (
            pushed > 0 && tags + pushed > 2,
            "Open vSwitch takes the inner tag off where a third is put on; here it stays, as OpenFlow says",
        ),
        (
            malformed_arp && trace.contains("set(arp("),
            "of what is no ARP for IPv4 over Ethernet, Open vSwitch writes all fields that rules looked at",
        ),
        (
            trace.contains("nw_proto=0,") && !trace.contains("set(ip"),
            "Open vSwitch does not write to IP packets of protocol 0 (CVE-2023-1668)",
        ),
        (
            trace.contains("NORMAL") && tags > 1 && has(&["dl_vlan=0,", "dl_vlan1=0,"]),
            "NORMAL there takes a second tag off with, or for being of, VLAN 0; here a packet keeps what is behind the first",
        ),
        (
            has(&["mpls_label=0,mpls_tc=0,mpls_ttl=0,mpls_bos=0"]) && pushed_label,
            "a label whose bits are all zero is none to Open vSwitch",
        ),
        (
            u16::from_be_bytes([frame[12 + 4 * tags], frame[13 + 4 * tags]]) < 0x600 && pushed_label,
            "where a label goes into an 802.3 frame, Open vSwitch takes its length for its type, and the packet is neither",
        ),
        (
            has(&["nd_target=::,"]) && has(&["->nd_", "->NXM_NX_ND"]),
            "Open vSwitch writes a target into neighbor messages that it takes for malformed",
        ),
        (
            has(&["pop_mpls:0x0800", "pop_mpls:0x86dd"]) && has(&["bos=0"]),
            "where a label that is not the last is taken off for something else than a label, Open vSwitch takes all off",
        ),
        (
            trace.contains("max_len=") && has(&["push_vlan", "pop_vlan", "strip_vlan", "push_mpls", "pop_mpls"]),
            "a packet that is cut off for a port is as long as asked for here; there what is put on or taken off is not counted",
        ),
        (
            trace.contains("nw_frag=later") && has(&["set(ipv4(src=", "set(ipv4(dst="]),
            "Open vSwitch corrects a checksum in the midst of a later fragment's data",
        ),
        (
            frame[12 + 4 * tags..].starts_with(&[0x86, 0xdd])
                && frame.get(20 + 4 * tags) == Some(&44)
                && has(&["set(ipv6(src=", "set(ipv6(dst="]),
            "Open vSwitch leaves a transport's checksum behind an IPv6 fragment header as it was, wrong",
        ),
        (
            has(&["tp_src=0,tp_dst=0"]) && has(&["set(ip"]),
            "Open vSwitch corrects the checksum of a transport header that it takes for malformed",
        ),
    ];
    rules.iter().find(|(applies, _)| *applies).map(|(_, reason)| *reason)
}

/// How many tags a frame bears, one that is cut off among them.
fn tags(frame: &[u8]) -> usize {
    let types = frame[12..].chunks(4);
    types
        .take_while(|t| t.starts_with(&[0x81, 0]) || t.starts_with(&[0x88, 0xa8]))
        .count()
}
