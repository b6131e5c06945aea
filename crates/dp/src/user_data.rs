//! What the switch knows of a punt by its handle, printed as the "userspace" action of Open
//! vSwitch's datapaths.

use std::fmt::{self, Write};

/// The switch's data about a punt, for printing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserData {
    /// A copy for controllers.
    Controller(ToController),
    /// A sample for collectors.
    Sample(SampleData),
}

/// What a sample is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SampleData {
    /// sFlow of a bridge.
    Sflow {
        /// The tag control information with which the packet leaves.
        tci: u16,
        /// Where it leaves, in the format of an sFlow flow sample's output interface.
        output: u32,
        /// The MPLS labels with which it leaves, if the switch has pushed all of them.
        labels: Labels,
    },
    /// IPFIX of a bridge.
    Ipfix {
        /// The datapath port that the packet leaves by; `u32::MAX` for a packet that was received.
        output_port: u32,
        /// Whether a received packet is sent nowhere.
        dropped: bool,
    },
    /// The action `sample`.
    Flow(FlowSample),
}

/// The parameters of the action `sample` (ovs-actions(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlowSample {
    /// The probability, of 65535.
    pub probability: u16,
    /// The set of collectors.
    pub collector_set: u32,
    /// The observation domain.
    pub domain: u32,
    /// The observation point.
    pub point: u32,
    /// The datapath port of `sampling_port`; `u32::MAX` for none.
    pub output_port: u32,
    /// Whether that port is a tunnel, whose outer headers the sample has.
    pub tunnel_out: bool,
    /// Which side of the port the sample belongs to, where the action says so.
    pub direction: Option<Direction>,
}

/// A side of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Packets that come in.
    Ingress,
    /// Packets that leave.
    Egress,
}

/// The switch's data about a punt to a controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToController {
    /// The reason, as in a packet-in message.
    pub reason: u8,
    /// The packet is only continued; the controller gets no copy.
    pub dont_send: bool,
    /// The controller may resume the packet.
    pub continuation: bool,
    /// The recirculation id of the continuation.
    pub recirc_id: u32,
    /// The cookie of the rule.
    pub cookie: u64,
    /// The controller's number.
    pub controller_id: u16,
    /// The length limit of the action, if it is not the default.
    pub max_len: Option<u16>,
}

impl ToController {
    /// For a handle about which the switch has no data.
    pub(crate) fn unknown(handle: u32) -> ToController {
        ToController {
            reason: 1,
            recirc_id: handle,
            ..ToController::default()
        }
    }
}

impl UserData {
    /// Prints the action; `max_len` is the one of the punt.
    pub(crate) fn userspace(&self, f: &mut fmt::Formatter<'_>, max_len: u16) -> fmt::Result {
        match self {
            UserData::Controller(to) => controller(f, to, max_len),
            UserData::Sample(sample) => write!(f, "{sample}"),
        }
    }
}

/// A stack of MPLS labels (RFC 3032).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Labels {
    entries: [u32; Labels::MOST],
    len: u8,
}

impl Labels {
    /// The most labels of a stack.
    pub const MOST: usize = 3;

    /// The stack of a packet without labels after these actions; empty if it has more than
    /// [`Labels::MOST`], or if the actions change labels that it had before.
    pub fn pushed(actions: &[crate::Action]) -> Labels {
        use crate::Action;
        let mut labels = Labels::default();
        for action in actions {
            let done = match action {
                Action::PushMpls { lse, .. } if usize::from(labels.len) < Labels::MOST => {
                    labels.entries.rotate_right(1);
                    labels.entries[0] = *lse;
                    labels.len += 1;
                    true
                }
                Action::PopMpls { .. } if labels.len > 0 => {
                    labels.entries.rotate_left(1);
                    labels.len -= 1;
                    labels.entries[usize::from(labels.len)] = 0;
                    true
                }
                Action::SetMpls { lse, mask } if labels.len > 0 => {
                    labels.entries[0] = labels.entries[0] & !mask | lse & mask;
                    true
                }
                Action::PushMpls { .. } | Action::PopMpls { .. } | Action::SetMpls { .. } => false,
                _ => true,
            };
            if !done {
                return Labels::default();
            }
        }
        labels
    }

    /// The entries, the outermost first.
    pub fn entries(&self) -> &[u32] {
        &self.entries[..usize::from(self.len)]
    }
}

impl fmt::Display for SampleData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SampleData::Sflow { tci, output, .. } => {
                let (vid, pcp) = (tci & 0xfff, tci >> 13);
                write!(f, "userspace(pid=0,sFlow(vid={vid},pcp={pcp},output={output}),actions)")
            }
            SampleData::Ipfix { output_port, .. } => write!(f, "userspace(pid=0,ipfix(output_port={output_port}))"),
            SampleData::Flow(sample) => {
                write!(
                    f,
                    "userspace(pid=0,flow_sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={},\
                     output_port={}",
                    sample.probability, sample.collector_set, sample.domain, sample.point, sample.output_port
                )?;
                f.write_str(match sample.direction {
                    None => ")",
                    Some(Direction::Ingress) => ",ingress)",
                    Some(Direction::Egress) => ",egress)",
                })?;
                if sample.tunnel_out {
                    write!(f, ",tunnel_out_port={}", sample.output_port)?;
                }
                f.write_str(")")
            }
        }
    }
}

fn controller(f: &mut fmt::Formatter<'_>, to: &ToController, max_len: u16) -> fmt::Result {
    write!(
        f,
        "userspace(pid=0,controller(reason={},dont_send={},continuation={},recirc_id={},rule_cookie=",
        to.reason,
        u8::from(to.dont_send),
        u8::from(to.continuation),
        to.recirc_id
    )?;
    match to.cookie {
        0 => f.write_char('0')?,
        cookie => write!(f, "0x{cookie:x}")?,
    }
    let max_len = to.max_len.unwrap_or(max_len);
    write!(f, ",controller_id={},max_len={max_len}))", to.controller_id)
}
