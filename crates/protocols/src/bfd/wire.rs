//! The BFD control packet (RFC 5880 §4.1), the payload of UDP port 3784 (RFC 5881 §4).
//!
//! Parsing makes every check of §6.8.6 that needs no session. Authentication is not supported, as
//! in Open vSwitch: a packet that carries it is refused.

/// Length of a control packet without authentication.
pub const LENGTH: usize = 24;
const VERSION: u8 = 1;
const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATION: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

/// State of a session (§4.1, `Sta`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Held down by an administrator.
    AdminDown,
    /// Down, or just created.
    Down,
    /// The peer is heard, and has not said that it hears us.
    Init,
    /// Both ends hear each other.
    Up,
}

impl State {
    /// The name in `bfd_status`.
    pub const fn name(self) -> &'static str {
        match self {
            State::AdminDown => "admin_down",
            State::Down => "down",
            State::Init => "init",
            State::Up => "up",
        }
    }
}

/// Why a session's state last changed (§4.1, `Diag`).
pub mod diagnostic {
    /// Nothing has happened yet.
    pub const NONE: u8 = 0;
    /// No packet came within the detection time.
    pub const EXPIRED: u8 = 1;
    /// The other end's session is down.
    pub const NEIGHBOR_DOWN: u8 = 3;
    /// The path below is down.
    pub const PATH_DOWN: u8 = 5;
    /// The path behind the sender is down (RFC 5882 §4).
    pub const CONCATENATED_PATH_DOWN: u8 = 6;
    /// An administrator has ended the session.
    pub const ADMIN_DOWN: u8 = 7;
    /// The path behind the sender is down in the other direction.
    pub const REVERSE_CONCATENATED_PATH_DOWN: u8 = 8;

    /// The text in `bfd_status`.
    pub const fn text(diagnostic: u8) -> &'static str {
        match diagnostic {
            NONE => "No Diagnostic",
            EXPIRED => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            NEIGHBOR_DOWN => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            PATH_DOWN => "Path Down",
            CONCATENATED_PATH_DOWN => "Concatenated Path Down",
            ADMIN_DOWN => "Administratively Down",
            REVERSE_CONCATENATED_PATH_DOWN => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        }
    }
}

/// A control packet that is well-formed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Why the sender's state last changed (§4.1, `Diag`): 0 to 31, 9 and more are reserved.
    pub diagnostic: u8,
    /// State of the sender's session.
    pub state: State,
    /// The sender waits for a packet with `Final`.
    pub poll: bool,
    /// Answers a packet with `Poll`.
    pub is_final: bool,
    /// The sender's BFD survives a failure of its control plane.
    pub control_plane_independent: bool,
    /// The sender wants the peer to stop its periodic packets.
    pub demand: bool,
    /// Intervals without a packet after which the peer counts as lost: never 0.
    pub multiplier: u8,
    /// The sender's discriminator: never 0.
    pub my_discriminator: u32,
    /// The discriminator that the sender received, 0 if none.
    pub your_discriminator: u32,
    /// Interval at which the sender would like to send, in microseconds.
    pub desired_min_tx: u32,
    /// Shortest interval at which the sender can receive, in microseconds.
    pub required_min_rx: u32,
    /// Shortest interval of echo packets that the sender supports, in microseconds; 0 for none.
    pub required_min_echo_rx: u32,
}

/// Why a packet was refused (§6.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Shorter than the header, or than its length field says; or that field is too small.
    Length,
    /// Not version 1.
    Version,
    /// The detection multiplier is 0.
    Multiplier,
    /// The multipoint bit is set.
    Multipoint,
    /// Carries authentication.
    Authentication,
    /// The sender's discriminator is 0, or the receiver's is 0 in a state that needs it.
    Discriminator,
}

impl Packet {
    /// Reads the payload of a UDP datagram. Octets behind the packet's own length are ignored.
    ///
    /// # Errors
    /// Says which check of §6.8.6 failed.
    pub fn parse(payload: &[u8]) -> Result<Packet, Malformed> {
        let header: &[u8; LENGTH] = payload.first_chunk().ok_or(Malformed::Length)?;
        let [first, flags, multiplier, length, ..] = *header;
        if first >> 5 != VERSION {
            return Err(Malformed::Version);
        }
        if usize::from(length) < LENGTH || usize::from(length) > payload.len() {
            return Err(Malformed::Length);
        }
        if multiplier == 0 {
            return Err(Malformed::Multiplier);
        }
        if flags & MULTIPOINT != 0 {
            return Err(Malformed::Multipoint);
        }
        if flags & AUTHENTICATION != 0 {
            return Err(Malformed::Authentication);
        }
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let state = match flags >> 6 {
            0 => State::AdminDown,
            1 => State::Down,
            2 => State::Init,
            _ => State::Up,
        };
        let (my_discriminator, your_discriminator) = (word(4), word(8));
        let needs_yours = matches!(state, State::Init | State::Up);
        if my_discriminator == 0 || (your_discriminator == 0 && needs_yours) {
            return Err(Malformed::Discriminator);
        }
        Ok(Packet {
            diagnostic: first & 0x1f,
            state,
            poll: flags & POLL != 0,
            is_final: flags & FINAL != 0,
            control_plane_independent: flags & CONTROL_PLANE_INDEPENDENT != 0,
            demand: flags & DEMAND != 0,
            multiplier,
            my_discriminator,
            your_discriminator,
            desired_min_tx: word(12),
            required_min_rx: word(16),
            required_min_echo_rx: word(20),
        })
    }

    /// Writes the packet. Of the diagnostic, the low five bits count.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; LENGTH] {
        let bit = |set: bool, mask: u8| if set { mask } else { 0 };
        let mut out = [0; LENGTH];
        out[0] = VERSION << 5 | (self.diagnostic & 0x1f);
        out[1] = (self.state as u8) << 6
            | bit(self.poll, POLL)
            | bit(self.is_final, FINAL)
            | bit(self.control_plane_independent, CONTROL_PLANE_INDEPENDENT)
            | bit(self.demand, DEMAND);
        out[2] = self.multiplier;
        out[3] = 24;
        out[4..8].copy_from_slice(&self.my_discriminator.to_be_bytes());
        out[8..12].copy_from_slice(&self.your_discriminator.to_be_bytes());
        out[12..16].copy_from_slice(&self.desired_min_tx.to_be_bytes());
        out[16..20].copy_from_slice(&self.required_min_rx.to_be_bytes());
        out[20..24].copy_from_slice(&self.required_min_echo_rx.to_be_bytes());
        out
    }
}
