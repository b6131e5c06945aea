//! Policies of IPsec that block (`linux/xfrm.h`).

use super::message::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, read_u32};
use super::{Message, Netlink};
use rustix::net::netlink;
use std::io;
use std::net::IpAddr;
use tunnel::vport::IpsecPeer;

const XFRM_MSG_NEWSA: u16 = 0x10;
const XFRM_MSG_NEWPOLICY: u16 = 0x13;
const XFRM_MSG_DELPOLICY: u16 = 0x14;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRM_MSG_UPDPOLICY: u16 = 0x19;
const XFRM_MSG_FLUSHPOLICY: u16 = 0x1d;
/// The bit of the group `XFRMNLGRP_POLICY`.
const GROUP_POLICY: u32 = 8;
const XFRMA_ALG_AUTH: u16 = 1;
const XFRM_POLICY_BLOCK: u8 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Type and code of "port unreachable" (RFC 792, RFC 4443), which stand where a selector has ports.
const PORT_UNREACHABLE: (u16, u16) = (3, 3);
const PORT_UNREACHABLE_V6: (u16, u16) = (1, 4);
const ESP: u8 = 50;
/// No limit of bytes or packets.
const XFRM_INF: [u8; 8] = [0xff; 8];

/// The length of `struct xfrm_selector`, and where its members are.
const SELECTOR: usize = 56;
const SADDR: usize = 16;
const DPORT: usize = 32;
const DPORT_MASK: usize = 34;
const SPORT: usize = 36;
const SPORT_MASK: usize = 38;
const FAMILY: usize = 40;
const PREFIXLEN_D: usize = 42;
const PREFIXLEN_S: usize = 43;
const PROTO: usize = 44;

/// The length of `struct xfrm_userpolicy_info`, and where its members are.
const POLICY: usize = 168;
const LIMITS: usize = SELECTOR;
const PRIORITY: usize = 152;
const INDEX: usize = 156;
const DIR: usize = 160;
const ACTION: usize = 161;

/// The length of `struct xfrm_userpolicy_id`, and where its members are.
const POLICY_ID: usize = 64;
const ID_INDEX: usize = 56;
const ID_DIR: usize = 60;

/// The length of `struct xfrm_usersa_info`, and where its members are.
const STATE: usize = 224;
const STATE_SPI: usize = 72;
const STATE_PROTO: usize = 76;
const STATE_FAMILY: usize = 212;

/// `struct xfrm_selector`.
pub(crate) type Selector = [u8; SELECTOR];

/// The packets that a policy is for, seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Direction {
    /// `XFRM_POLICY_IN`
    In = 0,
    /// `XFRM_POLICY_OUT`
    Out = 1,
}

/// A policy that the kernel has.
pub(crate) struct Policy {
    pub(crate) direction: u8,
    pub(crate) selector: Selector,
    index: u32,
}

/// A socket for policies.
pub(crate) fn open() -> io::Result<Netlink> {
    Netlink::open_of(Some(netlink::XFRM))
}

/// A socket that hears of changed policies.
pub(crate) fn subscribe() -> io::Result<Netlink> {
    Netlink::subscribe_of(Some(netlink::XFRM), GROUP_POLICY)
}

/// Whether a notification says that a policy may be gone or another one.
pub(crate) fn is_loss(kind: u16) -> bool {
    matches!(kind, XFRM_MSG_DELPOLICY | XFRM_MSG_UPDPOLICY | XFRM_MSG_FLUSHPOLICY)
}

/// What may not pass unencrypted between a tunnel and its other end.
pub(crate) fn selectors(peer: &IpsecPeer) -> [(Direction, Selector); 3] {
    [
        (Direction::In, selector(peer, Direction::In)),
        (Direction::Out, selector(peer, Direction::Out)),
        (Direction::Out, errors(peer)),
    ]
}

/// ICMP errors to the other end that quote decrypted packets: the kernel sends them where it has no
/// socket for a packet, because the switch has ended, or does not know of one, as its GRE module.
fn errors(peer: &IpsecPeer) -> Selector {
    let (protocol, (kind, code)) = match peer.address {
        IpAddr::V4(_) => (ICMP, PORT_UNREACHABLE),
        IpAddr::V6(_) => (ICMPV6, PORT_UNREACHABLE_V6),
    };
    let any_port = IpsecPeer { protocol, ..*peer };
    let mut selector = selector(&any_port, Direction::Out);
    for (value, at, mask) in [(kind, SPORT, SPORT_MASK), (code, DPORT, DPORT_MASK)] {
        selector[at..at + 2].copy_from_slice(&value.to_be_bytes());
        selector[mask..mask + 2].fill(0xff);
    }
    selector
}

