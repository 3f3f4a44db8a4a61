//! The boundaries of the requests on a connection.
//!
//! Two checks cannot be made on the request that hyper returns: the `http` crate drops the fragment of a target, and hyper itself
//! rejects a `Content-Length` that does not fit into 64 bits, with a response of its own. [`BoundaryTracker`] sees the bytes before
//! hyper does. It stops at the end of each head and learns the length of the body from [`BoundaryTracker::end_head`].

use super::limits::MAX_HEAD;

/// The number of digits of a `Content-Length` that are passed to hyper, without leading zeros. The others are dropped. The number
/// still fits into 64 bits and exceeds every limit.
const MAX_LENGTH_DIGITS: usize = 18;

/// Parses the bytes of one connection as far as needed to find where each message ends.
#[derive(Debug, Default)]
pub(super) struct BoundaryTracker {
    next: Part,
    /// The first [`MAX_HEAD`] bytes of the current line, as far as received.
    line: Vec<u8>,
    /// The target of the current head has a fragment.
    has_fragment: bool,
    /// The digits of the `Content-Length` that the current line is, without leading zeros. `None` if it is another line or the value
    /// has ended.
    length_digits: Option<usize>,
}

/// The part of a message to which the next byte belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// A request line up to its first space: the method.
    #[default]
    RequestLine,
    /// The rest of a request line.
    Target,
    Header,
    /// The head has ended. The length of its body is not known yet.
    Unknown,
    /// A body of which this many bytes are left.
    Body(u64),
    ChunkSize,
    /// A chunk of which this many bytes are left, including its line end.
    Chunk(u64),
    Trailer,
}

impl BoundaryTracker {
    /// Records that hyper has parsed a head. `body` is the length of its body in bytes, `None` if that is chunked. Returns whether
    /// the target has a fragment.
    pub(super) fn end_head(&mut self, body: Option<u64>) -> bool {
        self.next = body.map_or(Part::ChunkSize, after_body);
        std::mem::take(&mut self.has_fragment)
    }

    /// Whether a head has ended and hyper has not reported it.
    pub(super) fn is_between_head_and_body(&self) -> bool {
        self.next == Part::Unknown
    }

    /// Processes `bytes` up to the end of the current head, or all of them. Moves those that are passed to hyper to the front.
    /// Returns the number of bytes processed and the number passed on.
    pub(super) fn process(&mut self, bytes: &mut [u8]) -> (usize, usize) {
        let (mut processed, mut kept) = (0, 0);
        while let Some(byte) = bytes.get(processed).copied() {
            let run = match self.next {
                Part::Unknown => break,
                Part::Body(left) | Part::Chunk(left) => {
                    let run = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - processed);
                    self.next = self.after_run(left - run as u64);
                    run
                }
                _ if self.is_dropped(byte) => {
                    processed += 1;
                    continue;
                }
                _ => {
                    self.process_line_byte(byte);
                    1
                }
            };
            if processed != kept {
                bytes.copy_within(processed..processed + run, kept);
            }
            processed += run;
            kept += run;
        }
        (processed, kept)
    }

    /// The part after a run of body bytes, of which `left` bytes are left.
    fn after_run(&self, left: u64) -> Part {
        match self.next {
            Part::Chunk(_) if left == 0 => Part::ChunkSize,
            Part::Chunk(_) => Part::Chunk(left),
            _ => after_body(left),
        }
    }

    fn process_line_byte(&mut self, byte: u8) {
        if byte == b'\n' {
            self.end_line();
            return;
        }
        match self.next {
            // A method may contain a `#` (RFC 9110 section 5.6.2).
            Part::RequestLine if byte == b' ' => self.next = Part::Target,
            Part::Target => self.has_fragment |= byte == b'#',
            Part::Header => self.count_length_digit(byte),
            _ => {}
        }
        if self.line.len() < MAX_HEAD {
            self.line.push(byte);
        }
    }

    /// Counts `byte`, the next one of a header line, for `length_digits`.
    fn count_length_digit(&mut self, byte: u8) {
        const NAME: &[u8] = b"content-length";
        self.length_digits = match (self.length_digits, byte) {
            (None, b':') if self.line.eq_ignore_ascii_case(NAME) => Some(0),
            (Some(0), b'0' | b' ' | b'\t') => Some(0),
            (Some(digits), b'0'..=b'9') => Some(digits + 1),
            _ => None,
        };
    }

    fn end_line(&mut self) {
        let is_empty = matches!(self.line.as_slice(), b"" | b"\r");
        self.next = match self.next {
            // Empty lines may precede a request line (RFC 9112 section 2.2).
            Part::RequestLine if !is_empty => Part::Header,
            Part::Target => Part::Header,
            Part::Header if is_empty => Part::Unknown,
            Part::Trailer if is_empty => Part::RequestLine,
            Part::ChunkSize => after_chunk_size(&self.line),
            same => same,
        };
        self.line.clear();
        self.length_digits = None;
    }

    /// Whether `byte` is a digit of a `Content-Length` that already has [`MAX_LENGTH_DIGITS`].
    fn is_dropped(&self, byte: u8) -> bool {
        byte.is_ascii_digit() && self.length_digits.is_some_and(|digits| digits >= MAX_LENGTH_DIGITS)
    }
}

