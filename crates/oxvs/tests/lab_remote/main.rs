//! A run whose switch is on another machine. The two machines are namespaces that share neither
//! network, nor processes, nor the names of network namespaces: two cables join them, one for the
//! wire and one for what stands in for ssh.

mod machines;

use lab::guest::{Finished, Guest, Kernel, Output};
use lab::results::load;
use lab::systems::named;
use lab::topology::Topology;
use machines::{SMALL, Two, measuring, remote};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;
use testkit::{eventually_within, skip};

const TOOLS: [&str; 7] = ["ip", "tc", "ethtool", "unshare", "nsenter", "python3", "ping"];

#[test]
fn a_switch_on_another_machine_is_measured_and_nothing_is_left_on_either() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g);
    let two = Two::new(1.0);
    let program = env!("CARGO_BIN_EXE_oxvs");
    let (output, said) = two.run(&format!("--switch oxvs --switch bridge {}", remote(program)));
    assert!(output.status.success(), "{said}");
    two.are_clean();
    let results = two.results();
    let run = &results.run;
    let second = run.remote.as_ref().unwrap();
    assert_eq!(
        (second.host.as_str(), &second.machine.kernel),
        ("192.0.2.2", &run.machine.kernel)
    );
    assert!(second.wire.starts_with("wire-here=wire-there, "), "{}", second.wire);
    assert!(run.systems["oxvs"].contains("build"), "{:?}", run.systems);
    assert_eq!(results.samples.len(), 2, "{said}");
    for sample in &results.samples {
        let rtt = sample.metrics["probe.rtt"];
        assert!(
            rtt > 6000.0 && rtt < 60_000.0,
            "two cables of 1 and 2 ms, both ways: {rtt}"
        );
        assert!(sample.metrics["flood.loss"] > 0.5, "{sample:?}");
        let at_cable = sample
            .losses
            .iter()
            .find(|loss| loss.place.ends_with("towards C"))
            .unwrap();
        assert!(
            at_cable.cause == "cable" && at_cable.packets > 1000,
            "{:?}",
            sample.losses
        );
        assert!(sample.cpu["remote"] > 0.0, "{:?}", sample.cpu);
        assert_eq!(sample.cpu["system"] > 0.0, sample.system == "oxvs", "{:?}", sample.cpu);
        assert!(
            sample
                .remarks
                .iter()
                .any(|remark| remark.contains("the switch runs on 192.0.2.2")),
            "{:?}",
            sample.remarks
        );
    }
    let configuration = results
        .configurations
        .iter()
        .find(|(_, system, _)| system == "oxvs")
        .unwrap();
    assert!(configuration.2.contains("S1-A"), "{configuration:?}");
    let report = two.here.run(&format!(
        "cd {} && {program} lab report out && cat out/report/index.html",
        two.dir.path().display()
    ));
    assert!(
        report.contains("wire-here=wire-there") && report.contains("Its kernel"),
        "no second machine"
    );
}

