//! Lines of a JSON Lines file, one at a time, none larger than a row may be.

use std::io::{self, BufRead};

use super::LONGEST_ROW;

/// Reads lines that are not blank.
#[derive(Debug)]
pub struct Lines<R> {
    source: R,
    line: u64,
    bytes: Vec<u8>,
}

/// A line's number and what stands on it, or why it is not read.
type Line<'a> = (u64, Result<&'a [u8], &'static str>);

impl<R: BufRead> Lines<R> {
    pub fn new(source: R) -> Lines<R> {
        Lines { source, line: 0, bytes: Vec::new() }
    }

    /// The next line.
    pub fn next(&mut self) -> io::Result<Option<Line<'_>>> {
        loop {
            self.bytes.clear();
            let Some(fits) = self.read_line()? else { return Ok(None) };
            if !fits {
                return Ok(Some((self.line, Err("The line has more than 1 MiB. Send one JSON object on each line."))));
            }
            if !self.bytes.iter().all(u8::is_ascii_whitespace) {
                return Ok(Some((self.line, Ok(&self.bytes))));
            }
        }
    }

    /// Whether the line fits, or `None` at the end of the file.
    fn read_line(&mut self) -> io::Result<Option<bool>> {
        let mut fits = true;
        let mut begun = false;
        loop {
            let chunk = self.source.fill_buf()?;
            if chunk.is_empty() {
                return Ok(begun.then_some(fits));
            }
            if !begun {
                begun = true;
                self.line += 1;
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let part = end.map_or(chunk, |end| chunk.get(..end).unwrap_or_default());
            if fits && self.bytes.len() + part.len() <= LONGEST_ROW {
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
    fn blank_lines_count_but_do_not_come() {
        let mut long = b"a\n\n \r\nb\n".to_vec();
        long.extend(std::iter::repeat_n(b'x', LONGEST_ROW + 1));
        long.extend_from_slice(b"\nc");
        let mut lines = Lines::new(io::BufReader::with_capacity(7, &*long));
        assert_eq!(lines.next().unwrap(), Some((1, Ok(&b"a"[..]))));
        assert_eq!(lines.next().unwrap(), Some((4, Ok(&b"b"[..]))));
        assert!(matches!(lines.next().unwrap(), Some((5, Err(_)))));
        assert_eq!(lines.next().unwrap(), Some((6, Ok(&b"c"[..]))));
        assert_eq!(lines.next().unwrap(), None);
    }
}
