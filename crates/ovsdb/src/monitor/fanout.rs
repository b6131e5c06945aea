//! One commit to many monitors.

use super::Monitor;
use crate::commit::Commit;
use std::collections::HashMap;
use std::sync::Arc;

/// Makes the updates of one commit; equal monitors share the text.
#[derive(Debug)]
pub struct Fanout<'a> {
    commit: &'a Commit,
    made: HashMap<Monitor, Option<Arc<str>>>,
}

impl<'a> Fanout<'a> {
    /// For one commit.
    pub fn new(commit: &'a Commit) -> Fanout<'a> {
        Fanout {
            commit,
            made: HashMap::new(),
        }
    }

    /// The text of the `<table-updates>` for a monitor, or `None` if the commit does not concern
    /// it.
    pub fn text(&mut self, monitor: &Monitor) -> Option<Arc<str>> {
        if let Some(text) = self.made.get(monitor) {
            return text.clone();
        }
        let text: Option<Arc<str>> = monitor.update(self.commit).map(|updates| updates.to_text().into());
        self.made.insert(monitor.clone(), text.clone());
        text
    }
}
