//! A bond that drops packets: a port of two sinks in balance-tcp, which needs LACP, and a partner
//! that only speaks LACP.
//!
//! A sink receives nothing. So the partner's LACPDUs come from a controller, with a member as their
//! ingress port, to which both switches listen as to received ones.

use super::rules::SINK;
use crate::controller::Connection;
use anyhow::Result;
use openflow::model::{Body, Match, PacketOut, Port};
use protocols::lacp::wire::{Info, SlowFrame, State};
use std::fmt::Write;
use wire::MacAddr;

/// The partner's address.
const PARTNER: MacAddr = MacAddr([0x02, 3, 0, 0, 0, 1]);

/// Arguments of `ovs-vsctl` for a bond of these devices, whose numbers begin at [`SINK`]. Open
/// vSwitch chooses members without a recirculation only if it is told to.
pub(crate) fn port(name: &str, devices: &[String]) -> String {
    let members: Vec<String> = (1..=devices.len()).map(|number| format!("{name}{number}")).collect();
    let mut line = format!(
        "add-bond br0 {name} {} bond_mode=balance-tcp lacp=active other_config:lb-output-action=true",
        members.join(" ")
    );
    for ((number, member), device) in (SINK..).zip(&members).zip(devices) {
        // Writing to a string does not fail.
        let _ = write!(line, " -- set interface {member} ofport_request={number} {device}");
    }
    line
}

/// Sends the LACPDUs of the partner to all members. They count for 90 seconds.
///
/// # Errors
/// The connection is broken, or the switch refuses.
pub(crate) fn speak(connection: &mut Connection, members: u32) -> Result<()> {
    for port in SINK..SINK + members {
        connection.send(Body::PacketOut(Box::new(PacketOut {
            buffer_id: None,
            in_port: Port(port),
            metadata: Match::ANY,
            actions: Vec::new(),
            data: lacpdu(port as u16),
        })))?;
    }
    let refused = connection.barrier()?;
    anyhow::ensure!(refused.is_empty(), "the switch takes no LACPDU: {refused:?}");
    Ok(())
}

/// What the partner says at its port of this number: the link is aggregated and in use.
fn lacpdu(port: u16) -> Vec<u8> {
    let state = [
        State::ACTIVITY,
        State::AGGREGATION,
        State::SYNCHRONIZED,
        State::COLLECTING,
        State::DISTRIBUTING,
    ];
    let actor = Info {
        system_priority: 0x8000,
        system: PARTNER,
        key: 1,
        port_priority: 0x8000,
        port,
        state: state.into_iter().fold(State::default(), |all, bit| all.with(bit, true)),
    };
    let partner = Info::default();
    SlowFrame::Lacp { actor, partner }.emit(PARTNER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_numbers_and_devices_of_their_own() {
        let line = port("sink", &["type=null".to_owned(), "type=dpdk".to_owned()]);
        assert!(line.starts_with("add-bond br0 sink sink1 sink2 "), "{line}");
        assert!(
            line.contains("-- set interface sink1 ofport_request=100 type=null -- "),
            "{line}"
        );
        assert!(
            line.ends_with("-- set interface sink2 ofport_request=101 type=dpdk"),
            "{line}"
        );
    }

    #[test]
    fn a_partner_speaks_for_a_link_in_use() {
        let Ok(SlowFrame::Lacp { actor, .. }) = SlowFrame::parse(&lacpdu(101)) else {
            panic!("no LACPDU");
        };
        assert_eq!((actor.port, actor.system), (101, PARTNER));
        assert_eq!(
            actor.state.to_string(),
            "activity aggregation synchronized collecting distributing"
        );
    }
}
