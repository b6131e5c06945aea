//! The order of dumped flows.

use super::options::Criterion;
use flow::MatchField;
use openflow::model::FlowStats;
use std::cmp::Ordering;

/// Sorts flows by each criterion in turn, then by descending priority. Flows without a field come
/// last, in any order.
pub(super) fn sort(flows: &mut [FlowStats], criteria: &[Criterion]) {
    const LAST: Criterion = Criterion {
        field: None,
        descending: true,
    };
    let criteria: Vec<Criterion> = criteria.iter().copied().chain([LAST]).collect();
    flows.sort_by(|a, b| {
        let orders = criteria.iter().map(|criterion| compare(a, b, *criterion));
        orders.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    });
}

fn compare(a: &FlowStats, b: &FlowStats, criterion: Criterion) -> Ordering {
    let order = match criterion.field {
        None => a.priority.cmp(&b.priority),
        Some(field) => match (value(a, field), value(b, field)) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => return Ordering::Less,
            (None, Some(_)) => return Ordering::Greater,
            (None, None) => Ordering::Equal,
        },
    };
    match criterion.descending {
        true => order.reverse(),
        false => order,
    }
}

fn value(flow: &FlowStats, field: MatchField) -> Option<u128> {
    let (value, mask) = flow.matching.get(field)?;
    (mask != 0).then_some(value & mask)
}
