//! Lines of limited length, of which a CSV or JSON Lines file consists.

use std::io::{self, BufRead, Read as _};

use super::MAX_ROW;

/// Reads lines.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    number: u64,
    bytes: Vec<u8>,
}

/// The number of a line, from 1, and the line with its end, or `None` in its place if it has more
/// than [`MAX_ROW`] bytes.
type NumberedLine<'a> = (u64, Option<&'a [u8]>);

impl<R: BufRead> Lines<R> {
    pub(super) fn new(source: R) -> Lines<R> {
        Lines { source, number: 0, bytes: Vec::new() }
    }

    /// The next line; `None` at the end of the file.
    pub(super) fn next(&mut self) -> io::Result<Option<NumberedLine<'_>>> {
        self.bytes.clear();
        let limit = MAX_ROW as u64 + 1;
        if self.source.by_ref().take(limit).read_until(b'\n', &mut self.bytes)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        let is_whole = self.bytes.len() <= MAX_ROW || self.bytes.ends_with(b"\n");
        if !is_whole {
            self.source.skip_until(b'\n')?;
        }
        Ok(Some((self.number, is_whole.then_some(&self.bytes))))
    }
}

/// The message about a line that is not UTF-8.
pub(super) fn encoding_message(line: &[u8]) -> &'static str {
    match line {
        [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => {
            "The file is UTF-16. Save it as UTF-8, or convert it: \
             iconv -f UTF-16 -t UTF-8 FILE > NEW"
        }
        _ => {
            "The row is not UTF-8; the file is probably Windows-1252. Save it as \"CSV UTF-8\", \
             or convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_skipped_and_counted() {
        let mut text = b"a\r\n\n".to_vec();
        for length in [MAX_ROW, MAX_ROW + 1] {
            text.resize(text.len() + length, b'x');
            text.push(b'\n');
        }
        text.extend_from_slice(b"c");
        let mut lines = Lines::new(io::BufReader::with_capacity(7, &*text));
        assert_eq!(lines.next().unwrap(), Some((1, Some(&b"a\r\n"[..]))));
        assert_eq!(lines.next().unwrap(), Some((2, Some(&b"\n"[..]))));
        assert!(matches!(lines.next().unwrap(), Some((3, Some(_)))));
        assert_eq!(lines.next().unwrap(), Some((4, None)));
        assert_eq!(lines.next().unwrap(), Some((5, Some(&b"c"[..]))));
        assert_eq!(lines.next().unwrap(), None);
    }
}
