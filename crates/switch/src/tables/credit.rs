//! The counters of packets, as numbers that a datapath carries with its megaflows.

use super::RuleRef;
use classifier::RuleId;
use dp::Credit;

/// A counter of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Credited {
    /// A rule.
    Rule {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The rule.
        rule: RuleRef,
    },
    /// A bucket of a group, or the group.
    Bucket {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The group.
        group: u32,
        /// The serial number of the bucket, or the group's [`Group::serial`](super::Group::serial).
        serial: u32,
        /// The bucket's place in the group, from 0; `None` for the group.
        bucket: Option<u16>,
    },
    /// A table lookup.
    Lookup {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The table.
        table: u8,
        /// Whether a rule matched.
        matched: bool,
    },
    /// A mirror.
    Mirror {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The mirror's number in the bridge.
        mirror: u32,
    },
    /// A bucket of a bond.
    Bond {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The port's number in the bridge.
        port: u32,
        /// The bucket.
        bucket: u8,
    },
    /// A tunnel or an end of a patch, in one direction.
    Port {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// The port's number in the bridge.
        port: u32,
        /// The interface's place in the port.
        interface: u16,
        /// Whether the packets were sent, not received.
        sent: bool,
    },
    /// A flow that NetFlow is told of.
    Netflow {
        /// The bridge, by its number in the switch.
        bridge: u32,
        /// A hash of the flow and of where it goes.
        flow: u64,
    },
}

/// Stands for a group, in place of a bucket.
const NO_BUCKET: u16 = u16::MAX;

const RULE: u128 = 1;
const BUCKET: u128 = 2;
const LOOKUP: u128 = 3;
const MIRROR: u128 = 4;
const NETFLOW: u128 = 5;
const BOND: u128 = 6;
const PORT: u128 = 7;

impl Credited {
    /// The bridge that it belongs to, by its number in the switch.
    pub fn bridge(self) -> u32 {
        match self {
            Credited::Rule { bridge, .. }
            | Credited::Bucket { bridge, .. }
            | Credited::Lookup { bridge, .. }
            | Credited::Mirror { bridge, .. }
            | Credited::Bond { bridge, .. }
            | Credited::Port { bridge, .. }
            | Credited::Netflow { bridge, .. } => bridge,
        }
    }

    /// Its number.
    pub fn credit(self) -> Credit {
        let number =
            |kind: u128, bridge: u32, small: u8| kind << 124 | u128::from(bridge) << 88 | u128::from(small) << 80;
        Credit(match self {
            Credited::Rule { bridge, rule } => number(RULE, bridge, rule.table) | u128::from(rule.id.to_bits()),
            Credited::Bucket {
                bridge,
                group,
                serial,
                bucket,
            } => {
                let bucket = bucket.map_or(NO_BUCKET, |at| at.min(NO_BUCKET - 1));
                number(BUCKET, bridge, 0) | u128::from(bucket) << 64 | u128::from(serial) << 32 | u128::from(group)
            }
            Credited::Lookup { bridge, table, matched } => number(LOOKUP, bridge, table) | u128::from(matched),
            Credited::Mirror { bridge, mirror } => number(MIRROR, bridge, 0) | u128::from(mirror),
            Credited::Bond { bridge, port, bucket } => number(BOND, bridge, bucket) | u128::from(port),
            Credited::Port {
                bridge,
                port,
                interface,
                sent,
            } => number(PORT, bridge, sent.into()) | u128::from(interface) << 32 | u128::from(port),
            Credited::Netflow { bridge, flow } => number(NETFLOW, bridge, 0) | u128::from(flow),
        })
    }

    /// The counter of a number; `None` for numbers that stand for none.
    pub fn of(credit: Credit) -> Option<Credited> {
        let number = credit.0;
        let (bridge, small) = ((number >> 88) as u32, (number >> 80) as u8);
        Some(match number >> 124 {
            RULE => Credited::Rule {
                bridge,
                rule: RuleRef {
                    table: small,
                    id: RuleId::from_bits(number as u64),
                },
            },
            BUCKET => Credited::Bucket {
                bridge,
                group: number as u32,
                serial: (number >> 32) as u32,
                bucket: Some((number >> 64) as u16).filter(|at| *at != NO_BUCKET),
            },
            LOOKUP => Credited::Lookup {
                bridge,
                table: small,
                matched: number & 1 != 0,
            },
            MIRROR => Credited::Mirror {
                bridge,
                mirror: number as u32,
            },
            BOND => Credited::Bond {
                bridge,
                port: number as u32,
                bucket: small,
            },
            PORT => Credited::Port {
                bridge,
                port: number as u32,
                interface: (number >> 32) as u16,
                sent: small != 0,
            },
            NETFLOW => Credited::Netflow {
                bridge,
                flow: number as u64,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_what_it_was_made_of() {
        let rule = RuleRef {
            table: 253,
            id: RuleId::from_bits(0xfedc_ba98_7654_3210),
        };
        let bridge = u32::MAX - 1;
        let all = [
            Credited::Rule { bridge, rule },
            Credited::Bucket {
                bridge,
                group: 0xffff_ff00,
                serial: 0xabcd_ef01,
                bucket: None,
            },
            Credited::Bucket {
                bridge,
                group: 1,
                serial: 2,
                bucket: Some(0xfffe),
            },
            Credited::Lookup {
                bridge,
                table: 253,
                matched: true,
            },
            Credited::Lookup {
                bridge: 0,
                table: 0,
                matched: false,
            },
            Credited::Mirror {
                bridge,
                mirror: u32::MAX,
            },
            Credited::Netflow { bridge, flow: u64::MAX },
            Credited::Port {
                bridge,
                port: u32::MAX,
                interface: u16::MAX,
                sent: true,
            },
            Credited::Bond {
                bridge,
                port: u32::MAX,
                bucket: 255,
            },
        ];
        for credited in all {
            assert_eq!(Credited::of(credited.credit()), Some(credited));
        }
        assert_eq!(Credited::of(Credit(0)), None);
    }
}
