//! What a datapath does with a packet.

use flow::PortNo;
use std::fmt;
use wire::VlanTag;

/// One step of a packet's way through a datapath; an empty list drops the packet.
///
/// Steps run in order on one packet: a tag pushed by one step is on the packet for all later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send the packet, as it is at this point, out of a port.
    Output(PortNo),
    /// Insert a VLAN tag (IEEE 802.1Q §9.6) behind the source address, outside any tag that is there.
    PushVlan(VlanTag),
    /// Remove the outermost VLAN tag; nothing happens to a packet without one.
    PopVlan,
}

/// Prints as `ovs-dpctl dump-flows` prints datapath actions.
impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::Output(port) => write!(f, "{}", port.0),
            Action::PopVlan => f.write_str("pop_vlan"),
            Action::PushVlan(tag) => {
                f.write_str("push_vlan(")?;
                if tag.tpid != 0x8100 {
                    write!(f, "tpid=0x{:04x},", tag.tpid)?;
                }
                write!(f, "vid={},pcp={})", tag.tci & 0xfff, tag.tci >> 13)
            }
        }
    }
}
