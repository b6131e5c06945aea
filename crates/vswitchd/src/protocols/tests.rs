use super::*;
use wire::MacAddr;

/// A worker that is preempted while it holds the lock would otherwise delay the hello.
#[test]
fn a_hello_does_not_wait_for_the_tables() {
    let shared = Shared::new(0);
    let datapath = dp_user::DpUser::new(dp_user::Options::default(), shared.clone(), shared.changes.clone()).unwrap();
    let protocols = Protocols::start(shared.clone(), datapath, 0).unwrap();
    let facts = |mirrored| PortFacts {
        bridge: "br0".to_owned(),
        interface: "eth0".to_owned(),
        ofport: 1,
        device: Some(PortNo(7)),
        mac: MacAddr::ZERO,
        mirrored,
        up: true,
        speed: None,
        full_duplex: true,
    };
    let locked = shared.switch.write();
    std::thread::scope(|scope| {
        let (sent, is_sent) = std::sync::mpsc::channel();
        let protocols = &protocols;
        scope.spawn(move || {
            protocols.send(&facts(false), &[0; 60], false);
            sent.send("plain").unwrap();
            protocols.send(&facts(true), &[0; 60], false);
            sent.send("mirrored").unwrap();
        });
        assert_eq!(is_sent.recv_timeout(Duration::from_secs(20)), Ok("plain"));
        let mirrored = is_sent.recv_timeout(Duration::from_millis(100));
        assert!(mirrored.is_err(), "its copies wait for the tables");
        drop(locked);
        assert_eq!(is_sent.recv(), Ok("mirrored"));
    });
}
