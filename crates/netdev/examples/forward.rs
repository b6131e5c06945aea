//! Forwards all packets between two devices, without a switch: measures the cost of the devices.
//!
//! `forward DEVICE DEVICE [BATCH]` runs until it is killed, in the network namespace it is started
//! in.

use netdev::{Frame, Rx, Spec, Tx, TxReport};
use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;

type Queues = (Box<dyn Rx>, Box<dyn Tx>);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([a, b] | [a, b, _]) = arguments.as_slice() else {
        return Err("usage: forward DEVICE DEVICE [BATCH]".into());
    };
    let batch = arguments.get(2).map_or(Ok(32), |batch| batch.parse())?;
    let open = |name: &String| -> Result<Queues, Box<dyn Error>> {
        let device = netdev::open(&Spec::System { name: name.clone() })?;
        let rx = device.open_rx()?.pop().ok_or("the device has no receive queue")?;
        Ok((rx, device.open_tx()?))
    };
    let (mut rx_a, mut tx_a) = open(a)?;
    let (mut rx_b, mut tx_b) = open(b)?;
    let mut frames: Vec<Frame> = Vec::with_capacity(batch);
    let mut lost = TxReport::default();
    loop {
        let mut moved = 0;
        for (rx, tx) in [(&mut rx_a, &mut tx_b), (&mut rx_b, &mut tx_a)] {
            let n = rx.recv(&mut frames, batch)?;
            if n > 0 {
                moved += n;
                let report = tx.send(&mut frames);
                let before = lost.dropped + lost.errors + lost.too_big + lost.down;
                lost += report;
                if lost.dropped + lost.errors + lost.too_big + lost.down > before {
                    eprintln!("{lost:?}");
                }
            }
        }
        if moved == 0 {
            let mut fds = [
                PollFd::from_borrowed_fd(rx_a.fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(rx_b.fd(), PollFlags::IN),
            ];
            poll(&mut fds, None)?;
        }
    }
}
