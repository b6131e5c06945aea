//! The daemon's translations: how long they lock the tables, and the steps before a translation is
//! used.

use super::long::{Done, Known, Requested};
use super::{PATIENCE, Reported, Shared, Wait, count_ignored};
use dp::{Answer, Carried, Change, Datapath, DropCause, Key, PortNo, Slowpath, Translation, Upcall};
use flow::Mask;
use nanos::Nanos;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use switch::tables::{Limit, Patience, RanOut, Translated};
use switch::{OutOfDate, Switch};

/// Work that a worker spends on a translation before the thread for long translations takes over:
/// 0.05 to 0.2 ms, a flood to 1000 ports or 300 lookups.
const WORKERS_PATIENCE: u32 = 16_384;
/// How often a long translation starts again to let a thread change the tables.
pub(super) const GIVES_WAY: u32 = 16;
/// How often a packet is translated again because another translation took its handles.
const ATTEMPTS: u32 = 8;
/// Actions, dependencies and counters of a cached translation together, at most.
const MOST_CACHED: usize = 16_384;
/// The scheduler's time slice of the thread for long translations.
const SLICE: Duration = Duration::from_micros(100);
/// The longest pause of that thread after a translation.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// A value that contains a translation.
pub(crate) trait HasTranslated {
    /// The translation.
    fn translated(&self) -> &Translated;
}

impl HasTranslated for Translated {
    fn translated(&self) -> &Translated {
        self
    }
}

impl HasTranslated for switch::trace::Traced {
    fn translated(&self) -> &Translated {
        &self.translated
    }
}

impl Shared {
    /// Translates with `translate`, then applies the effects and notes the contexts. `None` if
    /// `translate` has no result for the packet, or if there are no handles for it.
    ///
    /// `translate` returns `Some(None)` when its patience is over.
    pub(crate) fn decide<T: HasTranslated>(
        &self,
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<T>>,
    ) -> Option<T> {
        for _ in 0..ATTEMPTS {
            let decided = self.look_patiently(&translate)?;
            if self.accept(decided.translated(), Wait::Always) == Accepted::Yes {
                return Some(decided);
            }
        }
        None
    }

    /// Sends a packet that comes from no port by the actions of [`Shared::decide`], and counts it.
    /// `false` if it has none.
    pub(crate) fn send(
        &self,
        datapath: &dyn Datapath,
        in_port: PortNo,
        packet: &[u8],
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<Translated>>,
    ) -> bool {
        let Some(Translated { translation, .. }) = self.decide(translate) else {
            return false;
        };
        let now = self.clock.now();
        let carried = Carried {
            packets: 1,
            bytes: packet.len() as u64,
            used: now,
        };
        let credits: Vec<_> = translation.credits.iter().map(|credit| (*credit, carried)).collect();
        self.credit(&credits, now);
        datapath.execute(in_port, packet, &translation.actions);
        true
    }

