//! Guests: skipped with a message if QEMU is not installed.

use lab::guest::{Finished, Guest, Kernel, Output};
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

/// The kernel, where guests can be run at all.
fn kernel() -> Option<Kernel> {
    if !["/usr/bin", "/bin"]
        .iter()
        .any(|d| std::path::Path::new(d).join("qemu-system-x86_64").exists())
    {
        eprintln!("skipped: qemu-system-x86_64 is not installed");
        return None;
    }
    match Kernel::fetch() {
        Ok(kernel) => Some(kernel),
        Err(error) => {
            eprintln!("skipped: {error:#}");
            None
        }
    }
}

fn words(command: &[&str]) -> Vec<String> {
    command.iter().map(|word| (*word).to_owned()).collect()
}

#[test]
fn a_command_prints_leaves_files_and_ends_with_its_status() {
    let Some(kernel) = kernel() else { return };
    let out = tempfile::tempdir().unwrap();
    let guest = Guest {
        modules: vec!["openvswitch".into(), "8021q".into()],
        files: vec![("etc/told".into(), "Cargo.toml".into())],
        ..Guest::default()
    };
    let command = words(&[
        "sh",
        "-c",
        "uname -r; lsmod | grep -o '^openvswitch'; cp /etc/told /out/; echo \"it's\"; exit 7",
    ]);
    let mut printed = Vec::new();
    let limit = Duration::from_secs(120);
    let finished = guest.run(&kernel, &command, Output::Archive(out.path()), limit, &mut printed);
    assert_eq!(finished.unwrap(), Finished { status: 7 });
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(printed, format!("{}\nopenvswitch\nit's\n", kernel.version()));
    let told = std::fs::read_to_string(out.path().join("told")).unwrap();
    assert_eq!(told, std::fs::read_to_string("Cargo.toml").unwrap());
}

#[test]
fn a_guest_answers_on_its_input_and_output() {
    let Some(kernel) = kernel() else { return };
    let machine = Guest::default().spawn(&kernel, &words(&["cat"])).unwrap();
    let mut stream = machine.stream();
    let mut heard = String::new();
    stream.write_all(b"hello\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    BufReader::new(stream).read_line(&mut heard).unwrap();
    assert_eq!(heard, "hello\n", "{}", machine.console());
}

#[test]
fn what_a_guest_cannot_have_is_named() {
    let Some(kernel) = kernel() else { return };
    let run = |guest: Guest| {
        let limit = Duration::from_secs(60);
        let ended = guest.run(&kernel, &words(&["true"]), Output::None, limit, &mut std::io::sink());
        format!("{:#}", ended.unwrap_err())
    };
    let modules = vec!["sch_none_such".to_owned()];
    let error = run(Guest {
        modules,
        ..Guest::default()
    });
    assert_eq!(
        error,
        format!("kernel {} has no module sch_none_such", kernel.version())
    );
    let programs = vec!["no-such-program".to_owned()];
    let error = run(Guest {
        programs,
        ..Guest::default()
    });
    assert_eq!(error, "no program no-such-program for the guest");
}
