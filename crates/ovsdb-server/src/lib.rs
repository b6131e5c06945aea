//! ovsdb-server
