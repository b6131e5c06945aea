//! Reading actions that send packets to ports and controllers.

use super::action_args::{hash_fields, note, subfield, writable};
use super::action_in::{Parsed, Reader, error, output};
use super::action_out::REASONS;
use super::{ParseError, number, token};
use crate::model::*;

impl Reader<'_> {
    pub(super) fn output(&self, text: &str) -> Parsed<Action> {
        if let Some(to) = self.port(text) {
            return Ok(output(to));
        }
        if text.contains("port") && text.contains("max_len") {
            let (mut to, mut max_len) = (None, 0);
            let mut rest = text;
            while let Some(pair) = token::next(&mut rest) {
                match pair.key {
                    "port" => match self.port(pair.value) {
                        Some(port @ (Port::LOCAL | Port::IN_PORT)) => to = Some(port),
                        Some(port) if port.0 < 0xff00 => to = Some(port),
                        Some(_) => return error(format!("output to unsupported truncate port: {}", pair.value)),
                        None => return error(format!("output to unknown truncate port: {}", pair.value)),
                    },
                    "max_len" => max_len = number::u32(pair.value)?,
                    key => return error(format!("invalid key '{key}' in output_trunc argument")),
                }
            }
            let Some(port) = to else {
                return error("output_trunc requires a port");
            };
            return match max_len {
                0..14 => error(format!("max_len {max_len} is less than the minimum value 14")),
                _ => Ok(Action::OutputTrunc { port, max_len }),
            };
        }
        match subfield(text) {
            Ok(src) => Ok(Action::OutputReg {
                src,
                max_len: MAX_LEN_WHOLE,
            }),
            Err(_) if never_a_port(text) => Err(bad_out_port()),
            Err(_) => error(format!("{text}: output to unknown port")),
        }
    }

    pub(super) fn controller(&self, text: &str) -> Parsed<Controller> {
        let mut c = Controller::default();
        if text.is_empty() {
            return Ok(c);
        }
        if let Some(max_len) = number::unsigned(text) {
            let Ok(max_len) = u16::try_from(max_len) else {
                return error(format!("invalid max_len \"{text}\""));
            };
            c.max_len = max_len;
            return Ok(c);
        }
        let mut rest = text;
        while let Some(pair) = token::next(&mut rest) {
            let value = pair.value;
            match pair.key {
                "reason" => match REASONS.iter().position(|r| *r == value) {
                    Some(reason) => c.reason = reason as u8,
                    None => return error(format!("unknown reason \"{value}\"")),
                },
                "max_len" => c.max_len = number::named(value, "max_len")?,
                "id" => c.id = number::named(value, "id")?,
                "userdata" => match note(value) {
                    Ok(bytes) => c.userdata = bytes,
                    Err(_) => return error("bad hex digit in `controller' action `userdata'"),
                },
                "pause" => c.pause = true,
                "meter_id" => c.meter = Some(number::u32(value)?),
                key => return error(format!("unknown key \"{key}\" parsing controller action")),
            }
        }
        Ok(c)
    }

    pub(super) fn enqueue(&self, text: &str) -> Parsed<Action> {
        const SYNTAX: &str = "\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"";
        let Some((to, queue)) = text.split_once([':', ',']) else {
            return error(SYNTAX);
        };
        let Some(port) = self.port(to.trim()) else {
            return error(format!("{to}: enqueue to unknown port"));
        };
        Ok(Action::Enqueue {
            port,
            queue: number::u32(queue.trim())?,
        })
    }

    pub(super) fn bundle(&self, text: &str, load: bool) -> Parsed<Action> {
        let wanted = if load { 5 } else { 4 };
        let (head, members) = match text.split_once("members:").or_else(|| text.split_once("slaves:")) {
            Some((head, members)) => (token::parts(head), token::parts(members)),
            None => match token::parts(text).get(wanted) {
                Some(other) => {
                    let word = other.split(':').next().unwrap_or("");
                    return error(format!(
                        "{text}: missing member delimiter, expected `members', got `{word}'"
                    ));
                }
                None => return error(format!("{text}: not enough arguments to bundle action")),
            },
        };
        if head.len() < wanted {
            return error(format!("{text}: not enough arguments to bundle action"));
        }
        let algorithm = match head[2] {
            "active_backup" => BundleAlgorithm::ActiveBackup,
            "hrw" => BundleAlgorithm::Hrw,
            other => return error(format!("{text}: unknown algorithm `{other}'")),
        };
        if head[3] != "ofport" {
            return error(format!("{text}: unknown member_type `{}'", head[3]));
        }
        let members = members.into_iter().map(|m| match self.port(m) {
            Some(port) => Ok(port),
            None => error(format!("{m}: bad port number")),
        });
        Ok(Action::Bundle(Bundle {
            algorithm,
            fields: hash_fields(head[0], text)?,
            basis: number::named(head[1], "basis")?,
            members: members.collect::<Result<_, _>>()?,
            dst: if load {
                Some(writable(subfield(head[4])?)?)
            } else {
                None
            },
        }))
    }
}

/// Whether a text is one of the decimal numbers that OpenFlow 1.0 reserves and no port uses.
pub(super) fn never_a_port(text: &str) -> bool {
    matches!(text.parse::<u32>(), Ok(0xff00..=0xfff7))
}

/// That packets cannot leave by a port.
pub(super) fn bad_out_port() -> ParseError {
    ParseError::new("actions are invalid with specified match (OFPBAC_BAD_OUT_PORT)")
}
