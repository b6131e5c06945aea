//! Templates: one for each combination of headers, numbered as in Open vSwitch.

use super::wire::{Message, OPTIONS};
use super::{Addresses, Sample, Transport};
use std::time::Duration;

/// The number of the first template (RFC 7011 §3.4.1).
const FIRST: u16 = 256;

/// The number of the options template of the exporter's own counts.
const OWN_COUNTS: u16 = 462;

/// The observation domain of these counts.
pub(super) const OWN_DOMAIN: u32 = 0;

/// The enterprise whose information elements describe tunnels, and the name of `virtual_obs_id`
/// (VMware).
const ENTERPRISE: u32 = 6876;

/// The length of a field that has its length before it.
const VARIABLE: u16 = 0xffff;

/// Which fields a record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) tagged: bool,
    pub(super) network: Network,
    pub(super) transport: Protocol,
    tunnel: bool,
    output: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Network {
    Other,
    V4,
    V6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Other,
    Tcp,
    Udp,
    Sctp,
    Icmp,
}

impl Kind {
    pub(super) fn of(sample: &Sample<'_>) -> Kind {
        let ip = sample.headers.ip;
        Kind {
            tagged: sample.headers.tci.is_some(),
            network: match ip.map(|ip| ip.addresses) {
                None => Network::Other,
                Some(Addresses::V4(..)) => Network::V4,
                Some(Addresses::V6(..)) => Network::V6,
            },
            transport: match ip.map(|ip| ip.transport) {
                None | Some(Transport::Other) => Protocol::Other,
                Some(Transport::Tcp(..)) => Protocol::Tcp,
                Some(Transport::Udp(..)) => Protocol::Udp,
                Some(Transport::Sctp(..)) => Protocol::Sctp,
                Some(Transport::Icmp(..)) => Protocol::Icmp,
            },
            tunnel: sample.tunnel.is_some_and(|tunnel| tunnel.of_ipfix().is_some()),
            output: sample.output.is_some(),
        }
    }

    /// The number of its template.
    pub(super) fn number(self) -> u16 {
        let mut number = u16::from(self.tagged) * 3 + self.network as u16;
        number = number * 5 + self.transport as u16;
        FIRST + number * 4 + u16::from(self.tunnel) * 2 + u16::from(self.output)
    }

    fn fields(self, virtual_obs_id: bool) -> Vec<Field> {
        // Observation point, direction, addresses, type, length of the Ethernet header.
        let mut fields = own(&[(138, 4), (61, 1), (56, 6), (80, 6), (256, 2), (240, 1)]);
        // Number, type, name and description of an interface.
        fields.extend(own(&[(10, 4), (368, 4), (82, VARIABLE), (83, VARIABLE)]));
        if self.output {
            fields.extend(own(&[(14, 4), (369, 4), (82, VARIABLE), (83, VARIABLE)]));
        }
        if self.tagged {
            fields.extend(own(&[(58, 2), (243, 2), (244, 1)]));
        }
        if self.network != Network::Other {
            // Version, time to live, protocol, DSCP, precedence, type of service.
            fields.extend(own(&[(60, 1), (192, 1), (4, 1), (195, 1), (196, 1), (5, 1)]));
        }
        match self.network {
            Network::Other => {}
            Network::V4 => fields.extend(own(&[(8, 4), (12, 4)])),
            Network::V6 => fields.extend(own(&[(27, 16), (28, 16), (31, 4)])),
        }
        match (self.transport, self.network) {
            (Protocol::Other, _) => {}
            (Protocol::Icmp, Network::V6) => fields.extend(own(&[(178, 1), (179, 1)])),
            (Protocol::Icmp, _) => fields.extend(own(&[(176, 1), (177, 1)])),
            _ => fields.extend(own(&[(7, 2), (11, 2)])),
        }
        if self.tunnel {
            // Addresses, protocol, ports, type and key.
            for (number, len) in [
                (893, 4),
                (894, 4),
                (895, 1),
                (896, 2),
                (897, 2),
                (891, 1),
                (892, VARIABLE),
            ] {
                fields.push(Field::of_enterprise(number, len));
            }
        }
        if virtual_obs_id {
            fields.push(Field::of_enterprise(898, VARIABLE));
        }
        self.counts(&mut fields);
        fields
    }

