use super::*;
use crate::results::Machine;
use std::collections::BTreeMap;

fn run() -> Run {
    Run {
        machine: Machine::here(),
        systems: BTreeMap::from([("oxvs".to_owned(), "oxvs 1".to_owned())]),
        scenarios: BTreeMap::from([("S0.x".to_owned(), Experiment::new("s0-x.toml", "text", 4))]),
        ..Run::new(Profile::Quick, 7)
    }
}

#[test]
fn a_run_with_a_second_machine_goes_on_with_the_same_one_only() {
    let dir = tempfile::tempdir().unwrap();
    let remote = |host: &str, wire: &str, kernel: &str| {
        let machine = Machine {
            kernel: kernel.to_owned(),
            ..Machine::here()
        };
        Some(Remote {
            host: host.to_owned(),
            wire: wire.to_owned(),
            machine,
        })
    };
    let open = |remote| Store::open(&dir.path().join("run"), Run { remote, ..run() });
    drop(open(remote("far", "a=b", "6.1")).unwrap());
    drop(open(remote("far.example", "a=b", "6.1")).unwrap());
    for (other, expected) in [
        (None, "its switch was on far, not here"),
        (remote("far", "a=c", "6.1"), "wire 'a=b', not 'a=c'"),
        (remote("far", "a=b", "6.2"), "the switch's kernel '6.1', not '6.2'"),
    ] {
        let refused = format!("{:#}", open(other).unwrap_err());
        assert!(refused.contains(expected), "{refused}");
    }
}

fn sample(repetition: u32) -> Sample {
    Sample {
        scenario: "S0.x".to_owned(),
        system: "oxvs".to_owned(),
        at: BTreeMap::from([("speed".to_owned(), "10".to_owned())]),
        repetition,
        testbed: repetition + 1,
        started: 1.0,
        seconds: 2.0,
        metrics: BTreeMap::from([("probe.rtt".to_owned(), 12.5)]),
        distributions: BTreeMap::new(),
        series: BTreeMap::new(),
        losses: Vec::new(),
        cpu: BTreeMap::new(),
        load: 0.1,
        remarks: Vec::new(),
        validity: super::super::Validity::default(),
    }
}

fn skipped(reason: &str) -> Record {
    Record::Skipped(Skipped {
        scenario: "S0.x".to_owned(),
        system: "oxvs".to_owned(),
        at: BTreeMap::new(),
        reason: reason.to_owned(),
        failed: false,
    })
}

fn repetitions(results: &Results) -> Vec<u32> {
    results.samples.iter().map(|sample| sample.repetition).collect()
}

fn record(repetition: u32) -> Record {
    Record::Sample(Box::new(sample(repetition)))
}

fn refused(dir: &Path, fresh: Run) -> String {
    format!("{:#}", Store::open(dir, fresh).unwrap_err())
}

#[test]
fn what_was_written_is_read_back_and_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new/deeper");
    let mut store = Store::open(&path, run()).unwrap();
    store.append(record(0)).unwrap();
    store
        .configuration("S0.x", "oxvs", "speed=10", &["oxvs vsctl add-br br0".to_owned()])
        .unwrap();
    store
        .configuration("S0.x", "oxvs", "speed=10", &["not again".to_owned()])
        .unwrap();
    drop(store);
    let mut store = Store::open(&path, Run { seed: 99, ..run() }).unwrap();
    assert_eq!(store.run().seed, 7, "the order of the first invocation is kept");
    assert_eq!(store.records().len(), 1);
    store.append(record(1)).unwrap();
    let results = load(&path).unwrap();
    assert_eq!(repetitions(&results), [0, 1]);
    assert_eq!(results.configurations[0].2, "# speed=10\noxvs vsctl add-br br0\n");
}

#[test]
fn a_run_that_has_ended_is_free_for_the_next_even_while_a_child_still_has_its_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), run()).unwrap();
    let inherited = store._lock.0.try_clone().unwrap();
    assert!(Store::open(dir.path(), run()).is_err());
    drop(store);
    Store::open(dir.path(), run()).unwrap();
    drop(inherited);
}

#[test]
fn half_a_line_that_a_crash_left_is_ignored_and_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), run()).unwrap();
    (0..3).for_each(|n| store.append(record(n)).unwrap());
    drop(store);
    let path = dir.path().join(SAMPLES);
    let whole = fs::read(&path).unwrap();
    let last_line = whole[..whole.len() - 1]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .unwrap()
        + 1;
    for cut in last_line..whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        assert_eq!(repetitions(&load(dir.path()).unwrap()), [0, 1], "cut at {cut}");
        let mut store = Store::open(dir.path(), run()).unwrap();
        store.append(record(7)).unwrap();
        drop(store);
        assert_eq!(repetitions(&load(dir.path()).unwrap()), [0, 1, 7], "cut at {cut}");
    }
}

#[test]
fn a_damaged_line_elsewhere_is_told_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), run()).unwrap();
    store.append(record(0)).unwrap();
    drop(store);
    let path = dir.path().join(SAMPLES);
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{text}{{\"sample\": 3}}\n{text}")).unwrap();
    let error = format!("{:#}", load(dir.path()).unwrap_err());
    assert!(error.contains("samples.jsonl: line 2 is damaged"), "{error}");
    assert!(refused(dir.path(), run()).contains("line 2 is damaged"));
    fs::write(&path, [0xff, 0xfe, b'\n']).unwrap();
    assert!(load(dir.path()).is_err());
}

