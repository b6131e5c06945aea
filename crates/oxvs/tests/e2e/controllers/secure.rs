//! Connections under TLS.

use super::*;
use crate::fixture::start;
use testkit::{Netns, Options};

/// Makes keys for a switch (`sw`) and a controller (`ctl`) in the switch's sandbox.
pub(crate) fn make_keys(switch: &Vswitch) {
    let dir = switch.sandbox.arg("");
    let make = format!(
        "cd {dir} && exec >pki.log 2>&1 && P='ovs-pki --dir={dir}/pki --log={dir}/pki.log' && $P init && $P req+sign sw switch && $P req+sign ctl controller"
    );
    testkit::try_run(&["sh", "-c", &make], &[]).expect_ok();
    let file = |name: &str| switch.sandbox.arg(name);
    switch.vsctl(&format!(
        "set-ssl {} {} {}",
        file("sw-privkey.pem"),
        file("sw-cert.pem"),
        file("pki/controllerca/cacert.pem")
    ));
}

/// The options of a client that uses these keys.
pub(crate) fn keys(switch: &Vswitch, name: &str, ca: &str) -> [String; 3] {
    let file = |name: &str| switch.sandbox.arg(name);
    [
        format!("--private-key={}", file(&format!("{name}-privkey.pem"))),
        format!("--certificate={}", file(&format!("{name}-cert.pem"))),
        format!("--ca-cert={}", file(&format!("pki/{ca}/cacert.pem"))),
    ]
}

#[test]
fn a_long_answer_under_tls_arrives_whole_where_socket_buffers_are_small() {
    let needed = ["ovs-ofctl", "ovs-vsctl", "ovs-pki", "openssl", "setpriv", "ip"];
    if let Some(reason) = testkit::missing(true, &needed) {
        skip!("{reason}");
    }
    if stand_in() {
        skip!("the sandbox's ovsdb-server of Debian is not started with keys");
    }
    const RULES: usize = 2000;
    let ns = Netns::new("tls");
    let small = "cd /proc/sys/net/ipv4 && echo 4096 8192 8192 | tee tcp_wmem tcp_rmem";
    ns.run(&["sh", "-c", small]);
    let switch = start(Options {
        netns: Some(ns.name().to_owned()),
        ..Options::default()
    });
    dummy_bridge(&switch, "br0", &["p1"]);
    make_keys(&switch);
    switch.vsctl("set-controller br0 pssl:6653:127.0.0.1");
    let rules: String = (0..RULES)
        .map(|n| format!("udp,nw_src=10.0.{}.{},actions=output:1\n", n / 250, n % 250))
        .collect();
    let file = switch.sandbox.arg("rules");
    std::fs::write(&file, rules).expect("a file");
    switch
        .tool("ovs-ofctl", &["--bundle", "--timeout=60", "add-flows", "br0", &file])
        .expect_ok();
    let keys = keys(&switch, "ctl", "switchca");
    let ask = |words: &[&str]| {
        let all = keys.iter().map(String::as_str).chain(words.iter().copied());
        let all: Vec<&str> = std::iter::once("ovs-ofctl").chain(all).collect();
        ns.try_run(&all, &switch.sandbox.env())
    };
    eventually("it listens", || {
        ask(&["--timeout=5", "show", "ssl:127.0.0.1:6653"]).ok().then_some(())
    });
    for _ in 0..5 {
        let shown = ask(&["--timeout=20", "dump-flows", "ssl:127.0.0.1:6653"]).expect_ok();
        assert_eq!(shown.matches("nw_src").count(), RULES);
    }
}
