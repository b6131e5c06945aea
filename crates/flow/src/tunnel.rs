//! The fields of a key that say which tunnel a packet came from.

use crate::connection::{names_of_bits, signed_bits};
use crate::{Field, Key, Tunnel, TunnelDetails};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
    /// Sets the fields of a tunnel; all others stay, those of other tunnels too.
    pub fn set_tunnel(&mut self, tunnel: &Tunnel) {
        self.set(Field::TunId, tunnel.id.into());
        for (address, v4, v6) in [
            (tunnel.src, Field::TunSrc, Field::TunIpv6Src),
            (tunnel.dst, Field::TunDst, Field::TunIpv6Dst),
        ] {
            match address {
                IpAddr::V4(address) => self.set(v4, address.to_bits().into()),
                IpAddr::V6(address) => self.set(v6, address.to_bits()),
            }
        }
        self.set(Field::TunFlags, tunnel.flags.into());
        self.set(Field::TunTtl, tunnel.ttl.into());
        self.set(Field::TunTos, tunnel.tos.into());
        self.set(Field::TunOptions, tunnel.options.hash().into());
        match tunnel.details {
            TunnelDetails::None => {}
            TunnelDetails::Gbp { id, flags } => {
                self.set(Field::TunGbpId, id.into());
                self.set(Field::TunGbpFlags, flags.into());
            }
            TunnelDetails::ErspanV1 { index } => {
                self.set(Field::TunErspanVer, 1);
                self.set(Field::TunErspanIdx, index.into());
            }
            TunnelDetails::ErspanV2 { egress, hwid } => {
                self.set(Field::TunErspanVer, 2);
                self.set(Field::TunErspanDir, egress.into());
                self.set(Field::TunErspanHwid, hwid.into());
            }
            TunnelDetails::Gtpu { flags, message } => {
                self.set(Field::TunGtpuFlags, flags.into());
                self.set(Field::TunGtpuMsgtype, message.into());
            }
        }
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
                let mut key = Key::ZERO;
                key.set_tunnel(&tunnel);
                assert_eq!(key.tunnel(), Some(tunnel));
            }
        }
        assert_eq!(Key::ZERO.tunnel(), None);
    }
}
