//! Passwords from the terminal and from standard input.

use std::io::{BufRead, Read as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, anyhow, ensure};
use signal_hook::consts::SIGINT;

use crate::password;

/// The maximum number of bytes that are read, more than any password has.
const MAX_BYTES: u64 = 4096;

/// Reads the next line of `input` and returns it without its end.
pub(super) fn read_line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = Vec::new();
    input.take(MAX_BYTES).read_until(b'\n', &mut line).context("cannot read the password")?;
    let text = line.strip_suffix(b"\n").unwrap_or(&line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let text = str::from_utf8(text).map_err(|_| anyhow!("the password is not UTF-8"))?;
    Ok(text.to_owned())
}

/// Prompts twice for a new password of `tenant` on the terminal, without echo.
pub(super) fn new_password(tenant: &str) -> anyhow::Result<String> {
    // On Ctrl-C, rpassword raises SIGINT before it restores the terminal. With a handler the
    // process survives the signal, and rpassword restores the terminal and returns an error.
    signal_hook::flag::register(SIGINT, Arc::new(AtomicBool::new(false)))
        .context("cannot handle signals")?;
    let first = prompt(&format!("New panel password of {tenant}: "))?;
    password::check(&first)?;
    let second = prompt("Repeat the password: ")?;
    ensure!(first == second, "the two passwords differ; nothing was changed");
    Ok(first)
}

fn prompt(text: &str) -> anyhow::Result<String> {
    rpassword::prompt_password(text).context("cannot read the password from the terminal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_the_input() {
        let read = |mut bytes: &[u8]| read_line(&mut bytes).unwrap();
        assert_eq!(read(b"a secret word\n"), "a secret word");
        assert_eq!(read(b"a secret word\r\nsecond"), "a secret word");
        assert_eq!(read(b" spaces remain "), " spaces remain ");
        assert_eq!(read(b""), "");
        assert!(read_line(&mut &b"\xff\xfe"[..]).is_err());
        assert!(read(&[b'a'; 100_000]).len() <= 4096);
    }
}