/// All packets of a tunnel to its other end, or from it.
fn selector(peer: &IpsecPeer, direction: Direction) -> Selector {
    let mut selector = [0; SELECTOR];
    let (address, prefix) = match direction {
        Direction::In => (SADDR, PREFIXLEN_S),
        Direction::Out => (0, PREFIXLEN_D),
    };
    let (family, len) = match peer.address {
        IpAddr::V4(own) => {
            selector[address..address + 4].copy_from_slice(&own.octets());
            (AF_INET, 32)
        }
        IpAddr::V6(own) => {
            selector[address..address + 16].copy_from_slice(&own.octets());
            (AF_INET6, 128)
        }
    };
    selector[prefix] = len;
    selector[FAMILY..FAMILY + 2].copy_from_slice(&family.to_ne_bytes());
    selector[PROTO] = peer.protocol;
    if peer.protocol == UDP {
        // Both ends receive on this port and send from any.
        selector[DPORT..DPORT + 2].copy_from_slice(&peer.port.to_be_bytes());
        selector[DPORT_MASK..DPORT_MASK + 2].fill(0xff);
    }
    selector
}

/// Asks for a policy that blocks. It is an error where the kernel has one with this selector.
pub(crate) fn block(selector: &Selector, direction: Direction, priority: u32) -> Message {
    let mut policy = [0; POLICY];
    policy[..SELECTOR].copy_from_slice(selector);
    for limit in policy[LIMITS..LIMITS + 32].chunks_exact_mut(8) {
        limit.copy_from_slice(&XFRM_INF);
    }
    policy[PRIORITY..PRIORITY + 4].copy_from_slice(&priority.to_ne_bytes());
    policy[DIR] = direction as u8;
    policy[ACTION] = XFRM_POLICY_BLOCK;
    Message::new(XFRM_MSG_NEWPOLICY, NLM_F_CREATE | NLM_F_EXCL, &policy)
}

/// Asks for a policy to be removed. It is named by its number: the selector alone may also be that
/// of another one.
pub(crate) fn unblock(policy: &Policy) -> Message {
    let mut id = [0; POLICY_ID];
    id[ID_INDEX..ID_INDEX + 4].copy_from_slice(&policy.index.to_ne_bytes());
    id[ID_DIR] = policy.direction;
    Message::new(XFRM_MSG_DELPOLICY, 0, &id)
}

/// The policies of a priority that block.
pub(crate) fn blocking(netlink: &mut Netlink, priority: u32) -> io::Result<Vec<Policy>> {
    let mut found = Vec::new();
    let ask = Message::new(XFRM_MSG_GETPOLICY, NLM_F_DUMP, &[0; POLICY_ID]);
    netlink.exchange(ask, |kind, payload| {
        if kind == XFRM_MSG_NEWPOLICY {
            found.extend(parse(payload, priority));
        }
    })?;
    Ok(found)
}

fn parse(payload: &[u8], priority: u32) -> Option<Policy> {
    let policy: &[u8; POLICY] = payload.first_chunk()?;
    let own = read_u32(policy, PRIORITY)? == priority && policy[ACTION] == XFRM_POLICY_BLOCK;
    own.then_some(Policy {
        direction: policy[DIR],
        selector: *policy.first_chunk()?,
        index: read_u32(policy, INDEX)?,
    })
}

