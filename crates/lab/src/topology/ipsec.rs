//! The states and policies of the kernel that encrypt a tunnel (ESP in transport mode, RFC 4303),
//! with fixed keys in place of an IKE daemon.

use super::Tunnel;
use std::net::Ipv4Addr;

/// AES in Galois/Counter Mode (RFC 4106), quoted for a shell.
const CIPHER: &str = "'rfc4106(gcm(aes))'";

/// A key of AES.
const KEY: &str = "0x0102030405060708090a0b0c0d0e0f10";

/// Arguments of `ip` that encrypt what `own` exchanges with `other` through a tunnel, each with
/// those that undo it; none for a tunnel without IPsec.
pub(crate) fn protect(tunnel: Tunnel, own: Ipv4Addr, other: Ipv4Addr) -> Vec<[String; 2]> {
    if !tunnel.ipsec {
        return Vec::new();
    }
    let state_commands = |from, to| {
        [
            format!("xfrm state add {}", state(from, to)),
            format!("xfrm state delete {}", state_id(from, to)),
        ]
    };
    let policy = |way, from, to| {
        let which = format!("dir {way} src {from} dst {to} {}", tunnel.kind.selector());
        [
            format!("xfrm policy add {which} priority 1000 tmpl src {from} dst {to} proto esp reqid 1 mode transport"),
            format!("xfrm policy delete {which}"),
        ]
    };
    vec![
        state_commands(own, other),
        state_commands(other, own),
        policy("out", own, other),
        policy("in", other, own),
    ]
}

/// The words of `ip xfrm state add` for the packets from `from` to `to`. Each direction has a salt
/// of its own, since its nonces count from the same number.
pub(crate) fn state(from: Ipv4Addr, to: Ipv4Addr) -> String {
    let salt = from.to_bits();
    let id = state_id(from, to);
    format!("{id} reqid 1 mode transport aead {CIPHER} {KEY}{salt:08x} 128")
}

fn state_id(from: Ipv4Addr, to: Ipv4Addr) -> String {
    format!("src {from} dst {to} proto esp spi 0x1000")
}

/// Whether packets have passed in both directions, by what `ip -s xfrm state` says.
pub(crate) fn carries_packets(said: &str) -> bool {
    let mut lines = said.lines().map(str::trim);
    let mut states = 0;
    while lines.any(|line| line == "lifetime current:") {
        // 84(bytes), 1(packets)
        match lines.next() {
            Some(used) if !used.contains(" 0(packets)") => states += 1,
            _ => return false,
        }
    }
    states >= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::{TunnelKind, Underlay};

    #[test]
    fn both_states_must_have_carried_packets() {
        let state = |packets| {
            format!(
                "src 198.18.0.1 dst 198.18.0.2\n\tlifetime config:\n\t  limit: soft (INF)(bytes)\n\tlifetime current:\n\t  \
                 {}(bytes), {packets}(packets)\n\tstats:\n\t  replay-window 0 replay 0 failed 0\n",
                84 * packets
            )
        };
        assert!(carries_packets(&(state(1) + &state(10))));
        for said in [state(1) + &state(0), state(0) + &state(1), state(1), String::new()] {
            assert!(!carries_packets(&said), "{said}");
        }
    }

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let (one, two) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
        let tunnel = Tunnel {
            kind: TunnelKind::Vxlan,
            underlay: Underlay::Host,
            number: 1,
            ipsec: true,
        };
        let of = |own, other| protect(tunnel, own, other);
        let (near, far) = (of(one, two), of(two, one));
        assert_eq!([&near[0], &near[1]], [&far[1], &far[0]]);
        assert_eq!(
            near[0],
            [
                "xfrm state add src 198.18.0.1 dst 198.18.0.2 proto esp spi 0x1000 reqid 1 mode transport \
                 aead 'rfc4106(gcm(aes))' 0x0102030405060708090a0b0c0d0e0f10c6120001 128",
                "xfrm state delete src 198.18.0.1 dst 198.18.0.2 proto esp spi 0x1000",
            ]
        );
        assert_eq!(near[2][0], far[3][0].replace("dir in", "dir out"));
        assert_eq!(
            near[2],
            [
                "xfrm policy add dir out src 198.18.0.1 dst 198.18.0.2 proto 17 dport 4789 priority 1000 \
                 tmpl src 198.18.0.1 dst 198.18.0.2 proto esp reqid 1 mode transport",
                "xfrm policy delete dir out src 198.18.0.1 dst 198.18.0.2 proto 17 dport 4789",
            ]
        );
    }
}
