//! The states and policies of the kernel that encrypt a tunnel (ESP in transport mode, RFC 4303),
//! with fixed keys in place of an IKE daemon.

use super::TunnelKind;
use std::net::Ipv4Addr;

/// AES in Galois/Counter Mode (RFC 4106), quoted for a shell.
const CIPHER: &str = "'rfc4106(gcm(aes))'";

/// A key of AES.
const KEY: &str = "0x0102030405060708090a0b0c0d0e0f10";

/// Arguments of `ip` that encrypt what `own` exchanges with `other` through a tunnel, each with
/// those that undo it.
pub(crate) fn protect(kind: TunnelKind, own: Ipv4Addr, other: Ipv4Addr) -> Vec<[String; 2]> {
    let state = |from: Ipv4Addr, to| {
        let which = format!("src {from} dst {to} proto esp spi 0x1000");
        [
            format!("xfrm state add {}", state(from, to)),
            format!("xfrm state delete {which}"),
        ]
    };
    let policy = |way, from, to| {
        let which = format!("dir {way} src {from} dst {to} {}", kind.selector());
        [
            format!("xfrm policy add {which} priority 1000 tmpl src {from} dst {to} proto esp reqid 1 mode transport"),
            format!("xfrm policy delete {which}"),
        ]
    };
    vec![
        state(own, other),
        state(other, own),
        policy("out", own, other),
        policy("in", other, own),
    ]
}

/// The words of `ip xfrm state add` for the packets from `from` to `to`. Each direction has a salt
/// of its own, since its nonces count from the same number.
pub(crate) fn state(from: Ipv4Addr, to: Ipv4Addr) -> String {
    let salt = from.to_bits();
    format!("src {from} dst {to} proto esp spi 0x1000 reqid 1 mode transport aead {CIPHER} {KEY}{salt:08x} 128")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_have_the_same_states_and_opposite_policies() {
        let (one, two) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2));
        let of = |own, other| protect(TunnelKind::Vxlan, own, other);
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
