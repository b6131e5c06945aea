//! Joins two network devices by a datapath without a switch: packets from one device leave by the
//! other, until standard input ends.
//!
//! `wire DEVICE DEVICE` (`afxdp:DEVICE` for an AF_XDP port) `[WORKERS [SPIN_MICROSECONDS]]`. For
//! measuring the datapath with real traffic; prints its counters at the end.

use dp::{Action, Datapath, Effect, PortNo, Slowpath, Translation, Upcall, WorkerControl};
use dp_user::{DpUser, Options};
use flow::{Field, Mask};
use nanos::Nanos;
use netdev::{AfxdpConfig, Spec};
use std::error::Error;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

struct Wire;

impl Slowpath for Wire {
    fn upcall(&self, upcall: &Upcall<'_>, _: Nanos) -> Translation {
        let mut mask = Mask::exact(Field::InPort);
        // As much as learning looks at.
        mask.add(Field::EthSrc);
        mask.add(Field::EthDst);
        Translation {
            actions: Arc::from([Action::Output(PortNo(3 - upcall.key.in_port().0))]),
            mask,
            deps: Default::default(),
            effects: Default::default(),
            credits: Default::default(),
            drop: None,
        }
    }

    fn refresh(&self, _: &[Effect], _: Nanos) {}

    fn port_failed(&self, port: PortNo) {
        println!("port {port} has failed");
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [one, two, rest @ ..] = &args[..] else {
        return Err("wire DEVICE DEVICE [WORKERS [SPIN_MICROSECONDS]]".into());
    };
    let mut options = Options::default();
    if let Some(workers) = rest.first() {
        options.workers = workers.parse()?;
    }
    if let Some(micros) = rest.get(1) {
        options.spin = Some(Duration::from_micros(micros.parse()?));
    }
    let datapath = DpUser::new(options, Arc::new(Wire), Arc::default())?;
    for (port, name) in [(PortNo(1), one), (PortNo(2), two)] {
        let spec = match name.strip_prefix("afxdp:") {
            Some(name) => Spec::Afxdp {
                name: name.to_owned(),
                config: AfxdpConfig::default(),
            },
            None => Spec::System { name: name.clone() },
        };
        let device = netdev::open(&spec)?;
        datapath.add_port(port, device)?;
    }
    println!("{one} and {two} are joined by {} workers", datapath.count());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for port in [PortNo(1), PortNo(2)] {
        println!("{:?}", datapath.port_counters(port));
    }
    println!("{:?}", datapath.cache_stats());
    Ok(())
}
