//! What becomes of output that nobody reads any more.

use std::io::{self, ErrorKind};

/// Whether somebody still reads what was `written`: a reader that has enough (`| head`) and goes is
/// no error.
///
/// # Errors
/// Any other reason for which it could not be written.
pub fn still_read(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_reader_that_went_is_no_error() {
        assert!(still_read(Ok(())).unwrap());
        assert!(!still_read(Err(ErrorKind::BrokenPipe.into())).unwrap());
        let full = still_read(Err(ErrorKind::StorageFull.into()));
        assert_eq!(full.unwrap_err().kind(), ErrorKind::StorageFull);
    }
}