/// Asks for a state of ESP that lacks a cipher. A kernel with ESP finds that out last, and refuses
/// it with `EINVAL`; without ESP the error is another one. No state comes into being.
pub(crate) fn without_cipher(ipv6: bool) -> Message {
    /// The length of `struct xfrm_algo` without the key.
    const ALGORITHM: usize = 68;
    const NAME: &[u8] = b"hmac(sha256)";
    const KEY: usize = 32;
    let mut state = [0; STATE];
    let family = if ipv6 { AF_INET6 } else { AF_INET };
    state[FAMILY..FAMILY + 2].copy_from_slice(&family.to_ne_bytes());
    state[STATE_FAMILY..STATE_FAMILY + 2].copy_from_slice(&family.to_ne_bytes());
    state[STATE_SPI..STATE_SPI + 4].copy_from_slice(&0x100_u32.to_be_bytes());
    state[STATE_PROTO] = ESP;
    for limit in state[96..96 + 32].chunks_exact_mut(8) {
        limit.copy_from_slice(&XFRM_INF);
    }
    let mut algorithm = [0; ALGORITHM + KEY];
    algorithm[..NAME.len()].copy_from_slice(NAME);
    algorithm[64..ALGORITHM].copy_from_slice(&(KEY as u32 * 8).to_ne_bytes());
    Message::new(XFRM_MSG_NEWSA, NLM_F_CREATE | NLM_F_EXCL, &state).attribute(XFRMA_ALG_AUTH, &algorithm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn peer(address: &str, protocol: u8, port: u16) -> IpsecPeer {
        IpsecPeer {
            address: address.parse().unwrap(),
            protocol,
            port,
        }
    }

    #[test]
    fn selectors_have_the_other_end_the_protocol_and_the_port_it_receives_on() {
        let out = selector(&peer("192.0.2.7", 17, 4789), Direction::Out);
        let mut expected = [0; SELECTOR];
        expected[..4].copy_from_slice(&[192, 0, 2, 7]);
        expected[32..36].copy_from_slice(&[0x12, 0xb5, 0xff, 0xff]);
        expected[40..45].copy_from_slice(&[2, 0, 32, 0, 17]);
        if cfg!(target_endian = "little") {
            assert_eq!(out, expected);
        }
        let back = selector(&peer("fd31::2", 47, 0), Direction::In);
        assert_eq!(&back[16..18], &[0xfd, 0x31]);
        assert_eq!(&back[32..40], &[0; 8], "GRE has no ports");
        assert_eq!(&back[42..45], &[0, 128, 47]);
    }

    #[test]
    fn errors_that_quote_packets_are_blocked_by_their_type_and_code() {
        for (address, expected) in [("192.0.2.7", (1, [0, 3], [0, 3])), ("fd31::2", (58, [0, 1], [0, 4]))] {
            let peer = peer(address, 17, 4789);
            let [.., (direction, selector)] = selectors(&peer);
            let ports = (selector[44], [selector[36], selector[37]], [selector[32], selector[33]]);
            assert_eq!((direction, ports), (Direction::Out, expected));
            assert_eq!((&selector[34..36], &selector[38..40]), (&[0xff; 2][..], &[0xff; 2][..]));
            assert_eq!(selectors(&peer)[1].1[..16], selector[..16], "to the other end");
        }
    }

    #[test]
    fn a_policy_that_was_asked_for_is_found_by_its_priority() {
        let selector = selector(&peer("192.0.2.7", 17, 4789), Direction::Out);
        let bytes = block(&selector, Direction::Out, 0x6f78_1234).finish(1);
        // The headers of netlink and of `struct xfrm_userpolicy_info`.
        assert_eq!(bytes.len(), 16 + POLICY);
        assert_eq!(u16::from_ne_bytes([bytes[4], bytes[5]]), 0x13);
        assert_eq!(&bytes[16 + 56..16 + 88], &[0xff; 32], "no limits");
        assert_eq!(bytes[16 + 160..16 + 164], [1, 1, 0, 0], "outward, block");
        let policy = parse(&bytes[16..], 0x6f78_1234).unwrap();
        assert_eq!((policy.direction, policy.selector), (1, selector));
        assert!(parse(&bytes[16..], 0x6f78_1235).is_none());
        assert!(parse(&bytes[16..16 + POLICY - 1], 0x6f78_1234).is_none());
        let removed = unblock(&Policy { index: 9, ..policy }).finish(2);
        assert_eq!(removed.len(), 16 + 64);
        assert_eq!(&removed[16 + 56..16 + 60], &9_u32.to_ne_bytes());
        assert_eq!((removed[16 + 60], &removed[16..16 + 56]), (1, &[0; 56][..]));
    }

    #[test]
    fn the_state_without_a_cipher_is_one_of_esp() {
        for (ipv6, family) in [(false, 2_u16), (true, 10)] {
            let bytes = without_cipher(ipv6).finish(1);
            assert_eq!(bytes.len(), 16 + 224 + 4 + 68 + 32);
            assert_eq!(bytes[16 + 76], 50);
            assert_eq!(&bytes[16 + 212..16 + 214], &family.to_ne_bytes());
            assert_eq!(&bytes[16 + 224 + 4..][..12], b"hmac(sha256)");
            assert_eq!(&bytes[16 + 224 + 4 + 64..][..4], &256_u32.to_ne_bytes());
        }
    }

    proptest! {
        #[test]
        fn no_reply_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), priority: u32) {
            let _ = parse(&bytes, priority);
        }
    }
}