#[test]
fn what_needs_the_hosts_and_the_switch_on_one_machine_is_left_out_with_the_reason() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g);
    let two = Two::new(0.2);
    let program = env!("CARGO_BIN_EXE_oxvs");
    let wire = remote(program);
    let (output, said) = two.run(&format!(
        "S3.match S5.cluster S1.mininet S5.failover S5.liveness --switch oxvs --switch mininet --budget 0.01 {wire}"
    ));
    assert!(output.status.success() || output.status.code() == Some(1), "{said}");
    // What is left out for one reason is one line.
    let mininet = match named("mininet").unwrap().missing(&Topology::default()) {
        None => vec![
            "S3.match on mininet: OpenFlow does not reach".to_owned(),
            "S1.mininet on mininet: Mininet's hosts".to_owned(),
        ],
        Some(reason) => vec![format!(
            "S3.match on mininet, S1.mininet on mininet: 192.0.2.2: {reason}"
        )],
    };
    for expected in &mininet {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    for expected in [
        "S5.cluster on oxvs: a cluster's bridges",
        "S5.failover on oxvs: cables of another machine cannot be cut yet",
        "S5.liveness on oxvs: links of another machine",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn a_machine_that_cannot_be_used_is_an_error_with_the_remedy() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g);
    let two = Two::new(0.2);
    let good = env!("CARGO_BIN_EXE_oxvs");
    let dir = two.dir.path();
    // Another build: a program is the same with something behind it.
    std::fs::create_dir(dir.join("other")).unwrap();
    for (name, file) in [("oxvs", good), ("oxvs-lab", env!("CARGO_BIN_EXE_oxvs-lab"))] {
        let mut bytes = std::fs::read(file).unwrap();
        bytes.extend(b"another build");
        std::fs::write(dir.join("other").join(name), bytes).unwrap();
        std::fs::set_permissions(dir.join("other").join(name), PermissionsExt::from_mode(0o755)).unwrap();
    }
    let program = |name: &str, script: &str| {
        let file = dir.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
    };
    program("greeter", "echo Welcome to this machine\nsleep 5");
    // The connection breaks before it is known what there is to run.
    program("short", "./ssh \"$@\" | head -n 1");
    let other = format!("{}/other/oxvs", dir.display());
    let greeter = format!("{}/greeter", dir.display());
    let wire = |wire: &str| format!("--ssh ./ssh --remote 192.0.2.2 --wire {wire} --tag vxlan --remote-program {good}");
    let cases = [
        (wire("wire-here=nowhere"), "192.0.2.2: the wire's device nowhere"),
        (
            wire("nowhere=wire-there"),
            "the wire's device nowhere; 'ip link' lists the devices",
        ),
        (
            remote(good).replace("192.0.2.2", "192.0.2.77"),
            "192.0.2.77: the connection has ended (exit status: 255)",
        ),
        (remote(&other), "192.0.2.2 has oxvs-lab of the build"),
        (remote(&greeter), "it answers 'Welcome to this machine'"),
        (remote("/nowhere/oxvs"), "192.0.2.2: the connection has ended"),
        (
            remote(good).replace("--ssh ./ssh", "--ssh ./short"),
            "192.0.2.2: the connection has ended",
        ),
    ];
    for (args, expected) in cases {
        let (output, said) = two.run(&format!("--switch oxvs {args}"));
        assert_eq!(output.status.code(), Some(1), "{args}: {said}");
        assert!(said.contains(expected), "{args}: {expected}: {said}");
        assert!(!dir.join("out").exists(), "{args}");
    }
    let other = "ip link add other type vxlan id 100 local 198.51.100.1 remote 198.51.100.2 dev wire-here dstport 4789";
    two.here.run(other);
    let (_, said) = two.run(&format!("--switch oxvs {}", remote(good)));
    assert!(said.contains("the wire has a cable of that tag"), "{said}");
    two.here.run("ip link del other");
    two.there.run("ip link set wire-there down");
    let (_, said) = two.run(&format!("--switch oxvs {}", remote(good)));
    assert!(said.contains("'ip link set wire-there up' sets it up"), "{said}");
    two.are_clean();
}

#[test]
fn a_run_that_is_killed_leaves_nothing_on_either_machine() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g);
    let two = Two::new(30.0);
    let mut run = measuring(&two);
    assert!(!two.here.is_clean() && !two.there.is_clean());
    two.here
        .run(&format!("kill -9 $(cat {}/pid)", two.dir.path().display()));
    run.wait().unwrap();
    two.are_clean();
}

#[test]
fn a_machine_that_dies_in_the_middle_is_recorded_and_leaves_nothing() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g);
    let two = Two::new(30.0);
    let run = measuring(&two);
    // The agent; its testbed's warden stays, and removes the testbed.
    two.there
        .run("kill -9 $(grep -l remote-switc[h] /proc/[0-9]*/cmdline | cut -d/ -f3)");
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("192.0.2.2: the connection has ended"), "{said}");
    assert!(said.contains("repetitions failed"), "{said}");
    two.are_clean();
}

#[test]
fn a_switch_is_measured_over_real_ssh() {
    let [a, b, c, d, e, f, g] = TOOLS;
    skip!(unless root, a, b, c, d, e, f, g, "sshd", "ssh", "ssh-keygen");
    let two = Two::new(0.5);
    let dir = two.dir.path().display().to_string();
    for key in ["host", "user"] {
        testkit::run(&[
            "ssh-keygen",
            "-q",
            "-t",
            "ed25519",
            "-N",
            "",
            "-f",
            &format!("{dir}/{key}"),
        ]);
    }
    let options = [
        "ListenAddress=192.0.2.2",
        "Port=2222",
        &format!("HostKey={dir}/host"),
        &format!("AuthorizedKeysFile={dir}/user.pub"),
        "PermitRootLogin=yes",
        "StrictModes=no",
        "UsePAM=no",
        "PidFile=none",
    ];
    let sshd = format!(
        "PATH=$PATH:/usr/sbin; mkdir /run/sshd; exec $(command -v sshd) -D -e -f /dev/null -o {} 2>{dir}/sshd.log",
        options.join(" -o ")
    );
    let mut sshd = two.there.command(&sshd).spawn().unwrap();
    eventually_within(Duration::from_secs(20), "sshd listens", || {
        two.there.run("ss -tln").contains(":2222").then_some(())
    });
    let ssh = "ssh -F /dev/null -p 2222 -i user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
    let remote = remote(env!("CARGO_BIN_EXE_oxvs"))
        .replace("--ssh ./ssh", &format!("--ssh '{ssh}'"))
        .replace("192.0.2.2", "root@192.0.2.2");
    let (output, said) = two.run(&format!("--switch oxvs {remote}"));
    let log = std::fs::read_to_string(two.dir.path().join("sshd.log")).unwrap();
    assert!(output.status.success(), "{said}{log}");
    assert_eq!(two.results().samples.len(), 1, "{said}");
    let (_, said) = two.run(&format!("--switch oxvs {}", remote.replace("-p 2222", "-p 2223")));
    assert!(said.contains("Connection refused; ssh must reach it as root"), "{said}");
    two.are_clean();
    // Its child is ended with the machine.
    sshd.kill().unwrap();
    sshd.wait().unwrap();
}

