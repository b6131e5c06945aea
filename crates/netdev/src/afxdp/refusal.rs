//! Error texts, with advice, for AF_XDP ports that the kernel refuses.

use super::{AfxdpConfig, XdpMode};
use rustix::io::Errno;
use std::io;

/// The step that was refused.
pub(super) enum Refusal {
    /// Attaching the program.
    Attach(sys::Error),
    /// The socket of a queue.
    Queue(u32, sys::Error),
    /// Any other call.
    Call(sys::Error),
}

impl Refusal {
    fn error(&self) -> &sys::Error {
        match self {
            Refusal::Attach(error) | Refusal::Queue(_, error) | Refusal::Call(error) => error,
        }
    }

    fn errno(&self) -> Option<Errno> {
        self.error().errno().map(Errno::from_raw_os_error)
    }

    /// Whether the cause may be a kernel or driver that does not support packets in several
    /// buffers.
    pub(super) fn may_be_fragments(&self) -> bool {
        matches!(self.errno(), Some(Errno::INVAL | Errno::OPNOTSUPP))
    }

    /// Whether another program uses the device, in any mode.
    pub(super) fn is_taken(&self) -> bool {
        matches!(self.errno(), Some(Errno::BUSY | Errno::EXIST))
    }

    /// The error of a port.
    pub(super) fn explain(&self, mode: XdpMode, config: &AfxdpConfig, queues: Option<u32>) -> io::Error {
        let hint = self.hint(mode, config, queues);
        let kind = self.error().source.kind();
        let text = match hint {
            Some(hint) => format!("{}: {hint}", self.error()),
            None => self.error().to_string(),
        };
        io::Error::new(kind, text)
    }

    fn hint(&self, mode: XdpMode, config: &AfxdpConfig, queues: Option<u32>) -> Option<String> {
        let AfxdpConfig {
            queues: wanted,
            first_queue,
            ..
        } = *config;
        Some(match (self, self.errno()?) {
            (_, Errno::PERM | Errno::ACCESS) => {
                "AF_XDP needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF".to_owned()
            }
            (Refusal::Attach(_), Errno::BUSY | Errno::EXIST) => {
                "another XDP program is attached to the device (ip link set dev NAME xdp off takes it away)".to_owned()
            }
            (Refusal::Attach(_), Errno::OPNOTSUPP) => {
                "the driver has no place for XDP programs; options:xdp-mode=generic works with every driver".to_owned()
            }
            (Refusal::Attach(_), Errno::RANGE) => {
                "the MTU of the device, or of a veth's other end, is too large for XDP".to_owned()
            }
            (Refusal::Attach(_), Errno::NOSPC) => {
                "a veth's other end sends by more queues than it receives by (ethtool -L NAME rx N gives it more)"
                    .to_owned()
            }
            (Refusal::Attach(_), Errno::INVAL) => "AF_XDP ports need Linux 5.9".to_owned(),
            (Refusal::Queue(queue, _), Errno::INVAL) if queues.is_some_and(|queues| *queue >= queues) => format!(
                "queues of the device: {}; options:n_rxq={wanted} options:start-qid={first_queue} asks for number {queue} \
                 (ethtool -L NAME gives it more)",
                queues.unwrap_or(0)
            ),
            (Refusal::Queue(..), Errno::OPNOTSUPP) if mode == XdpMode::NativeZeroCopy => {
                "the driver has no zero copy; use options:xdp-mode=native or best-effort".to_owned()
            }
            (Refusal::Queue(queue, _), Errno::BUSY) => format!("queue {queue} belongs to another AF_XDP socket"),
            (Refusal::Queue(..), Errno::NOBUFS | Errno::NOMEM) => {
                "the process may not lock 8 MB of memory for each queue (ulimit -l, or CAP_IPC_LOCK)".to_owned()
            }
            _ => return None,
        })
    }
}
