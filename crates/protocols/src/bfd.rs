//! Bidirectional Forwarding Detection (RFC 5880): the control packet. The session that uses it is
//! not written yet.

pub mod wire;

#[cfg(test)]
mod tests;
