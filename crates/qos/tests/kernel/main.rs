//! Compares our disciplines with the kernel's: the same packets at the same times; which left,
//! when, in which order, and which were dropped.
//!
//! The kernel's behaviour was recorded in a virtual machine with Debian's cloud kernel, whose time
//! is a count of instructions (`oxvs lab guest`), and is in `recorded/`; `make kernel-qdiscs`
//! records it again. If the running kernel has the qdisc, it is compared too, in real time.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod compare;
mod kernel;
mod offer;
mod policed;
mod record;
mod replay;
mod scenario;
mod scenarios;

use compare::Difference;
use record::Record;
use scenario::{Near, Scenario};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

macro_rules! recorded {
    ($($test:ident: $scenario:ident,)*) => {
        mod recorded {
            $(#[test] fn $test() { super::as_recorded(&super::scenarios::$scenario()); })*
        }
        fn all() -> Vec<Scenario> {
            vec![$(scenarios::$scenario()),*]
        }
    };
}

recorded! {
    a_fifo_keeps_order_and_drops_what_comes_when_it_is_full: fifo_with_a_limit,
    pfifo_fast_serves_its_bands_by_the_same_priorities: three_bands,
    sfq_gives_turns_of_the_same_bytes: turns_of_bytes,
    sfq_drops_from_the_same_queues_when_it_is_full: the_longest_queue_pays,
    codel_drops_the_same_packets_under_overload: codel_under_overload,
    codel_remembers_how_much_it_had_to_drop: codel_comes_back,
    codel_marks_the_same_packets: codel_marks,
    fq_codel_serves_new_flows_first_and_drops_alike: new_flows_first,
    fq_codel_takes_the_same_packets_of_the_fattest_flow: the_fattest_flow_pays,
    htb_lends_the_same_shares: classes_borrow,
    htb_serves_by_the_same_priorities: classes_have_priorities,
    htb_shares_alike_in_a_tree: a_tree_of_classes,
    a_port_speed_sends_what_a_token_bucket_does: a_token_bucket,
    hfsc_shares_alike_by_rates: curves_of_one_rate,
    hfsc_gives_the_same_delay_to_a_real_time_class: delay_apart_from_rate,
    hfsc_shares_alike_in_a_tree: a_tree_of_curves,
    hfsc_keeps_the_same_upper_limits: upper_limits,
    netem_delays_and_drops_alike: a_network_that_delays,
    netem_jitters_alike: a_network_that_jitters,
    netem_loses_as_much: a_network_that_loses,
    a_policer_passes_the_same_packets: a_policer,
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kernel/recorded")
}

fn as_recorded(scenario: &Scenario) {
    let file = directory().join(format!("{}.txt", scenario.name));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let Some(kernel) = Record::from_text(&text, scenario) else {
        panic!(
            "{} is of another scenario: `make kernel-qdiscs` records it again",
            file.display()
        );
    };
    let ours = replay::replay(scenario, &kernel);
    let difference = Difference::of(scenario, &kernel, &ours);
    println!("{}: {difference}", scenario.name);
    if let Err(fault) = difference.within(&scenario.near) {
        panic!("{} and Linux {} are apart: {fault}", scenario.name, kernel.kernel);
    }
}

mod live {
    #[test]
    fn a_fifo_of_this_kernel_drops_as_many() {
        super::as_here(&super::scenarios::fifo_with_a_limit());
    }

    #[test]
    fn a_token_bucket_of_this_kernel_sends_at_the_same_rate() {
        super::as_here(&super::scenarios::a_token_bucket());
    }

    #[test]
    fn htb_of_this_kernel_lends_the_same_shares() {
        super::as_here(&super::scenarios::classes_borrow());
    }

    #[test]
    fn htb_of_this_kernel_serves_by_the_same_priorities() {
        super::as_here(&super::scenarios::classes_have_priorities());
    }

    #[test]
    fn htb_of_this_kernel_shares_alike_in_a_tree() {
        super::as_here(&super::scenarios::a_tree_of_classes());
    }
}

/// Tolerances in real time: differences from a machine that stops for a while do not count.
const LIVE: Near = Near {
    moved: usize::MAX,
    fates: usize::MAX,
    drops: 60,
    late: 50_000,
    share: 0.05,
    wait: 50_000,
};

/// One comparison with the running kernel at a time: each would delay the packets of the others.
static ALONE: Mutex<()> = Mutex::new(());

/// Compares with the running kernel; repeats if the machine was too busy.
fn as_here(scenario: &Scenario) {
    testkit::skip!(unless root, "ip", "tc");
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut faults = vec![];
    for _ in 0..4 {
        let kernel = match kernel::run(scenario, false) {
            Ok(kernel) => kernel,
            Err(why) => testkit::skip!("{why}"),
        };
        let difference = Difference::of(scenario, &kernel, &replay::replay(scenario, &kernel));
        println!("{}: {difference}", scenario.name);
        match difference.within(&LIVE) {
            Ok(()) => return,
            Err(fault) => faults.push(fault),
        }
    }
    panic!("{} and this kernel are apart: {}", scenario.name, faults.join("\n"));
}

/// Records the running kernel's behaviour in the directory `OXVS_RECORD`.
#[test]
#[ignore = "records; see scripts/qdiscs.sh"]
fn record_what_this_kernel_does() {
    let directory = std::env::var("OXVS_RECORD").expect("OXVS_RECORD names a directory");
    let mut faults = vec![];
    for scenario in all() {
        match kernel::run(&scenario, true) {
            Ok(record) => {
                let file = Path::new(&directory).join(format!("{}.txt", scenario.name));
                std::fs::write(file, record.to_text(&scenario)).expect("written");
                println!("{}: {} packets", scenario.name, record.fates.len());
            }
            Err(why) => faults.push(why),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}
