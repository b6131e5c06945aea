//! How the daemon translates: how long it holds the tables for it, and what it does before a
//! translation is used.

use super::long::{Asked, Done, Known};
use super::{PATIENCE, Reported, Shared, Wait, count_ignored};
use dp::{Answer, Change, DropCause, Key, Translation, Upcall};
use flow::Mask;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use switch::tables::{Limit, Patience, RanOut, Translated};
use switch::{News, OutOfDate, Switch};

/// Work that a worker does for a translation before it leaves it to the thread for long ones: 0.05
/// to 0.2 ms, a flood to 1000 ports or 300 lookups.
const WORKERS_PATIENCE: u32 = 16_384;
/// How often a long translation gives way to somebody who wants to change the tables.
pub(super) const GIVES_WAY: u32 = 16;
/// How often a packet is translated again because another took its handles.
const ATTEMPTS: u32 = 8;
/// Actions, dependencies and counters that a cached translation may have together.
const MOST_CACHED: usize = 16_384;
/// The slices that the thread of long translations runs in.
const SLICE: Duration = Duration::from_micros(100);
/// How long that thread rests at most after a translation, which may have waited for the tables.
const LONGEST_REST: Duration = Duration::from_millis(10);

/// A translation with what belongs to it.
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
    /// Translates as `translate` does, and does and notes what that asks for beside its actions.
    /// `None` where `translate` has no answer for the packet, and where no handles could be had for
    /// it.
    ///
    /// `translate` says `Some(None)` where its patience is over.
    pub(crate) fn decide<T: HasTranslated>(
        &self,
        translate: impl Fn(&Switch, Patience<'_>) -> Option<Option<T>>,
    ) -> Option<T> {
        for _ in 0..ATTEMPTS {
            let (decided, news) = self.translate_by(&translate)?;
            if self.accept(decided.translated(), news, Wait::Always) == Accepted::Yes {
                return Some(decided);
            }
        }
        None
    }

    /// Translates as `translate` does. Whoever wants to change the tables meanwhile does not wait:
    /// the translation begins again after that.
    pub(crate) fn look_patiently<T: HasTranslated>(
        &self,
        translate: impl Fn(&Switch, Patience<'_>) -> Option<Option<T>>,
    ) -> Option<T> {
        self.translate_by(&translate).map(|(decided, _)| decided)
    }

    fn translate_by<T: HasTranslated>(
        &self,
        translate: &impl Fn(&Switch, Patience<'_>) -> Option<Option<T>>,
    ) -> Option<(T, News)> {
        let somebody_waits = || self.writers.load(Ordering::Relaxed) > 0;
        let mut given_way = 0;
        loop {
            let patience = match given_way {
                GIVES_WAY => Patience::Whole,
                _ => Patience::Until(&somebody_waits),
            };
            let decided = {
                let switch = self.switch.read();
                translate(&switch, patience)?.map(|decided| {
                    let news = switch.news_of(decided.translated(), self.clock.now());
                    let report = report_of(&switch, decided.translated().ran_out);
                    (decided, news, report)
                })
            };
            if let Some((decided, news, report)) = decided {
                tell(report);
                return Some((decided, news));
            }
            given_way += 1;
        }
    }

    /// Translates a packet, however long that takes.
    pub(super) fn translate(&self, key: &Key) -> Translation {
        let decided = self.decide(|switch, patience| Some(switch.translate_within(key, patience)));
        decided.map_or_else(refused, |translated| translated.translation)
    }

    /// Translates a packet of a worker, which has others.
    pub(super) fn translate_soon(&self, upcall: &Upcall<'_>) -> Answer {
        match self.long.look(upcall.key, self.clock.now()) {
            Known::Asked => return Answer::Later,
            Known::Done(done) => return self.answer_of(upcall.key, *done),
            Known::Nothing => {}
        }
        let mut left = PATIENCE;
        for _ in 0..ATTEMPTS {
            let translated = {
                let Some(switch) = self.read_within(&mut left) else {
                    return Answer::Busy;
                };
                let translated = switch.translate_within(upcall.key, Patience::Work(WORKERS_PATIENCE));
                translated.map(|translated| {
                    let report = report_of(&switch, translated.ran_out);
                    let news = switch.news_of(&translated, self.clock.now());
                    (translated, news, report)
                })
            };
            let Some((translated, news, report)) = translated else {
                return self.ask_for_long(upcall.key);
            };
            tell(report);
            match self.accept(&translated, news, Wait::Within(&mut left)) {
                Accepted::Yes => return as_answer(translated.translation),
                Accepted::OutOfDate => {}
                Accepted::Busy => return Answer::Busy,
            }
        }
        Answer::Once(refused())
    }

    fn ask_for_long(&self, key: &Key) -> Answer {
        match self.long.ask(key, self.clock.now()) {
            Asked::Yes => Answer::Later,
            Asked::TooMany => Answer::Refused,
            Asked::Unserved => as_answer(self.translate(key)),
        }
    }

    /// An answer that was made some time ago. The worker that takes it knows only the changes since
    /// it last looked, which may be later.
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

    /// Starts the thread that makes long translations. It ends with the last owner of the tables.
    pub(crate) fn serve_long(self: &Arc<Shared>) -> std::io::Result<()> {
        let (shared, long) = (Arc::downgrade(self), self.long.clone());
        // It ends with the thread, and here if there is none.
        let serving = long.begin();
        let serve = move || {
            let _serving = serving;
            // Workers that have the same processor run soon after they wake.
            let _ = sys::thread::set_slice(SLICE);
            while let Some(key) = long.next() {
                let Some(shared) = Weak::upgrade(&shared) else { return };
                let epoch = shared.changes.epoch();
                let begun = shared.clock.now();
                let translation = shared.translate(&key);
                let done = shared.clock.now();
                long.answer(&key, Done { translation, epoch }, done);
                drop(shared);
                // Half of the time, the tables and the processor are for others.
                std::thread::sleep(done.since(begun).min(LONGEST_REST));
            }
        };
        std::thread::Builder::new()
            .name("oxvs-translate".to_owned())
            .spawn(serve)
            .map(drop)
    }

    /// Notes and does what a translation asks for beside its actions.
    fn accept(&self, translated: &Translated, news: News, wait: Wait<'_>) -> Accepted {
        let effects = &translated.translation.effects;
        if !news.changes {
            if !news.seen {
                count_ignored(news.ignored);
            } else if !self.try_update(|switch, now| switch.apply(effects, now)) {
                // That what is known was seen again has time.
                self.reports.keep_effects(effects);
            }
            return Accepted::Yes;
        }
        let mut accepted = Accepted::Yes;
        let accept = |switch: &mut Switch, now| match switch.accept(translated, now) {
            Ok(changes) => {
                self.packets.know(translated);
                changes
            }
            Err(OutOfDate(changes)) => {
                accepted = Accepted::OutOfDate;
                changes
            }
        };
        // What packets make of rules, they make in their order.
        let acts = translated.memos.iter().any(|(_, memo)| memo.acts());
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

/// What became of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Accepted {
    /// It can be used.
    Yes,
    /// It is out of date, and must not be used.
    OutOfDate,
    /// The tables cannot be had in time. Nothing has happened.
    Busy,
}

/// A translation as an answer. What is large is not cached, as in Open vSwitch: a sender could fill
/// the memory with it.
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

/// What a packet ran out of, and the bridge.
fn report_of(switch: &Switch, ran_out: Option<RanOut>) -> Option<(String, Limit)> {
    let RanOut { bridge, limit } = ran_out?;
    Some((switch.bridge_name(bridge).unwrap_or_default().to_owned(), limit))
}

/// Logs what a packet ran out of. Whoever does has not locked the tables: a line may take long.
fn tell(report: Option<(String, Limit)>) {
    if let Some((bridge, limit)) = report {
        telemetry::warn_limited!(target: "ofproto_dpif_xlate", "bridge {bridge}: {limit} while processing a packet");
    }
}

#[cfg(test)]
mod tests;
