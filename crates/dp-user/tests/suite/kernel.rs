//! The datapath between devices of the kernel.

use crate::common::{FakeSwitch, eventually, output, translation};
use dp::{Datapath, PortNo};
use dp_user::{DpUser, Options};
use flow::Field;
use netdev::Spec;
use std::sync::Arc;
use testkit::{Netns, skip};

/// Two hosts on veths, and a namespace in which a datapath joins them.
struct Hosts {
    one: Netns,
    two: Netns,
    middle: Netns,
    datapath: Arc<DpUser>,
    switch: Arc<FakeSwitch>,
}

impl Hosts {
    fn new() -> Hosts {
        let (one, two, middle) = (Netns::new("one"), Netns::new("two"), Netns::new("middle"));
        middle.veth("oxa", &one, "eth0");
        middle.veth("oxb", &two, "eth0");
        one.address("eth0", "192.0.2.1/24");
        two.address("eth0", "192.0.2.2/24");
        let switch = FakeSwitch::new(|key| {
            let to = 3 - key.in_port().0;
            translation(&[output(to)], &[Field::InPort, Field::EthSrc, Field::EthDst])
        });
        // Workers open devices too: they have to be the namespace's, as their parent is.
        let datapath = middle.enter(|| {
            let options = Options {
                workers: 2,
                ..Options::default()
            };
            DpUser::new(options, switch.clone(), Arc::default()).unwrap()
        });
        let hosts = Hosts {
            one,
            two,
            middle,
            datapath,
            switch,
        };
        hosts.add_port(1, "oxa");
        hosts.add_port(2, "oxb");
        hosts
    }

    fn add_port(&self, port: u32, name: &str) {
        self.middle.enter(|| {
            let device = netdev::open(&Spec::System { name: name.to_owned() }).unwrap();
            self.datapath.add_port(PortNo(port), device).unwrap();
        });
    }

    fn ping(&self) {
        eventually("the hosts reach each other", || {
            let ping = ["ping", "-c", "1", "-W", "1", "192.0.2.2"];
            self.one.try_run(&ping, &[]).ok()
        });
    }
}

#[test]
fn a_port_whose_link_goes_down_and_up_works_again() {
    skip!(unless root, "ip", "ping");
    let hosts = Hosts::new();
    hosts.ping();
    for _ in 0..3 {
        hosts.middle.ip("link set oxa down");
        hosts.middle.ip("link set oxa up");
        hosts.ping();
    }
    hosts.two.ip("link set eth0 down");
    hosts.two.ip("link set eth0 up");
    hosts.ping();
    assert!(hosts.switch.failed.lock().is_empty());
}

#[test]
fn a_device_that_is_deleted_is_reported_once_and_its_successor_works() {
    skip!(unless root, "ip", "ping");
    let hosts = Hosts::new();
    hosts.ping();
    hosts.middle.ip("link del oxa");
    eventually("the port is reported", || !hosts.switch.failed.lock().is_empty());
    hosts.middle.veth("oxa", &hosts.one, "eth0");
    hosts.one.address("eth0", "192.0.2.1/24");
    hosts.datapath.del_port(PortNo(1)).unwrap();
    hosts.add_port(1, "oxa");
    hosts.ping();
    assert_eq!(*hosts.switch.failed.lock(), [PortNo(1)]);
}
