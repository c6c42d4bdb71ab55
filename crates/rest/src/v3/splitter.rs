//! Cuts a stream of JSON objects that stand one after another, with or without blanks between, into
//! single ones, as their bytes arrive. Looks at every byte once; what is inside an object is for
//! whoever reads it.

use bytes::{Buf, Bytes, BytesMut};

/// Takes bytes, gives objects.
#[derive(Debug)]
pub(super) struct Splitter {
    buffer: BytesMut,
    /// Bytes at the front of the buffer that were looked at.
    seen: usize,
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
    object_bytes_max: usize,
}

/// Why a stream cannot be cut any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SplitError {
    /// Something other than an object begins here.
    NoObject,
    /// An object is larger than objects may be.
    TooLarge,
}

impl Splitter {
    pub fn new(object_bytes_max: usize) -> Self {
        Splitter {
            buffer: BytesMut::new(),
            seen: 0,
            depth: 0,
            is_in_text: false,
            is_escaped: false,
            object_bytes_max,
        }
    }

    /// Takes what arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that wait to be cut.
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether an object has begun that is not whole.
    pub fn is_within(&self) -> bool {
        self.depth > 0
    }

    /// The next whole object; none until more arrives.
    pub fn next(&mut self) -> Result<Option<Bytes>, SplitError> {
        if self.depth == 0 {
            let blanks = self.buffer.iter().take_while(|byte| is_blank(**byte));
            let blanks = blanks.count();
            self.buffer.advance(blanks);
            match self.buffer.first() {
                None => return Ok(None),
                Some(b'{') => {}
                Some(_) => return Err(SplitError::NoObject),
            }
        }
        while let Some(byte) = self.buffer.get(self.seen) {
            self.seen += 1;
            if self.is_escaped {
                self.is_escaped = false;
            } else if self.is_in_text {
                match byte {
                    b'"' => self.is_in_text = false,
                    b'\\' => self.is_escaped = true,
                    _ => {}
                }
            } else {
                match byte {
                    b'"' => self.is_in_text = true,
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth -= 1,
                    _ => {}
                }
                if self.depth == 0 {
                    let object = self.buffer.split_to(std::mem::take(&mut self.seen));
                    return Ok(Some(object.freeze()));
                }
            }
        }
        if self.seen > self.object_bytes_max {
            return Err(SplitError::TooLarge);
        }
        Ok(None)
    }
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, step: usize) -> (Vec<String>, Option<SplitError>) {
        let mut splitter = Splitter::new(40);
        let mut objects = Vec::new();
        for piece in text.as_bytes().chunks(step) {
            splitter.push(piece);
            loop {
                match splitter.next() {
                    Ok(Some(object)) => {
                        objects.push(String::from_utf8(object.to_vec()).unwrap());
                    }
                    Ok(None) => break,
                    Err(error) => return (objects, Some(error)),
                }
            }
        }
        (objects, None)
    }

    #[test]
    fn objects_are_cut_wherever_the_bytes_break() {
        let text = " {\"a\":[1,{}]}{} \r\n{\"b\":\"}\\\"{\\\\\"}\t{\"c";
        for step in 1..text.len() {
            let (objects, error) = split(text, step);
            assert_eq!(objects, ["{\"a\":[1,{}]}", "{}", "{\"b\":\"}\\\"{\\\\\"}"]);
            assert_eq!(error, None);
        }
    }

    #[test]
    fn what_is_no_object_or_has_no_end_is_told() {
        for text in ["{}[1]", "{},{}", "{}null", "{}\"a\"", "{}}"] {
            let (objects, error) = split(text, 3);
            assert_eq!((objects.len(), error), (1, Some(SplitError::NoObject)));
        }
        let long = format!("{{\"a\":\"{}", "x".repeat(60));
        assert_eq!(split(&long, 7), (vec![], Some(SplitError::TooLarge)));
    }
}
