//! Properties of a device that the control plane passes on, so that workers need not ask the
//! kernel.

use netdev::{Netdev, State};

/// See the module's page.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeviceFacts {
    /// The kernel's number; 0 where it has none.
    pub(crate) ifindex: u32,
    /// Of its link in bit/s, where it is known: `Command::Link` brings it up to date.
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

    /// The speed of a device's link in bit/s, where it is known: not while it is down.
    pub(crate) fn speed_of(state: &State) -> Option<u64> {
        state.speed.filter(|speed| *speed > 0)
    }
}
