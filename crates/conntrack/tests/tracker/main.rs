//! The tracker from outside: packets in, states out, on virtual time.

mod alg;
mod basics;
mod bypass;
mod flood;
mod fragments;
mod handover;
mod kernel;
mod model;
mod nat;
mod oracle;
mod packets;
mod show;
mod threads;
