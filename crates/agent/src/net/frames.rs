//! Cuts a stream of bytes into messages, without IO.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem;

/// How messages are told apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// By what stands behind each.
    Delimiter {
        /// At least one byte.
        delimiter: Vec<u8>,
        /// Whether the delimiter is left out of the message.
        is_consumed: bool,
    },
    /// Syslog over TCP (RFC 6587): by a line end, or by a count of bytes before each.
    Syslog,
}

/// A message, and whether its end was missing or too far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) bytes: Bytes,
    pub(crate) is_partial: bool,
}

/// One stream on its way.
#[derive(Debug)]
pub(crate) struct Frames {
    framing: Framing,
    message_bytes_max: usize,
    buffer: BytesMut,
    /// Bytes in which there is no delimiter.
    searched: usize,
}

impl Frames {
    /// A stream whose messages have at most so many bytes; longer ones come in pieces.
    pub(crate) fn new(framing: Framing, message_bytes_max: usize) -> Self {
        Frames {
            framing,
            message_bytes_max: message_bytes_max.max(1),
            buffer: BytesMut::new(),
            searched: 0,
        }
    }

    /// Where the next bytes of the stream go.
    pub(crate) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next message that is whole, or too long.
    pub(crate) fn next(&mut self) -> Option<Frame> {
        let framing = self.framing.clone();
        match framing {
            Framing::Delimiter {
                delimiter,
                is_consumed,
            } => self.delimited(&delimiter, is_consumed),
            Framing::Syslog => loop {
                match self.counted() {
                    Counted::Frame(frame) => return Some(frame),
                    Counted::Wait => return None,
                    Counted::Not => {}
                }
                let frame = self.delimited(b"\n", true)?;
                let bytes = match frame.bytes.strip_suffix(b"\r") {
                    Some(line) => frame.bytes.slice(..line.len()),
                    None => frame.bytes,
                };
                // A line end behind a counted message is nobody's message.
                if !bytes.is_empty() {
                    let is_partial = frame.is_partial;
                    return Some(Frame { bytes, is_partial });
                }
            },
        }
    }

    /// What is left when the stream has ended.
    pub(crate) fn rest(&mut self) -> Option<Frame> {
        let bytes = std::mem::take(&mut self.buffer).freeze();
        self.searched = 0;
        (!bytes.is_empty()).then_some(Frame {
            bytes,
            is_partial: true,
        })
    }

    fn delimited(&mut self, delimiter: &[u8], is_consumed: bool) -> Option<Frame> {
        let from = self.searched.saturating_sub(delimiter.len() - 1);
        let found = memmem::find(&self.buffer[from..], delimiter).map(|at| from + at);
        let frame = match found {
            Some(at) if at <= self.message_bytes_max => {
                let mut bytes = self.buffer.split_to(at + delimiter.len());
                if is_consumed {
                    bytes.truncate(at);
                }
                Frame {
                    bytes: bytes.freeze(),
                    is_partial: false,
                }
            }
            _ if self.buffer.len() > self.message_bytes_max => Frame {
                bytes: self.buffer.split_to(self.message_bytes_max).freeze(),
                is_partial: true,
            },
            _ => {
                self.searched = self.buffer.len();
                return None;
            }
        };
        self.searched = 0;
        Some(frame)
    }

    /// A message behind its count of bytes: `11 <34>1 - - -`.
    fn counted(&mut self) -> Counted {
        let digits = self
            .buffer
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 || digits > COUNT_DIGITS_MAX {
            return Counted::Not;
        }
        match self.buffer.get(digits) {
            None => return Counted::Wait,
            Some(b' ') => {}
            Some(_) => return Counted::Not,
        }
        let count = std::str::from_utf8(&self.buffer[..digits]).ok();
        let Some(count) = count.and_then(|text| text.parse::<usize>().ok()) else {
            return Counted::Not;
        };
        if count == 0 || count > self.message_bytes_max {
            return Counted::Not;
        }
        if self.buffer.len() < digits + 1 + count {
            return Counted::Wait;
        }
        self.buffer.advance(digits + 1);
        self.searched = 0;
        Counted::Frame(Frame {
            bytes: self.buffer.split_to(count).freeze(),
            is_partial: false,
        })
    }
}