#[test]
fn another_profile_machine_or_text_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), run()).unwrap();
    store.append(record(0)).unwrap();
    let error = store
        .enter("S0.x", Experiment::new("s0-x.toml", "changed", 4))
        .unwrap_err();
    assert!(error.to_string().contains("its file has changed since"), "{error}");
    store.enter("S0.x", Experiment::new("s0-x.toml", "text", 4)).unwrap();
    let error = store.enter_system("oxvs", "oxvs 2").unwrap_err();
    assert!(error.to_string().contains("now it is oxvs 2"), "{error}");
    drop(store);
    let full = Run {
        profile: Profile::Full,
        ..run()
    };
    assert!(refused(dir.path(), full).contains("it was begun with --quick, not --full"));
    let guest = Run {
        in_guest: true,
        ..run()
    };
    assert!(refused(dir.path(), guest).contains("on the machine itself, not in a virtual machine"));
    let mut elsewhere = run();
    elsewhere.machine.kernel = "2.6.32".to_owned();
    let error = refused(dir.path(), elsewhere);
    assert!(error.contains("another machine: kernel"), "{error}");
}

#[test]
fn two_runs_do_not_write_to_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), run()).unwrap();
    assert!(refused(dir.path(), run()).contains("another 'oxvs lab run' is at work"));
    drop(store);
    Store::open(dir.path(), run()).unwrap();
}

#[test]
fn directories_that_hold_something_else_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("full")).unwrap();
    fs::write(at("full/letter.txt"), "dear").unwrap();
    assert!(refused(&at("full"), run()).contains("other files ('letter.txt')"));
    assert_eq!(fs::read_dir(at("full")).unwrap().count(), 1, "nothing was added");
    fs::write(at("file"), "").unwrap();
    assert!(refused(&at("file"), run()).contains("cannot be made"));
    let error = format!("{:#}", load(&at("nowhere")).unwrap_err());
    assert!(error.contains("holds no run"), "{error}");
}

#[test]
fn hostile_files_are_told_and_never_followed_or_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    drop(Store::open(path, run()).unwrap());
    let good = fs::read_to_string(path.join(RUN)).unwrap();
    for (text, reason) in [
        ("", "run.json: is damaged"),
        ("[]", "run.json: is not of a run"),
        ("{\"format\": 2}", "has format 2; this oxvs reads 1"),
        ("{\"format\": 1}", "run.json: is damaged"),
    ] {
        fs::write(path.join(RUN), text).unwrap();
        let error = format!("{:#}", load(path).unwrap_err());
        assert!(error.contains(reason), "{text}: {error}");
        assert!(refused(path, run()).contains(reason), "{text}");
    }
    fs::write(path.join(RUN), good).unwrap();
    let samples = path.join(SAMPLES);
    fs::remove_file(&samples).unwrap();
    let elsewhere = path.join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    std::os::unix::fs::symlink(&elsewhere, &samples).unwrap();
    assert!(refused(path, run()).contains("samples.jsonl: cannot be opened"));
    assert_eq!(fs::read_to_string(&elsewhere).unwrap(), "precious");
    fs::remove_file(&samples).unwrap();
    fs::create_dir(&samples).unwrap();
    assert!(refused(path, run()).contains("samples.jsonl"));
    fs::remove_dir(&samples).unwrap();
    testkit::run(&["mkfifo", samples.to_str().unwrap()]);
    let error = format!("{:#}", load(path).unwrap_err());
    assert!(error.contains("is not a file"), "{error}");
}

#[test]
fn names_cannot_lead_out_of_the_directory() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path(), run()).unwrap();
    for name in ["..", "../x", "/etc", "", "a/b", ".x"] {
        assert!(store.configuration(name, "oxvs", "", &[]).is_err(), "{name}");
        assert!(store.configuration("S0.x", name, "", &[]).is_err(), "{name}");
    }
}

#[test]
fn what_was_skipped_is_told_once_and_not_when_it_was_made_good() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), run()).unwrap();
    store.append(skipped("it is not installed")).unwrap();
    store.append(skipped("it is not installed")).unwrap();
    assert_eq!(load(dir.path()).unwrap().skipped.len(), 1);
    store.append(record(0)).unwrap();
    assert_eq!(load(dir.path()).unwrap().skipped, []);
    store.append(skipped("it died")).unwrap();
    assert_eq!(load(dir.path()).unwrap().skipped.len(), 1);
}

#[test]
fn numbers_that_json_cannot_say_do_not_spoil_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = Store::open(dir.path(), run()).unwrap();
    let mut bad = sample(0);
    bad.metrics.insert("probe.share".to_owned(), f64::NAN);
    bad.load = f64::INFINITY;
    store.append(Record::Sample(Box::new(bad))).unwrap();
    let results = load(dir.path()).unwrap();
    assert_eq!(results.samples[0].metrics.len(), 1);
    assert_eq!(results.samples[0].remarks, ["probe.share is no number here"]);
}

#[test]
fn a_full_disk_is_told_and_what_was_recorded_stays() {
    testkit::skip!(unless root, "mount");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap().to_owned();
    testkit::run(&["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", &path]);
    let written = std::panic::catch_unwind(|| {
        let mut store = Store::open(Path::new(&path), run()).unwrap();
        let error = (0..10_000)
            .find_map(|n| store.append(record(n)).err())
            .expect("it does not fit");
        let taken = store.records().len();
        drop(store);
        (
            format!("{error:#}"),
            taken,
            repetitions(&load(Path::new(&path)).unwrap()).len(),
        )
    });
    testkit::run(&["umount", &path]);
    let (error, taken, kept) = written.unwrap();
    assert!(
        error.contains("samples.jsonl: the disk is full; what was recorded before is kept"),
        "{error}"
    );
    assert!(taken > 10 && taken == kept, "{taken} {kept}");
}
