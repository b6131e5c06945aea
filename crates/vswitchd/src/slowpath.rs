//! What workers ask of the switch: the shared tables behind [`dp::Slowpath`].

use crate::clock::Clock;
use crate::packets::Packets;
use dp::{Carried, Change, Changes, Credit, Effect, PacketIn, PortNo, Slowpath, Translation, Upcall};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;
use switch::Switch;
use switch::tables::Translated;
use tokio::sync::Notify;
use wire::Nanos;

/// The switch's tables, read by every worker in parallel, written by the control plane and by what packets teach.
pub(crate) struct Shared {
    pub(crate) switch: RwLock<Switch>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) clock: Clock,
    /// Packets for controllers.
    pub(crate) packets: Packets,
    /// Rings when packets may have made or ended rules.
    pub(crate) tables_changed: Notify,
    failed: Mutex<Vec<PortNo>>,
    failed_notify: Notify,
}

impl Shared {
    pub(crate) fn new(seed: u64) -> Arc<Shared> {
        Arc::new(Shared {
            switch: RwLock::new(Switch::new(seed)),
            changes: Arc::new(Changes::new()),
            clock: Clock::start(),
            packets: Packets::default(),
            tables_changed: Notify::new(),
            failed: Mutex::default(),
            failed_notify: Notify::new(),
        })
    }

    /// Runs `change` on the tables and tells the datapaths what it made stale.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Switch, Nanos) -> Vec<Change>) {
        let now = self.clock.now();
        let mut switch = self.switch.write();
        let stale = change(&mut switch, now);
        // Still under the lock: nobody may translate by the new tables before the old megaflows are on their way out.
        self.changes.publish(&stale);
    }

    /// Notes and does what a translation asks for beside its actions.
    pub(crate) fn accept(&self, translated: &Translated) {
        if !translated.controllers.is_empty() && self.packets.know(translated) {
            self.changes.publish(&[Change::All]);
        }
        if !translated.translation.effects.is_empty() {
            self.update(|switch, now| switch.accept(translated, now));
            self.may_have_changed_tables(&translated.translation.effects);
        }
    }

    /// Has controllers told if effects may have made or ended rules.
    fn may_have_changed_tables(&self, effects: &[Effect]) {
        if effects.iter().any(|effect| matches!(effect, Effect::Memo(_))) {
            self.tables_changed.notify_one();
        }
    }

    /// Waits for ports whose device failed, and takes them.
    pub(crate) async fn failed_ports(&self) -> Vec<PortNo> {
        loop {
            let failed = std::mem::take(&mut *self.failed.lock());
            if !failed.is_empty() {
                return failed;
            }
            self.failed_notify.notified().await;
        }
    }
}

impl Slowpath for Shared {
    fn upcall(&self, upcall: &Upcall<'_>, _now: Nanos) -> Translation {
        let translated = self.switch.read().translate_rules(upcall.key);
        self.accept(&translated);
        translated.translation
    }

    fn refresh(&self, effects: &[Effect], _now: Nanos) {
        self.update(|switch, now| switch.apply(effects, now));
        self.may_have_changed_tables(effects);
    }

    fn credit(&self, credits: &[(Credit, Carried)], now: Nanos) {
        // The datapath has a clock of its own: what counts is how long ago packets came.
        let here = self.clock.now();
        let on_this_clock = |(credit, carried): &(Credit, Carried)| {
            let ago = now.since(carried.used);
            let used = Nanos(here.0.saturating_sub(ago.as_nanos() as u64));
            (*credit, Carried { used, ..*carried })
        };
        let credits: Vec<_> = credits.iter().map(on_this_clock).collect();
        self.switch.write().credit_all(&credits);
    }

    fn packet_in(&self, packet: &PacketIn<'_>, _now: Nanos) -> bool {
        self.packets.push(packet)
    }

    fn port_failed(&self, port: PortNo) {
        self.failed.lock().push(port);
        self.failed_notify.notify_one();
    }
}
