//! Properties of a device that the control plane passes on, so that workers need not ask the
//! kernel.

use netdev::{Netdev, State};

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceFacts {
    /// The kernel's number; 0 if it has none.
    pub(crate) ifindex: u32,
    /// The link's speed in bit/s, if it is known: `Command::Link` updates it.
    pub(crate) speed: Option<u64>,
}

impl DeviceFacts {
    /// Asks the kernel.
    pub(crate) fn of(device: &dyn Netdev) -> DeviceFacts {
        device.state().map_or_else(
            |_| DeviceFacts::default(),
            |state| DeviceFacts {
                ifindex: state.ifindex,
                speed: DeviceFacts::speed_of(&state),
            },
        )
    }

    /// The link's speed in bit/s, if it is known: not while the link is down.
    pub(crate) fn speed_of(state: &State) -> Option<u64> {
        state.speed.filter(|speed| *speed > 0)
    }
}
