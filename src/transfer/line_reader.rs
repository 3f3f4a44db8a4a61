//! A streaming reader of lines with a limited length, for JSON Lines.

use std::io::{self, BufRead};

use super::MAX_ROW;

/// Reads lines and skips blank ones.
#[derive(Debug)]
pub(super) struct LineReader<R> {
    source: R,
    line: u64,
    bytes: Vec<u8>,
}

/// The number of a line, from 1, and its content, or the message if it is too long.
type Line<'a> = (u64, Result<&'a [u8], &'static str>);

impl<R: BufRead> LineReader<R> {
    /// Returns a reader of `source`.
    pub(super) fn new(source: R) -> LineReader<R> {
        LineReader { source, line: 0, bytes: Vec::new() }
    }

    /// Reads the next line that is not blank. Returns `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// The error of `source`.
    pub(super) fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.bytes.clear();
            let Some(fits) = self.read_line()? else { return Ok(None) };
            if !fits {
                return Ok(Some((
                    self.line,
                    Err("The line has more than 1 MiB. Send one JSON object on each line."),
                )));
            }
            if !self.bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some((self.line, Ok(&self.bytes))));
            }
        }
    }

    /// Reads one line. Returns whether it is short enough, or `None` at the end of the file.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        let mut fits = true;
        let mut started = false;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(started.then_some(fits));
            }
            if !started {
                started = true;
                self.line += 1;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(chunk, |end| chunk.get(..end).unwrap_or_default());
            if fits && self.bytes.len() + part.len() <= MAX_ROW {
                self.bytes.extend_from_slice(part);
            } else {
                fits = false;
            }
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.source.consume(used);
            if end.is_some() {
                return Ok(Some(fits));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_are_counted_and_skipped() {
        let mut long = b"a\n\n \r\nb\n".to_vec();
        long.extend(std::iter::repeat_n(b'x', MAX_ROW + 1));
        long.extend_from_slice(b"\nc");
        let mut lines = LineReader::new(io::BufReader::with_capacity(7, &*long));
        assert_eq!(lines.next().unwrap(), Some((1, Ok(&b"a"[..]))));
        assert_eq!(lines.next().unwrap(), Some((4, Ok(&b"b"[..]))));
        assert!(matches!(lines.next().unwrap(), Some((5, Err(_)))));
        assert_eq!(lines.next().unwrap(), Some((6, Ok(&b"c"[..]))));
        assert_eq!(lines.next().unwrap(), None);
    }
}
