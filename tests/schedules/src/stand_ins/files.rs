//! A disk with space.

use std::io;
use std::path::Path;

pub fn free_space(_: &Path) -> io::Result<(u64, Option<String>)> {
    Ok((u64::MAX, None))
}
