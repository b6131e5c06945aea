//! Datapath port numbers and counters of dummy devices, as test benches of Open vSwitch expect
//! them.

use dp::PortCounters;

/// The number added to those of bridges' own ports, whose names begin with `br`.
const BRIDGES: u32 = 100;

/// The number that a dummy's name asks for if it is free, or the lowest free one: `p10` has 10,
/// `br0` has 100.
pub(crate) fn number(name: &str, is_free: impl Fn(u32) -> bool) -> Option<u32> {
    let asked = in_name(name).filter(|number| is_free(*number));
    asked.or_else(|| (1..=u32::from(u16::MAX)).find(|number| is_free(*number)))
}

/// The counters that only dummies have, by name. The first of `queues` receive queues has them all.
pub(crate) fn counters(port: &PortCounters, queues: usize) -> Vec<(String, u64)> {
    let mut counters = vec![
        ("rx_custom_packets_1".to_owned(), port.rx_packets),
        ("rx_custom_packets_2".to_owned(), port.rx_packets),
    ];
    for queue in 0..queues {
        let of_queue = |count| if queue == 0 { count } else { 0 };
        counters.push((format!("rx_q{queue}_bytes"), of_queue(port.rx_bytes)));
        counters.push((format!("rx_q{queue}_packets"), of_queue(port.rx_packets)));
    }
    counters.push(("tx_q0_bytes".to_owned(), port.tx_bytes));
    counters.push(("tx_q0_packets".to_owned(), port.tx_packets));
    counters
}

/// The first digits of a name.
fn in_name(name: &str) -> Option<u32> {
    let first = name.find(|c: char| c.is_ascii_digit())?;
    let digits = name[first..].split(|c: char| !c.is_ascii_digit()).next()?;
    let base = if name.starts_with("br") { BRIDGES } else { 0 };
    let number = u32::from(digits.parse::<u16>().ok()?) + base;
    (1..=u32::from(u16::MAX)).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dummys_number_is_in_its_name() {
        let numbers = |name| number(name, |_| true);
        assert_eq!(numbers("p10"), Some(10));
        assert_eq!(numbers("br0"), Some(100));
        assert_eq!(numbers("br12"), Some(112));
        assert_eq!(numbers("veth3-2"), Some(3));
    }

    #[test]
    fn without_a_number_or_where_it_is_taken_the_lowest_free_one_serves() {
        let free = |taken: u32| move |number| number > taken;
        assert_eq!(number("lan", free(0)), Some(1));
        assert_eq!(number("p2", free(2)), Some(3));
        assert_eq!(number("p0", free(0)), Some(1));
        assert_eq!(number("p99999999999", free(0)), Some(1));
    }
}
