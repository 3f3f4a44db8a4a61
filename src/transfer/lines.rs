//! Lines of limited length, of which a CSV or JSON Lines file consists.

use std::io::{self, BufRead, Read as _};

use super::MAX_ROW;

/// Reads lines of UTF-8. A line that is too long, or no UTF-8, is the last one: the cure concerns
/// the whole file.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    number: u64,
    bytes: Vec<u8>,
    /// Nothing is read from now on.
    pub(super) has_ended: bool,
}

/// The number of a line, from 1, and the line with its end, or the message about it.
type NumberedLine<'a> = (u64, Result<&'a str, &'static str>);

pub(super) const TOO_LONG: &str = "The row has more than 1 MiB. In CSV, perhaps a quote is not \
                                   closed. In JSON Lines, each line has one object.";

pub(super) const CARRIAGE_RETURN: &str =
    "The line has a carriage return; save the file with Windows or Unix line ends.";

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Lines<R> {
        Lines { source, number: 0, bytes: Vec::new(), has_ended: false }
    }

    /// The next line, without a byte order mark. `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        self.bytes.clear();
        let mut source = self.source.by_ref().take(MAX_ROW as u64 + 1);
        if self.has_ended || source.read_until(b'\n', &mut self.bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let line = if self.bytes.len() > MAX_ROW && !self.bytes.ends_with(b"\n") {
            Err(if self.bytes.contains(&b'\r') { CARRIAGE_RETURN } else { TOO_LONG })
        } else {
            str::from_utf8(&self.bytes).map_err(|_| encoding_message(&self.bytes))
        };
        self.has_ended = line.is_err();
        let mark = if self.number == 1 { "\u{feff}" } else { "" };
        let line = line.map(|line| line.strip_prefix(mark).unwrap_or(line));
        Ok(Some((self.number, line)))
    }
}

/// The message about a line that is not UTF-8.
fn encoding_message(line: &[u8]) -> &'static str {
    match line {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            "The file is UTF-16. Save it as UTF-8, or convert it: \
             iconv -f UTF-16 -t UTF-8 FILE > NEW"
        }
        _ => {
            "The file is not UTF-8; it is probably Windows-1252. Save it as \"CSV UTF-8\", or \
             convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &[u8]) -> Vec<(u64, Result<String, &'static str>)> {
        let mut lines = Lines::new(io::BufReader::with_capacity(7, text));
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().unwrap() {
            all.push((number, line.map(str::to_owned)));
        }
        all
    }

    #[test]
    fn a_line_that_is_too_long_is_the_last() {
        let mut text = "\u{feff}a\r\n\n".as_bytes().to_vec();
        for length in [MAX_ROW, MAX_ROW + 1] {
            text.resize(text.len() + length, b'x');
            text.push(b'\n');
        }
        text.extend_from_slice(b"c");
        let lines = lines(&text);
        assert_eq!(lines[..2], [(1, Ok("a\r\n".to_owned())), (2, Ok("\n".to_owned()))]);
        assert_eq!(lines[2].1.as_ref().map(String::len), Ok(MAX_ROW + 1));
        assert_eq!(lines[3..], [(4, Err(TOO_LONG))]);
    }

    #[test]
    fn a_line_that_is_no_utf_8_is_the_last() {
        for (text, words) in [
            (&b"a\nM\xfcller\nM\xfcller\n"[..], ["Windows-1252", "iconv"]),
            (b"a\n\xc3\n\xa9\n", ["Windows-1252", "iconv"]),
            (b"\xff\xfen\0a\0m\0e\0\n\0A\0", ["UTF-16", "iconv"]),
        ] {
            let lines = lines(text);
            let (_, Err(message)) = lines.last().unwrap() else { panic!("{lines:?}") };
            assert!(words.iter().all(|word| message.contains(word)), "{message}");
            assert!(lines.iter().rev().skip(1).all(|(_, line)| line.is_ok()), "{lines:?}");
        }
    }
}
