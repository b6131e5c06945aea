//! The fields of a key that say which tunnel a packet came from.

use crate::connection::{names_of_bits, signed_bits};
use crate::field::{KEY_WORDS, fill, set, word, words_of};
use crate::{Field, Key, Prerequisite, Tunnel, TunnelDetails};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// The words of tunnels: no other field lies in them.
const OF_TUNNELS: Range<usize> = words_of(Prerequisite::Tunnel);

/// Those of IPv6 addresses.
const OF_IPV6: Range<usize> = Field::TunIpv6Src.word() - 1..Field::TunIpv6Dst.word() + 1;

/// All flags.
pub(crate) const ALL_FLAGS: u16 = Tunnel::DF | Tunnel::CSUM | Tunnel::KEY | Tunnel::OAM;

impl Tunnel {
    /// The flags that flows show, by their names, in the order in which they are printed.
    pub const FLAGS: [(&str, u16); 4] = [
        ("df", Tunnel::DF),
        ("csum", Tunnel::CSUM),
        ("key", Tunnel::KEY),
        ("oam", Tunnel::OAM),
    ];

    /// The names of flags that are set, with `|` between them; empty if none is.
    pub fn names_of_flags(flags: u16) -> String {
        names_of_bits(&Tunnel::FLAGS, flags.into())
    }

    /// The names of flags in a mask, each with a sign that says whether it is set.
    pub fn signed_flags(flags: u16, mask: u16) -> String {
        signed_bits(&Tunnel::FLAGS, flags.into(), mask.into())
    }
}

impl Key {
    /// Sets the fields of a tunnel; those that it does not have become zero.
    #[inline]
    pub fn set_tunnel(&mut self, tunnel: &Tunnel) {
        let (mut gbp, mut erspan, mut gtpu) = ([0; 2], [0; 4], [0; 2]);
        match tunnel.details {
            TunnelDetails::None => {}
            TunnelDetails::Gbp { id, flags } => gbp = [id.into(), flags.into()],
            TunnelDetails::ErspanV1 { index } => erspan = [1, index.into(), 0, 0],
            TunnelDetails::ErspanV2 { egress, hwid } => erspan = [2, 0, egress.into(), hwid.into()],
            TunnelDetails::Gtpu { flags, message } => gtpu = [flags.into(), message.into()],
        }
        let words = &mut self.words;
        fill(words, [(Field::TunId, tunnel.id)]);
        if let (IpAddr::V4(src), IpAddr::V4(dst)) = (tunnel.src, tunnel.dst) {
            let (src, dst) = (src.to_bits().into(), dst.to_bits().into());
            fill(words, [(Field::TunSrc, src), (Field::TunDst, dst)]);
            words[OF_IPV6].fill(0);
        } else {
            set_addresses(words, tunnel.src, tunnel.dst);
        }
        // Two parts: one of six fields stays a loop.
        let all = word([
            (Field::TunFlags, tunnel.flags.into()),
            (Field::TunTtl, tunnel.ttl.into()),
            (Field::TunTos, tunnel.tos.into()),
        ]);
        let some = word([
            (Field::TunGbpId, gbp[0]),
            (Field::TunGbpFlags, gbp[1]),
            (Field::TunErspanVer, erspan[0]),
        ]);
        words[Field::TunFlags.word()] = all | some;
        fill(
            words,
            [
                (Field::TunErspanIdx, erspan[1]),
                (Field::TunErspanDir, erspan[2]),
                (Field::TunErspanHwid, erspan[3]),
                (Field::TunGtpuFlags, gtpu[0]),
                (Field::TunGtpuMsgtype, gtpu[1]),
            ],
        );
        fill(words, [(Field::TunOptions, tunnel.options.hash())]);
    }

    /// Takes the fields of a tunnel away: the packet came from none.
    #[inline]
    pub(crate) fn clear_tunnel(&mut self) {
        self.words[OF_TUNNELS].fill(0);
    }

    /// The outer source and destination address; `None` if the packet came from no tunnel. The
    /// destination decides the family.
    pub fn tunnel_addresses(&self) -> Option<(IpAddr, IpAddr)> {
        let v4 = |field| Ipv4Addr::from_bits(self.get(field) as u32);
        let v6 = |field| Ipv6Addr::from_bits(self.get(field));
        if self.get(Field::TunDst) != 0 {
            Some((v4(Field::TunSrc).into(), v4(Field::TunDst).into()))
        } else if self.get(Field::TunIpv6Dst) != 0 {
            Some((v6(Field::TunIpv6Src).into(), v6(Field::TunIpv6Dst).into()))
        } else {
            None
        }
    }