enum Counted {
    Frame(Frame),
    /// It is one, but not whole yet.
    Wait,
    /// It is none.
    Not,
}

/// Digits of a count of bytes.
const COUNT_DIGITS_MAX: usize = 9;

#[cfg(test)]
mod tests {
    use super::*;

    /// Everything that comes out when `stream` comes in pieces of `step` bytes.
    fn cut(framing: &Framing, max: usize, stream: &[u8], step: usize) -> Vec<(String, bool)> {
        let mut frames = Frames::new(framing.clone(), max);
        let mut all = Vec::new();
        for piece in stream.chunks(step) {
            frames.buffer().extend_from_slice(piece);
            while let Some(frame) = frames.next() {
                all.push(frame);
            }
        }
        all.extend(frames.rest());
        let text = |frame: Frame| {
            (
                String::from_utf8_lossy(&frame.bytes).into_owned(),
                frame.is_partial,
            )
        };
        all.into_iter().map(text).collect()
    }

    fn check(framing: &Framing, max: usize, stream: &[u8], expected: &[(&str, bool)]) {
        let expected: Vec<(String, bool)> = expected
            .iter()
            .map(|(text, partial)| ((*text).to_owned(), *partial))
            .collect();
        for step in 1..=stream.len() {
            assert_eq!(
                cut(framing, max, stream, step),
                expected,
                "in pieces of {step}"
            );
        }
    }

    #[test]
    fn messages_are_cut_wherever_the_stream_is_torn() {
        let by = |delimiter: &[u8], is_consumed| Framing::Delimiter {
            delimiter: delimiter.to_vec(),
            is_consumed,
        };
        let whole = |texts: [&'static str; 3]| texts.map(|text| (text, false));
        check(&by(b"\n", true), 100, b"a\n\nbc\n", &whole(["a", "", "bc"]));
        check(
            &by(b"##", false),
            100,
            b"a##b#c####",
            &whole(["a##", "b#c##", "##"]),
        );
        check(
            &by(b"\n", true),
            100,
            b"a\nrest",
            &[("a", false), ("rest", true)],
        );
        check(
            &by(b"\n", true),
            3,
            b"abc\nde\n",
            &[("abc", false), ("de", false)],
        );
    }

    #[test]
    fn a_message_that_is_too_long_comes_in_pieces() {
        let by_line = Framing::Delimiter {
            delimiter: b"\n".to_vec(),
            is_consumed: true,
        };
        let cut = cut(&by_line, 4, b"abcdefghij\nk\n", 100);
        let texts: Vec<(&str, bool)> = cut.iter().map(|(t, p)| (t.as_str(), *p)).collect();
        assert_eq!(
            texts,
            [("abcd", true), ("efgh", true), ("ij", false), ("k", false)]
        );
    }

    #[test]
    fn syslog_is_cut_by_counts_or_lines() {
        let stream = b"5 <1>ab<2>line\r\n4 <3>\n\n<4>x\n";
        let expected = [
            ("<1>ab", false),
            ("<2>line", false),
            ("<3>\n", false),
            ("<4>x", false),
        ];
        check(&Framing::Syslog, 100, stream, &expected);
        check(&Framing::Syslog, 100, b"12x y\n", &[("12x y", false)]);
        check(
            &Framing::Syslog,
            10,
            b"999999999 y\n",
            &[("999999999", true)]
                .map(|_| ("999999999 ", true))
                .into_iter()
                .chain([("y", false)])
                .collect::<Vec<_>>(),
        );
    }
}
