//! Numbers that a switch prints of what it has counted.

use std::collections::BTreeMap;

/// What was counted, by what it is called.
pub(super) type Counters = BTreeMap<String, i64>;

/// Every number that is given as `name=number` or `name:number`, named by what stands before it
/// too. What lines begin with names those below them that begin with nothing.
pub(super) fn of(texts: &[String]) -> Counters {
    let mut counters = Counters::new();
    for (at, text) in texts.iter().enumerate() {
        let mut context = String::new();
        for line in text.lines().skip(1) {
            for word in line.split([' ', ',']).filter(|word| !word.is_empty()) {
                let parts = word.split_once(['=', ':']).filter(|(_, number)| !number.is_empty());
                match parts {
                    Some((name, number)) if !name.is_empty() && name != "meter" => {
                        // What is not counted is a question mark.
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
    // When they were made is not told in the same words, and how many there are is not counted.
    counters.retain(|name, _| !name.contains("duration") && !name.contains("flow_count") && !name.contains("active"));
    counters
}

/// What was counted from `before` to `after`, where anything was.
pub(super) fn since(before: &Counters, after: &Counters) -> Counters {
    let grown = after.iter().map(|(name, number)| {
        let begin = before.get(name).copied().unwrap_or_default();
        (name.clone(), number - begin)
    });
    grown.filter(|(_, number)| *number != 0).collect()
}