    /// Takes the fields of a tunnel from another key; all others stay.
    pub fn copy_tunnel(&mut self, from: &Key) {
        Field::of_tunnels().for_each(|field| self.set(field, from.get(field)));
    }
}

/// Sets the addresses of a tunnel over IPv6.
#[inline(never)]
fn set_addresses(words: &mut [u64; KEY_WORDS], src: IpAddr, dst: IpAddr) {
    fill(words, [(Field::TunSrc, 0)]);
    for (address, v4, v6) in [
        (src, Field::TunSrc, Field::TunIpv6Src),
        (dst, Field::TunDst, Field::TunIpv6Dst),
    ] {
        let (low, high) = match address {
            IpAddr::V4(address) => (address.to_bits(), 0),
            IpAddr::V6(address) => (0, address.to_bits()),
        };
        set(words, v4, low.into());
        set(words, v6, high);
    }
}

impl Field {
    /// The fields of tunnels.
    pub fn of_tunnels() -> impl Iterator<Item = Field> {
        Field::ALL.iter().copied().filter(|field| field.is_of_tunnel())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TunnelOptionBytes;

    impl Key {
        /// The fields of the tunnel as a value, without ports and options; `None` if the packet
        /// came from no tunnel.
        fn tunnel(&self) -> Option<Tunnel> {
            let (src, dst) = self.tunnel_addresses()?;
            let get = |field| self.get(field);
            let details = match get(Field::TunErspanVer) {
                1 => TunnelDetails::ErspanV1 {
                    index: get(Field::TunErspanIdx) as u32,
                },
                2 => TunnelDetails::ErspanV2 {
                    egress: get(Field::TunErspanDir) != 0,
                    hwid: get(Field::TunErspanHwid) as u8,
                },
                _ if get(Field::TunGbpId) | get(Field::TunGbpFlags) != 0 => TunnelDetails::Gbp {
                    id: get(Field::TunGbpId) as u16,
                    flags: get(Field::TunGbpFlags) as u8,
                },
                _ if get(Field::TunGtpuFlags) | get(Field::TunGtpuMsgtype) != 0 => TunnelDetails::Gtpu {
                    flags: get(Field::TunGtpuFlags) as u8,
                    message: get(Field::TunGtpuMsgtype) as u8,
                },
                _ => TunnelDetails::None,
            };
            Some(Tunnel {
                id: get(Field::TunId) as u64,
                src,
                dst,
                tp_src: 0,
                tp_dst: 0,
                tos: get(Field::TunTos) as u8,
                ttl: get(Field::TunTtl) as u8,
                flags: get(Field::TunFlags) as u16,
                details,
                options: TunnelOptionBytes::NONE,
            })
        }
    }

    #[test]
    fn a_tunnel_comes_back_from_its_key() {
        let details = [
            TunnelDetails::None,
            TunnelDetails::Gbp { id: 7, flags: 0x48 },
            TunnelDetails::ErspanV1 { index: 0xf_ffff },
            TunnelDetails::ErspanV2 { egress: true, hwid: 63 },
            TunnelDetails::Gtpu {
                flags: 0x30,
                message: 255,
            },
        ];
        let addresses: [(IpAddr, IpAddr); 2] = [
            ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()),
            (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::from_bits(5 << 70).into()),
        ];
        // A key that had another tunnel's fields before.
        let mut other = Key::ZERO;
        for details in details {
            for (src, dst) in addresses {
                let tunnel = Tunnel {
                    id: u64::MAX,
                    src,
                    dst,
                    tp_src: 0,
                    tp_dst: 0,
                    tos: 4,
                    ttl: 64,
                    flags: Tunnel::KEY | Tunnel::OAM,
                    details,
                    options: TunnelOptionBytes::NONE,
                };
                let mut key = other;
                key.set_tunnel(&tunnel);
                assert_eq!(key.tunnel(), Some(tunnel));
                other = key;
                key.clear_tunnel();
                assert_eq!(key, Key::ZERO);
            }
        }
        assert_eq!(Key::ZERO.tunnel(), None);
    }
}