    /// Translates with `translate`. A thread that wants to change the tables meanwhile does not
    /// wait: the translation starts again after the change.
    pub(crate) fn look_patiently<T: HasTranslated>(
        &self,
        translate: impl Fn(&Switch, Nanos, Patience<'_>) -> Option<Option<T>>,
    ) -> Option<T> {
        let somebody_waits = || self.writers.load(Ordering::Relaxed) > 0;
        let mut given_way = 0;
        loop {
            let patience = match given_way {
                GIVES_WAY => Patience::Whole,
                _ => Patience::Until(&somebody_waits),
            };
            let decided = {
                let switch = self.switch.read();
                translate(&switch, self.clock.now(), patience)?.map(|decided| {
                    let report = report_of(&switch, decided.translated().ran_out);
                    (decided, report)
                })
            };
            if let Some((decided, report)) = decided {
                tell(report);
                return Some(decided);
            }
            given_way += 1;
        }
    }

    /// Translates a packet, however long that takes.
    pub(super) fn translate(&self, upcall: &Upcall<'_>) -> Translation {
        let decided = self.decide(|switch, now, patience| Some(switch.translate(upcall, now, patience)));
        decided.map_or_else(refused, |translated| translated.translation)
    }

    /// Translates a packet for a worker, within its patience.
    pub(super) fn translate_soon(&self, upcall: &Upcall<'_>) -> Answer {
        match self.long.look(upcall.key, self.clock.now()) {
            Known::Pending => return Answer::Later,
            Known::Done(done) => return self.answer_of(upcall.key, *done),
            Known::Nothing => {}
        }
        let mut left = PATIENCE;
        for _ in 0..ATTEMPTS {
            let translated = {
                let Some(switch) = self.read_within(&mut left) else {
                    return Answer::Busy;
                };
                let translated = switch.translate(upcall, self.clock.now(), Patience::Work(WORKERS_PATIENCE));
                translated.map(|translated| {
                    let report = report_of(&switch, translated.ran_out);
                    (translated, report)
                })
            };
            let Some((translated, report)) = translated else {
                return self.request_long(upcall);
            };
            tell(report);
            match self.accept(&translated, Wait::Within(&mut left)) {
                Accepted::Yes => return as_answer(translated.translation),
                Accepted::OutOfDate => {}
                Accepted::Busy => return Answer::Busy,
            }
        }
        Answer::Once(refused())
    }

    fn request_long(&self, upcall: &Upcall<'_>) -> Answer {
        match self.long.request(upcall, self.clock.now()) {
            Requested::Queued => Answer::Later,
            Requested::TooMany => Answer::Refused,
            Requested::NoServer => as_answer(self.translate(upcall)),
        }
    }

    /// The answer from a translation that the thread finished earlier. It is not cached if it is
    /// stale: the worker would not see the changes from before its upcall.
    pub(super) fn answer_of(&self, key: &Key, done: Done) -> Answer {
        let Done { translation, epoch } = done;
        let mut changes = Vec::new();
        self.changes.since(epoch, &mut changes);
        let is_stale = |change: &Change| translation.is_stale_for(key, change);
        if changes.iter().any(is_stale) {
            Answer::Once(translation)
        } else {
            as_answer(translation)
        }
    }

    /// Starts the thread for long translations. It ends with the last reference to the tables.
    pub(crate) fn serve_long(self: &Arc<Shared>) -> std::io::Result<()> {
        let (shared, long) = (Arc::downgrade(self), self.long.clone());
        // Dropped when the thread ends, or here if it cannot be started.
        let serving = long.begin();
        let serve = move || {
            let _serving = serving;
            // Workers on the same processor run soon after they wake.
            let _ = sys::thread::set_slice(SLICE);
            while let Some(waiting) = long.next() {
                let Some(shared) = Weak::upgrade(&shared) else { return };
                let epoch = shared.changes.epoch();
                let begun = shared.clock.now();
                let upcall = waiting.upcall();
                let translation = shared.translate(&upcall);
                let done = shared.clock.now();
                long.answer(&waiting.key, Done { translation, epoch }, done);
                drop(shared);
                // Other threads get the tables and the processor half of the time.
                std::thread::sleep(done.since(begun).min(LONGEST_REST));
            }
        };
        std::thread::Builder::new()
            .name("oxvs-translate".to_owned())
            .spawn(serve)
            .map(drop)
    }

    /// Notes the contexts of a translation and applies its effects.
    fn accept(&self, translated: &Translated, wait: Wait<'_>) -> Accepted {
        let news = translated.news;
        let effects = &translated.translation.effects;
        if !news.changes {
            if !news.seen {
                count_ignored(news.ignored);
            } else if !self.try_update(|switch, now| switch.apply(effects, now)) {
                // Refreshing a known station can wait.
                self.reports.keep_effects(effects);
            }
            return Accepted::Yes;
        }
        let mut accepted = Accepted::Yes;
        let accept = |switch: &mut Switch, now| match switch.accept(translated, now) {
            Ok(changes) => {
                self.packets.know(translated);
                self.samples.know(translated);
                changes
            }
            Err(OutOfDate(changes)) => {
                accepted = Accepted::OutOfDate;
                changes
            }
        };
        // Rules that packets add are added in the order of the packets.
        let acts = translated.contexts.iter().any(|(_, context)| context.acts());
        let reports = match wait {
            Wait::Within(_) if !acts => Reported::Waits,
            _ => Reported::First,
        };
        if !self.update_within(wait, reports, accept) {
            return Accepted::Busy;
        }
        if accepted == Accepted::Yes {
            self.may_have_changed_tables(effects);
        }
        accepted
    }
}

/// Whether a translation was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    /// It can be used.
    Yes,
    /// It is out of date, and must not be used.
    OutOfDate,
    /// The tables were locked for too long. Nothing has happened.
    Busy,
}

/// A translation as an answer. A large one is not cached, as in Open vSwitch: a sender could fill
/// the memory.
fn as_answer(translation: Translation) -> Answer {
    let Translation {
        actions, deps, credits, ..
    } = &translation;
    match actions.len() + deps.len() + credits.len() {
        ..=MOST_CACHED => Answer::Cache(translation),
        _ => Answer::Once(translation),
    }
}

/// The translation of a packet for which there are no handles.
fn refused() -> Translation {
    Translation {
        actions: Arc::from([]),
        mask: Mask::full(),
        deps: Default::default(),
        effects: Default::default(),
        credits: Default::default(),
        drop: Some(DropCause::HandleLimit),
    }
}

/// The limit that a packet reached, and the bridge.
fn report_of(switch: &Switch, ran_out: Option<RanOut>) -> Option<(String, Limit)> {
    let RanOut { bridge, limit } = ran_out?;
    Some((switch.bridge_name(bridge).unwrap_or_default().to_owned(), limit))
}

/// Logs the limit that a packet reached. The caller has unlocked the tables: logging may block.
fn tell(report: Option<(String, Limit)>) {
    if let Some((bridge, limit)) = report {
        telemetry::warn_limited!(target: "ofproto_dpif_xlate", "bridge {bridge}: {limit} while processing a packet");
    }
}

#[cfg(test)]
mod tests;
