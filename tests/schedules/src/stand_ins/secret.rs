//! No path has a key.

pub const KEY_START: &str = "key";

pub const PREFIX_LENGTH: usize = 8;