/// In a guest, whose kernel has VLAN devices: both machines are there, one of them a namespace.
const GUEST: &str = r#"
set -e
# The two share their processors.
export OXVS_LAB_ANY_LOAD=
cat >/ssh <<'END'
while [ "$1" = -o ]; do shift 2; done
machine=$1; shift
exec ip netns exec "$machine" sh -c "$*"
END
ip netns add far
ip link add wire-here type veth peer name wire-there netns far
ip link set wire-here up
ip -n far link set wire-there up
# A guest's clock may be off the hardware's, which makes a sample void: the next run takes it.
for _ in 1 2 3; do
    oxvs-lab run /etc/small.toml --switch oxvs --switch bridge --ssh "sh /ssh" --remote far --wire wire-here=wire-there --out /out >/said 2>&1 ||
        { cat /said; exit 1; }
    cat /said
    grep -q "do not count" /said || break
done
for _ in $(seq 50); do
    left=$(ls /run/netns | grep -v ^far; ip -d link | grep 802.1Q; ip -n far -d link | grep 802.1Q) || exit 0
    sleep 0.2
done
echo "left: $left"
exit 1
"#;

#[test]
fn vlans_carry_the_cables_where_the_kernel_has_them_tagged_frames_too() {
    skip!(unless long);
    skip!(unless "qemu-system-x86_64", "ethtool");
    let kernel = match Kernel::fetch() {
        Ok(kernel) => kernel,
        Err(error) => skip!("{error:#}"),
    };
    let dir = tempfile::tempdir().unwrap();
    let scenario = dir.path().join("small.toml");
    // A's frames have a tag of their own.
    let text = SMALL
        .replace(
            "prefix = 24 }] },\n    { name = \"B\"",
            "prefix = 24, vlan = 7 }] },\n    { name = \"B\"",
        )
        .replace(
            "b = { at = \"S1\" } },\n    { a = { at = \"S1\" }",
            "b = { at = \"S1\", port = { trunk = [7] } } },\n    { a = { at = \"S1\" }",
        )
        .replace(
            "b = { at = \"S2\" }, delay = 1000",
            "b = { at = \"S2\", port = { access = 7 } }, delay = 1000",
        )
        .replace(
            "b = { at = \"S1\" }, rate",
            "b = { at = \"S1\", port = { access = 7 } }, rate",
        );
    let text = text
        .replace(
            "{ at = \"S1\" }, b = { at = \"S2\" }",
            "{ at = \"S1\", port = { trunk = [7] } }, b = { at = \"S2\", port = { trunk = [7] } }",
        )
        .replace("\"SECONDS\"", "1");
    assert_eq!(text.matches('7').count(), 6, "{text}");
    std::fs::write(&scenario, text).unwrap();
    let programs = [
        "ethtool",
        "bridge",
        env!("CARGO_BIN_EXE_oxvs"),
        env!("CARGO_BIN_EXE_oxvs-lab"),
    ];
    let modules = [
        "8021q",
        "af_packet",
        "bridge",
        "sch_tbf",
        "sch_ingress",
        "cls_flower",
        "cls_bpf",
        "act_mirred",
        "act_gact",
        "tun",
        "veth",
    ];
    let guest = Guest {
        programs: programs.map(str::to_owned).into(),
        files: vec![("etc/small.toml".into(), scenario)],
        modules: modules.map(str::to_owned).into(),
        memory: 3072,
        processors: 2,
        ..Guest::default()
    };
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let (command, mut printed) = (["sh", "-c", GUEST].map(str::to_owned), Vec::new());
    let limit = Duration::from_secs(280);
    let finished = guest.run(&kernel, &command, Output::Archive(&out), limit, &mut printed);
    let printed = String::from_utf8_lossy(&printed).into_owned();
    assert_eq!(finished.unwrap(), Finished { status: 0 }, "{printed}");
    let results = load(&out).unwrap();
    assert_eq!(results.samples.len(), 2, "{printed}");
    for sample in &results.samples {
        assert!(
            sample.metrics["probe.rtt"] > 6000.0 && sample.metrics["flood.loss"] > 0.5,
            "{sample:?}"
        );
    }
    let remark = |sample: &lab::results::Sample| sample.remarks.iter().any(|remark| remark.contains("VLAN tag"));
    assert!(results.samples.iter().all(remark));
}
