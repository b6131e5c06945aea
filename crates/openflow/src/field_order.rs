//! The order in which Open vSwitch lists fields.

const FIELDS: &str = "dp_hash recirc_id packet_type conj_id tun_id tun_src tun_dst tun_ipv6_src tun_ipv6_dst tun_flags tun_ttl tun_tos \
    tun_gbp_id tun_gbp_flags tun_erspan_idx tun_erspan_ver tun_erspan_dir tun_erspan_hwid tun_gtpu_flags tun_gtpu_msgtype tun_metadata* \
    metadata in_port in_port_oxm actset_output skb_priority pkt_mark ct_state ct_zone ct_mark ct_label ct_nw_proto ct_nw_src ct_nw_dst \
    ct_ipv6_src ct_ipv6_dst ct_tp_src ct_tp_dst reg* xreg* xxreg* eth_src eth_dst eth_type vlan_tci vlan_vid vlan_pcp mpls_label mpls_tc \
    mpls_bos mpls_ttl ip_src ip_dst ipv6_src ipv6_dst ipv6_label nw_proto nw_tos ip_dscp nw_ecn nw_ttl ip_frag arp_op arp_spa arp_tpa \
    arp_sha arp_tha tcp_src tcp_dst tcp_flags udp_src udp_dst sctp_src sctp_dst icmp_type icmp_code icmpv6_type icmpv6_code nd_target \
    nd_sll nd_tll nd_reserved nd_options_type nsh_flags nsh_mdtype nsh_np nsh_spi nsh_si nsh_c1 nsh_c2 nsh_c3 nsh_c4 nsh_ttl";

/// A field's place in [`FIELDS`]: fields with a number at the end share one and go by it.
pub(crate) fn field_place(name: &str) -> (usize, usize) {
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let number = name[stem.len()..].parse().unwrap_or(0);
    let found = FIELDS
        .split_whitespace()
        .position(|f| f == name || f.strip_suffix('*') == Some(stem));
    (found.unwrap_or(usize::MAX), number)
}
