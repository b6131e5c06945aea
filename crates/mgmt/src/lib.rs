//! mgmt
