//! Debug lines about upcalls and megaflows, in Open vSwitch's words: test benches search for them.

use dp::{Translation, Upcall};
use flow::{Field, Mask};
use telemetry::ratelimit::RateLimit;
use tracing::Level;

/// The module of these lines.
const MODULE: &str = "dpif_netdev";

/// Lines that are logged per minute, and at once.
static UPCALLS: RateLimit = RateLimit::new(600, 600);
static FLOWS: RateLimit = RateLimit::new(600, 600);

/// Fields that Open vSwitch's keys do not have, or have only in neighbour discovery.
const NOT_THERE: [Field; 6] = [
    Field::Ipv6Exthdr,
    Field::NdReserved,
    Field::NdOptionsType,
    Field::NdTarget,
    Field::NdSll,
    Field::NdTll,
];

/// Whether anybody reads these lines.
#[inline]
pub(super) fn is_on() -> bool {
    tracing::enabled!(target: MODULE, Level::DEBUG)
}

/// Logs an upcall from a bridge of a type: the packet's key in the datapath's form, and the packet
/// as a flow.
#[cold]
pub(super) fn miss(kind: &str, upcall: &Upcall<'_>) {
    if !may(&UPCALLS) {
        return;
    }
    let discovery = upcall.key.get(Field::IpProto) == 58 && matches!(upcall.key.get(Field::IcmpType), 135 | 136);
    let absent = if discovery { &NOT_THERE[..3] } else { &NOT_THERE };
    let mut words = *Mask::full().words();
    for field in absent {
        let without = Mask::exact(*field);
        words
            .iter_mut()
            .zip(without.words())
            .for_each(|(word, bits)| *word &= !bits);
    }
    let mask = Mask::from_words(&words);
    // With the full mask only fields that oxvs does not have print as wildcards.
    let key = upcall
        .key
        .display(&mask)
        .with_wildcards()
        .to_string()
        .replace("(0/0)", "(0)");
    let mut packet = String::new();
    openflow::text::print::packet(&mut packet, upcall.packet);
    tracing::debug!(target: MODULE, lines = true, "ovs-{kind}: miss upcall:\n{key}\n{}", packet.trim_end());
}

/// Logs the megaflow of an answer that the worker caches.
#[cold]
pub(super) fn added(upcall: &Upcall<'_>, translation: &Translation) {
    if !may(&FLOWS) {
        return;
    }
    let Translation { mask, actions, .. } = translation;
    let number = dp::ufid(upcall.key, mask);
    let key = upcall.key.display(mask);
    let actions = match actions.is_empty() {
        true => "drop".to_owned(),
        false => dp::ActionList::new(actions, upcall.key).to_string(),
    };
    tracing::debug!(target: MODULE, "flow_add: ufid:{number} mega_ufid:{number} {key}, actions:{actions}");
}

/// Whether a line may be logged now. Reports those that were not.
fn may(limit: &RateLimit) -> bool {
    let admitted = limit.admit(MODULE);
    if let Some(Some(dropped)) = &admitted {
        tracing::debug!(target: MODULE, "{dropped}");
    }
    admitted.is_some()
}
