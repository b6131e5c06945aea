//! Counters from a switch's control socket, over one connection.

use super::drops;
use super::running::Tools;
use crate::bed::DeviceCounters;
use crate::results::Loss;
use crate::systems::gauge::{Gauge, KernelGauge, next};
use crate::systems::layout::Layout;
use anyhow::{Context, Result, bail};
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(2);

pub(super) struct SwitchGauge {
    tools: Tools,
    processes: Vec<u32>,
    layout: Layout,
    kernel: KernelGauge,
    /// Of the switch's namespace.
    devices: DeviceCounters,
    control: BufReader<UnixStream>,
    asked: u64,
}

impl SwitchGauge {
    pub(super) fn new(
        tools: Tools,
        processes: Vec<u32>,
        control: &Path,
        (namespace, layout): (&str, &Layout),
    ) -> Result<SwitchGauge> {
        let stream = UnixStream::connect(control).with_context(|| control.display().to_string())?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(SwitchGauge {
            tools,
            processes,
            layout: layout.clone(),
            kernel: KernelGauge::new(namespace, layout)?,
            devices: DeviceCounters::of(namespace)?,
            control: BufReader::new(stream),
            asked: 0,
        })
    }

    /// A command of the control socket.
    fn ask(&mut self, method: &str, arguments: &[&str]) -> Result<String> {
        self.asked += 1;
        let request = json!({ "method": method, "params": arguments, "id": self.asked });
        self.control.get_mut().write_all(request.to_string().as_bytes())?;
        let answer = next(&mut self.control).with_context(|| method.to_owned())?;
        match (answer["result"].as_str(), &answer["error"]) {
            (Some(text), _) => Ok(text.to_owned()),
            (None, error) => bail!("{method}: {error}"),
        }
    }
}

impl Gauge for SwitchGauge {
    fn processes(&self) -> &[u32] {
        &self.processes
    }

    fn queues(&mut self) -> Result<BTreeMap<String, u64>> {
        if self.tools != Tools::Oxvs {
            return self.kernel.queues();
        }
        let places = self.layout.places();
        let scheduled = self.layout.ports().filter(|(_, port)| port.port.has_queue());
        let devices: Vec<String> = scheduled.map(|(_, port)| port.device.clone()).collect();
        let mut queues = BTreeMap::new();
        for device in devices {
            let waiting = waiting(&self.ask("qos/show", &[&device])?);
            queues.insert(places.get(&device).cloned().unwrap_or(device), waiting);
        }
        Ok(queues)
    }

    fn drops(&mut self) -> Result<u64> {
        let places = self.layout.places();
        let show = self.ask("dpctl/show", &["-s"])?;
        let packets = |losses: &[Loss]| losses.iter().map(|loss| loss.packets).sum::<u64>();
        Ok(match self.tools {
            Tools::Oxvs => {
                let kernel = self.devices.counters()?;
                let of_port = |port: &drops::PortDrops| {
                    let kernel = kernel.get(&port.name).copied().unwrap_or_default();
                    packets(&drops::of_oxvs_port(port, &places, kernel))
                };
                let ports = drops::ports(&show);
                let own = ports.iter().filter(|port| places.contains_key(&port.name));
                own.map(of_port).sum()
            }
            Tools::OpenVswitch => {
                let coverage = self.ask("coverage/show", &[])?;
                drops::lost_upcalls(&show) + drops::of_coverage(&coverage) + packets(&self.kernel.losses()?)
            }
        })
    }

    fn own_processes(&self) -> Vec<u32> {
        self.kernel.own_processes()
    }
}

/// Packets in the queues of `qos/show`, and those that have left them and wait for the device.
fn waiting(text: &str) -> u64 {
    let numbers = text.lines().filter_map(|line| {
        let (name, number) = line.trim().split_once(": ")?;
        ["backlog_packets", "held_packets"]
            .contains(&name)
            .then(|| number.parse::<u64>().ok())?
    });
    numbers.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_in_all_queues_and_before_the_device() {
        let text = "QoS: p linux-htb\nheld_packets: 2\nheld_bytes: 9\n\nDefault:\n  tx_packets: 7\n  backlog_packets: 3\n\nQueue 1:\n  backlog_packets: 4\n  backlog_bytes: 90\n";
        assert_eq!(waiting(text), 9);
        assert_eq!(waiting("QoS not configured on p\n"), 0);
    }
}