fn after_body(left: u64) -> Part {
    if left == 0 { Part::RequestLine } else { Part::Body(left) }
}

/// Parses a hexadecimal chunk size, which an extension may follow. hyper rejects a malformed one.
fn after_chunk_size(line: &[u8]) -> Part {
    let digits = line.iter().map_while(|byte| char::from(*byte).to_digit(16));
    match digits.fold(0_u64, |size, digit| size.saturating_mul(16).saturating_add(digit.into())) {
        0 => Part::Trailer,
        size => Part::Chunk(size.saturating_add(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What hyper gets of `text`, which has one head, and whether that has a fragment.
    fn process(text: &str) -> (String, bool) {
        let mut tracker = BoundaryTracker::default();
        let mut bytes = text.as_bytes().to_vec();
        let (processed, kept) = tracker.process(&mut bytes);
        assert_eq!((processed, tracker.next), (text.len(), Part::Unknown));
        (String::from_utf8(bytes[..kept].to_vec()).unwrap(), tracker.end_head(Some(0)))
    }

    #[test]
    fn only_a_target_has_a_fragment() {
        for (line, expected) in [("GET /#", true), ("GET /?a#b", true), ("G#T /", false), ("GET /%23", false)] {
            let head = format!("\r\n{line} HTTP/1.1\r\nX-A: /#\n\r\n");
            assert_eq!(process(&head), (head, expected));
        }
    }

    #[test]
    fn excess_digits_of_a_length_are_dropped() {
        let head = |name: &str, value: &str| format!("POST / HTTP/1.1\r\n{name}:{value}\r\n\r\n");
        let nines = "9".repeat(40);
        assert_eq!(process(&head("content-Length", &nines)).0, head("content-Length", &nines[..18]));
        assert_eq!(
            process(&head("Content-Length", &format!(" 00{nines}\t"))).0,
            head("Content-Length", &format!(" 00{}\t", &nines[..18]))
        );
        for same in [
            head("X-Length", &nines),
            head("Content-Length", &format!("1 {nines}")),
            head("Content-Length", "0"),
            head("X", &format!("content-length:{nines}")),
            head("X-Content-Length", &nines),
        ] {
            assert_eq!(process(&same).0, same);
        }
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        let bodies = [
            (Some(0), ""),
            (Some(4), "\r\n\r\n"),
            (None, "3;a=b\r\nG#T\r\n0A\r\n0\r\n\r\n\r\n0\r\n\r\n0\r\nT: a\r\n\r\n"),
        ];
        for (length, body) in bodies {
            for size in [1, 2, 1000] {
                let mut tracker = BoundaryTracker { next: Part::Unknown, ..BoundaryTracker::default() };
                tracker.end_head(length);
                for piece in body.as_bytes().chunks(size) {
                    assert_eq!(tracker.process(&mut piece.to_vec()), (piece.len(), piece.len()));
                }
                assert_eq!(tracker.next, Part::RequestLine, "{body:?}");
            }
        }
    }

    #[test]
    fn processing_stops_at_the_end_of_a_head() {
        let mut tracker = BoundaryTracker::default();
        let mut bytes = *b"GET / HTTP/1.1\r\n\r\nGET /";
        assert_eq!(tracker.process(&mut bytes), (18, 18));
        assert_eq!(tracker.process(&mut bytes), (0, 0));
    }
}
