//! Requests about the connection itself: configuration, roles, formats.

use crate::agent::Core;
use crate::conn::{Conn, Kind};
use crate::env::Env;
use crate::events::Effect;
use openflow::model::{Body, Config, Role, RoleMsg};
use openflow::{OfError, Version};
use switch::FragMode;

/// The bits of a switch configuration: the fragment mode, and a flag of old versions.
const FRAGMENTS: u16 = 3;
const INVALID_TTL_TO_CONTROLLER: u16 = 4;
/// Its bit in a mask of packet-in reasons.
const INVALID_TTL: u32 = 1 << 2;

/// Whether the switch configuration controls packet-ins for an invalid TTL; later versions use
/// `OFPT_SET_ASYNC`. In OpenFlow 1.0 this is an extension of Open vSwitch.
fn has_ttl_flag(version: Option<Version>) -> bool {
    version.is_some_and(|version| version <= Version::V12)
}
const FRAGMENTS_DROP: u16 = 1;
const FRAGMENTS_NX_MATCH: u16 = 3;

impl Core {
    pub(crate) fn get_config(&self, conn: &mut Conn, xid: u32) {
        let fragments = match self.fragments {
            FragMode::Normal => 0,
            FragMode::Drop => FRAGMENTS_DROP,
            FragMode::NxMatch => FRAGMENTS_NX_MATCH,
        };
        let told = has_ttl_flag(conn.version()) && conn.masks().packet_in[0] & INVALID_TTL != 0;
        let config = Config {
            flags: fragments | if told { INVALID_TTL_TO_CONTROLLER } else { 0 },
            miss_send_len: conn.miss_send_len,
        };
        conn.send(xid, Body::GetConfigReply(config));
    }

    pub(crate) fn set_config(&mut self, conn: &mut Conn, config: Config, env: &impl Env) -> Result<(), OfError> {
        let known = match has_ttl_flag(conn.version()) {
            true => FRAGMENTS | INVALID_TTL_TO_CONTROLLER,
            false => FRAGMENTS,
        };
        if config.flags & !known != 0 {
            return Err(OfError::ScfcBadFlags);
        }
        let may = conn.options.kind != Kind::Primary || conn.role != Role::Slave;
        if may {
            let mode = match config.flags & FRAGMENTS {
                0 => FragMode::Normal,
                FRAGMENTS_DROP => FragMode::Drop,
                FRAGMENTS_NX_MATCH => FragMode::NxMatch,
                // Fragment reassembly is not supported. As in Open vSwitch, that is no error; the
                // reply to a get-config request shows the mode in use.
                _ => self.fragments,
            };
            if mode != self.fragments {
                let bridge = &self.config.bridge;
                env.change(|switch, _| ((), switch.set_frag_mode(bridge, mode)));
                self.fragments = mode;
            }
        }
        if has_ttl_flag(conn.version()) {
            let mut masks = conn.masks();
            masks.packet_in[0] &= !INVALID_TTL;
            if config.flags & INVALID_TTL_TO_CONTROLLER != 0 {
                masks.packet_in[0] |= INVALID_TTL;
            }
            conn.masks = Some(masks);
        }
        self.effects.push(Effect::ListenersChanged);
        conn.miss_send_len = config.miss_send_len;
        Ok(())
    }

    pub(crate) fn role(&mut self, conn: &mut Conn, xid: u32, asked: RoleMsg) -> Result<(), OfError> {
        if asked.role != Role::NoChange {
            if asked.role != Role::Equal
                && let Some(generation) = asked.generation
            {
                // Generation ids wrap around; a negative difference is older (OpenFlow 1.3.5
                // §6.3.6).
                let older = |seen: u64| (generation.wrapping_sub(seen) as i64) < 0;
                if self.generation.is_some_and(older) {
                    return Err(OfError::RrfcStale);
                }
                self.generation = Some(generation);
            }
            if asked.role == Role::Master {
                self.effects.push(Effect::NewMaster(conn.id));
            }
            conn.role = asked.role;
            self.effects.push(Effect::ListenersChanged);
        }
        let reply = RoleMsg {
            role: conn.role,
            generation: (!asked.nicira).then(|| self.generation.unwrap_or(u64::MAX)),
            nicira: asked.nicira,
            short_id: 0,
        };
        conn.send(xid, Body::RoleReply(reply));
        Ok(())
    }
}
