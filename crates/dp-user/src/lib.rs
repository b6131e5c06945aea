//! dp-user
