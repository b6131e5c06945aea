//! Groups: which of their buckets act on a packet (OpenFlow 1.3.5 §5.6).

use super::pipeline::Pipeline;

impl Pipeline<'_> {
    pub(super) fn group(&mut self, _group: u32) {}
}
