//! Notices about texts: conditions that are left out of a match because it lacks their
//! prerequisites, and numbers out of range.

use super::{Style, matching};
use crate::check::{Lacking, Role};
use crate::model::{Entry, Match};
use flow::{MatchField as F, MatchPrerequisite as P};
use std::sync::{Arc, Mutex, PoisonError};

/// A match that lost conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// The match as it was asked for, as text. Addresses of IPv6, ARP and neighbor discovery have
    /// no words without their protocol.
    pub pre: String,
    /// The remaining match, as text.
    pub post: String,
}

/// What a text says that has no effect, or another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A match lost conditions.
    LeftOut(LeftOut),
    /// A number with a warning.
    Warning {
        /// The module that logs it.
        module: &'static str,
        /// The warning.
        text: String,
    },
}

/// Collects notices about texts that are parsed; off by default. Clones share the
/// collection. All compare equal, since they do not change the result of parsing.
#[derive(Clone, Debug, Default)]
pub struct Notices(Option<Arc<Mutex<Vec<Notice>>>>);

impl PartialEq for Notices {
    fn eq(&self, _: &Notices) -> bool {
        true
    }
}

impl Eq for Notices {}

impl Notices {
    /// Somebody listens.
    pub fn heard() -> Notices {
        Notices(Some(Arc::default()))
    }

    /// The notices since the last call, in order.
    pub fn take(&self) -> Vec<Notice> {
        let Some(list) = &self.0 else { return Vec::new() };
        std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Records a warning.
    pub(super) fn warn(&self, module: &'static str, text: impl FnOnce() -> String) {
        if let Some(list) = &self.0 {
            let warning = Notice::Warning { module, text: text() };
            list.lock().unwrap_or_else(PoisonError::into_inner).push(warning);
        }
    }

    /// Records that the packets of a rule lack what an action needs.
    pub(super) fn lacking(&self, lacking: Lacking) {
        let (module, what) = match lacking.role {
            Role::Set => ("ofp_actions", "set_field"),
            Role::Delete => ("ofp_actions", "delete_field"),
            Role::Source => ("meta_flow", "source field"),
            Role::Destination => ("meta_flow", "destination field"),
        };
        let name = lacking.field.name();
        self.warn(module, || format!("{what} {name} lacks correct prerequisites"));
    }

    /// The match as it was requested, if a notice may be needed.
    pub(super) fn before(&self, asked: &Match) -> Option<Match> {
        (self.0.is_some() && !asked.is_normal()).then(|| asked.clone())
    }

    /// Records the conditions of the requested match that `post` lacks.
    pub(super) fn tell(&self, asked: Option<Match>, post: &Match) {
        let (Some(list), Some(asked)) = (&self.0, asked) else {
            return;
        };
        let lost = |entry: &&Entry| post.get(entry.field).is_none() && !silent(entry.field);
        if asked.entries().iter().filter(lost).count() == 0 {
            return;
        }
        let mut pre = asked;
        let unsaid: Vec<F> = pre.entries().iter().map(|e| e.field).collect();
        for field in unsaid {
            if post.get(field).is_none() && !has_words(field, &pre) {
                pre.clear(field);
            }
        }
        let mut text = matching(&pre, Style::PLAIN);
        if !pre.meets(P::Icmpv4) && !pre.meets(P::Icmpv6) {
            text = text.replace("icmp_type=", "tp_src=").replace("icmp_code=", "tp_dst=");
        }
        if !pre.meets(P::Arp) {
            for (of_arp, older) in [
                ("arp_op=", "nw_proto="),
                ("arp_spa=", "nw_src="),
                ("arp_tpa=", "nw_dst="),
            ] {
                text = text.replace(of_arp, older);
            }
        }
        let left_out = LeftOut {
            pre: text,
            post: matching(post, Style::PLAIN),
        };
        list.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Notice::LeftOut(left_out));
    }
}

/// Whether to leave out a field without a notice.
fn silent(field: F) -> bool {
    matches!(field, F::TcpFlags | F::IpFrag | F::CtTpSrc | F::CtTpDst)
}

/// Whether a condition on a field can be sent without its prerequisites: OpenFlow 1.0's fields can,
/// under their old names.
fn has_words(field: F, m: &Match) -> bool {
    match field {
        F::IpSrc | F::IpDst | F::ArpSpa | F::ArpTpa => !m.meets(P::Ipv6) && (m.meets(P::Ip) || !m.meets(P::Arp)),
        F::ArpOp => true,
        _ => match field.info().prerequisite {
            P::Ipv6 | P::Arp => false,
            P::Nd | P::NdSolicit | P::NdAdvert => m.meets(P::Icmpv6),
            _ => !silent(field),
        },
    }
}
