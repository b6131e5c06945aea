//! Geneve options of packets, as the fields that a controller has mapped them to.
//!
//! The switch reads the options of a received packet with the map of its tunnel port's bridge, and
//! writes those of a packet to send into its actions.

use flow::{BadOption, OptionMap, OptionWords};
use tunnel::format::geneve::{Options, OptionsBuffer};
use tunnel::format::{EncapsulateError, Refusal};

/// The mapped options of a received packet.
///
/// # Errors
/// [`Refusal::GeneveCritical`] and [`Refusal::GeneveOptionLength`]: the packet has to be dropped.
pub fn receive(map: &OptionMap, options: Options<'_>) -> Result<OptionWords, Refusal> {
    let all = options.iter().map(|option| (option.class, option.kind, option.data));
    map.receive(all).map_err(|bad| match bad {
        BadOption::Critical => Refusal::GeneveCritical,
        BadOption::Length => Refusal::GeneveOptionLength,
    })
}

/// The options of a packet to send, in the order of the map.
///
/// # Errors
/// [`EncapsulateError::Options`] if they are longer than a header has room for: a map has room for
/// more than the 252 bytes of one (RFC 8926 §3.4).
pub fn send(map: &OptionMap, words: &OptionWords) -> Result<OptionsBuffer, EncapsulateError> {
    let mut buffer = OptionsBuffer::default();
    map.send(words, |class, kind, data| buffer.push(class, kind, data))?;
    Ok(buffer)
}
