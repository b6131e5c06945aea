//! Parses a switch's printed counters.

use std::collections::BTreeMap;

/// Counters by name.
pub(super) type Counters = BTreeMap<String, i64>;

/// Every number of the form `name=number` or `name:number`, with the words before it in its name.
/// The start of a line also names the indented lines below it.
pub(super) fn of(texts: &[String]) -> Counters {
    let mut counters = Counters::new();
    for (at, text) in texts.iter().enumerate() {
        let mut context = String::new();
        for line in text.lines().skip(1) {
            for word in line.split([' ', ',']).filter(|word| !word.is_empty()) {
                let parts = word.split_once(['=', ':']).filter(|(_, number)| !number.is_empty());
                match parts {
                    Some((name, number)) if !name.is_empty() && name != "meter" => {
                        // A question mark means not counted.
                        counters.extend(number.parse().map(|number| (format!("{at} {context}{name}"), number)));
                    }
                    _ => {
                        if ["port", "table", "tables"].contains(&word) || word.starts_with("meter:") {
                            context.clear();
                        }
                        context += word;
                        context.push(' ');
                    }
                }
            }
        }
    }
    // Ages are printed differently, and numbers of objects are not counters.
    counters.retain(|name, _| !name.contains("duration") && !name.contains("flow_count") && !name.contains("active"));
    counters
}

/// The differences from `before` to `after`, if not zero.
pub(super) fn since(before: &Counters, after: &Counters) -> Counters {
    let grown = after.iter().map(|(name, number)| {
        let begin = before.get(name).copied().unwrap_or_default();
        (name.clone(), number - begin)
    });
    grown.filter(|(_, number)| *number != 0).collect()
}