    /// The fields of [`Counts`](super::Counts), in their order.
    fn counts(self, fields: &mut Vec<Field>) {
        fields.extend(own(&[(158, 4), (159, 4)]));
        for number in [133, 135, 2, 86, 354, 355, 356, 357, 358, 19, 174, 352, 353] {
            fields.push(Field::own(number, 8));
        }
        fields.push(Field::own(136, 1));
        if self.network != Network::Other {
            for number in [132, 134, 1, 85, 198, 199, 25, 26, 20, 175] {
                fields.push(Field::own(number, 8));
            }
        }
        if self.transport == Protocol::Tcp {
            for number in [222, 219, 221, 220, 218, 223] {
                fields.push(Field::own(number, 8));
            }
        }
    }
}

/// A field of a template (RFC 7011 §3.2).
struct Field {
    number: u16,
    len: u16,
    enterprise: Option<u32>,
}

impl Field {
    fn own(number: u16, len: u16) -> Field {
        Field {
            number,
            len,
            enterprise: None,
        }
    }

    fn of_enterprise(number: u16, len: u16) -> Field {
        Field {
            number,
            len,
            enterprise: Some(ENTERPRISE),
        }
    }
}

fn own(fields: &[(u16, u16)]) -> Vec<Field> {
    fields.iter().map(|(number, len)| Field::own(*number, *len)).collect()
}

/// All templates, as records of a template set.
pub(super) fn templates(virtual_obs_id: bool) -> Vec<Vec<u8>> {
    use Network as N;
    use Protocol as P;
    let mut all = Vec::new();
    for tagged in [false, true] {
        for network in [N::Other, N::V4, N::V6] {
            let transports = match network {
                N::Other => &[P::Other][..],
                _ => &[P::Other, P::Tcp, P::Udp, P::Sctp, P::Icmp],
            };
            for transport in transports {
                for (tunnel, output) in [(false, false), (false, true), (true, false), (true, true)] {
                    let kind = Kind {
                        tagged,
                        network,
                        transport: *transport,
                        tunnel,
                        output,
                    };
                    all.push(template(kind.number(), &kind.fields(virtual_obs_id)));
                }
            }
        }
    }
    all
}

fn template(number: u16, fields: &[Field]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + 8 * fields.len());
    out.extend(number.to_be_bytes());
    out.extend((fields.len() as u16).to_be_bytes());
    for field in fields {
        let mark = if field.enterprise.is_some() { 0x8000 } else { 0 };
        out.extend((field.number | mark).to_be_bytes());
        out.extend(field.len.to_be_bytes());
        if let Some(enterprise) = field.enterprise {
            out.extend(enterprise.to_be_bytes());
        }
    }
    out
}

/// The message with the template of the exporter's own counts: records that were not sent
/// (notSentPacketTotalCount), of an exporting process.
pub(super) fn options(wall: Duration, sequence: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for half in [OWN_COUNTS, 2, 1, 144, 4, 167, 8] {
        out.extend(u16::to_be_bytes(half));
    }
    let mut message = Message::new(wall, sequence, OWN_DOMAIN);
    message.record(OPTIONS, &out);
    message.finish()
}

/// The message with these counts.
pub(super) fn own_counts(wall: Duration, sequence: u32, lost: u64) -> Vec<u8> {
    const PROCESS: u32 = 1;
    let mut message = Message::new(wall, sequence, OWN_DOMAIN);
    let record = [&PROCESS.to_be_bytes()[..], &lost.to_be_bytes()].concat();
    message.record(OWN_COUNTS, &record);
    message.finish()
}
