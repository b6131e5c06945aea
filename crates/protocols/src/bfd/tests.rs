mod data;
mod datagrams;
mod hostile;
mod lab;
mod packets;
mod sessions;
mod transitions;
