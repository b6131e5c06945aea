//! How the translator spends its [`Budget`](super::budget::Budget), and what it does at a limit.

use super::budget::{Budget, Limit, MAX_ACTIONS, Stop, cost};
use super::pipeline::Pipeline;

impl Pipeline<'_> {
    /// Spends work. Whether the translation continues.
    #[inline]
    pub(super) fn spend(&mut self, work: usize) -> bool {
        let spent = self.budget.spend(work);
        self.may(spent)
    }

    /// Counts a lookup. Whether there may be one more.
    pub(super) fn count_lookup(&mut self) -> bool {
        let counted = self.budget.look_up();
        self.may(counted)
    }

    /// Whether there may be another lookup in a table, which is then counted.
    pub(super) fn another_lookup(&mut self, table: u8) -> bool {
        if !self.count_lookup() || !self.has_room_for_actions() {
            return false;
        }
        let tables = self.packet.place.bridge.map(|bridge| &bridge.tables);
        let subtables = tables.and_then(|tables| Some(tables.table(table)?.rules.stats().subtables));
        self.spend(cost::LOOKUP + cost::SUBTABLE * subtables.unwrap_or_default())
    }

    /// Enters so many levels. Whether the limit of depth allows it.
    pub(super) fn deeper(&mut self, levels: u32) -> bool {
        let entered = self.budget.deeper(levels);
        self.may(entered)
    }

    /// Whether the limit of depth allows another lookup, even of a later table, which is no deeper.
    pub(super) fn has_room(&mut self) -> bool {
        let has = self.deeper(1);
        if has {
            self.budget.shallower(1);
        }
        has
    }

    pub(super) fn shallower(&mut self, levels: u32) {
        self.budget.shallower(levels);
    }

    /// Enters one more nested call. Whether the limit allows it.
    pub(super) fn nest(&mut self) -> bool {
        let entered = self.budget.nest();
        self.may(entered)
    }

    /// Spends the work of copying the parts of the packet that have no fixed size.
    pub(super) fn spend_kept(&mut self) -> bool {
        let packet = &self.packet;
        let kept = packet.place.action_set.len() + packet.stack.len() + 16 * packet.covered.len();
        self.spend(2 * kept)
    }

    /// Whether the stack of `push` has room for another entry.
    pub(super) fn has_room_on_stack(&mut self) -> bool {
        let room = Budget::has_room_on(self.packet.stack.len());
        self.may(room)
    }

    /// Whether there is room for the actions of more lookups, groups and copies. Without room, the
    /// translation ends with the actions that it has.
    pub(super) fn has_room_for_actions(&mut self) -> bool {
        if self.actions.len() <= MAX_ACTIONS {
            return true;
        }
        let bridge = self.packet.place.bridge.map_or(0, |bridge| bridge.id);
        self.budget.note(bridge, Limit::Actions);
        self.error(|_| Limit::Actions.to_string());
        self.exit = true;
        false
    }

    /// Whether the translation may have another output.
    pub(super) fn another_output(&mut self) -> bool {
        let room = Budget::has_room_for(self.actions.len());
        self.may(room) && self.spend(cost::OUTPUT)
    }

    /// Starts a branch by length. Whether the limit allows it.
    pub(super) fn fork(&mut self) -> bool {
        let begun = self.budget.fork();
        self.may(begun)
    }

    #[inline]
    fn may(&mut self, result: Result<(), Stop>) -> bool {
        match result {
            Ok(()) => true,
            Err(stop) => {
                self.stop(stop);
                false
            }
        }
    }

    #[cold]
    fn stop(&mut self, stop: Stop) {
        let Stop::Limit(limit) = stop else {
            self.failed = true;
            return;
        };
        // All enclosing calls also find that the work is spent.
        let is_known = self.budget.has_ended() && self.failed;
        let bridge = self.packet.place.bridge.map_or(0, |bridge| bridge.id);
        self.budget.note(bridge, limit);
        if limit != Limit::Work || !is_known {
            self.fatal(|_| limit.to_string());
        }
    }
}
