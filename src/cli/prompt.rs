//! Passwords from a terminal, not echoed, and from standard input.

use std::io::{self, BufRead, Read as _, Write as _};

use anyhow::{Context as _, anyhow, ensure};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::password;

/// More than any password has, in bytes.
const ENOUGH: u64 = 4096;

/// The next line of `input`, without its end.
pub fn read_line(input: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = Vec::new();
    input.take(ENOUGH).read_until(b'\n', &mut line).context("cannot read the password")?;
    let text = line.strip_suffix(b"\n").unwrap_or(&line);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let text = str::from_utf8(text).map_err(|_| anyhow!("the password is not UTF-8"))?;
    Ok(text.to_owned())
}

/// Asks for a new password twice on the terminal.
pub fn ask_twice(tenant: &str) -> anyhow::Result<String> {
    // Quiet before the first question is asked, so that no letter of a quick answer is shown.
    let _quiet = Quiet::begin().context("cannot ask for a password")?;
    let first = ask(&format!("New panel password of {tenant}: "))?;
    password::check(&first)?;
    let second = ask("Once more: ")?;
    ensure!(first == second, "the two passwords differ; nothing was changed");
    Ok(first)
}

fn ask(question: &str) -> anyhow::Result<String> {
    let mut stderr = io::stderr();
    write!(stderr, "{question}").and_then(|()| stderr.flush()).context("cannot ask for a password")?;
    read_line(&mut io::stdin().lock())
}

/// The terminal on standard input shows nothing that is typed but the end of a line, until this is dropped.
struct Quiet {
    before: Termios,
}

impl Quiet {
    fn begin() -> io::Result<Quiet> {
        let before = tcgetattr(io::stdin())?;
        let mut quiet = before.clone();
        quiet.local_modes.remove(LocalModes::ECHO);
        quiet.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Now, &quiet)?;
        Ok(Quiet { before })
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_the_first_line_of_the_input() {
        let read = |mut bytes: &[u8]| read_line(&mut bytes).unwrap();
        assert_eq!(read(b"a secret word\n"), "a secret word");
        assert_eq!(read(b"a secret word\r\nsecond"), "a secret word");
        assert_eq!(read(b" spaces stay "), " spaces stay ");
        assert_eq!(read(b""), "");
        assert!(read_line(&mut &b"\xff\xfe"[..]).is_err());
        assert!(read(&[b'a'; 100_000]).len() <= 4096);
    }
}
