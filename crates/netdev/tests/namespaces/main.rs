//! Devices of the kernel, in network namespaces of the tests' own.

mod afxdp;
mod devices;
mod forwarding;
mod lab;
mod rings;
mod room;
