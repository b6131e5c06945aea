//! The tracker from outside: packets in, states out, on virtual time.

mod basics;
mod flood;
mod model;
mod nat;
mod packets;
mod threads;
