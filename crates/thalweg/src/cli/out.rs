//! The standard output of the commands, for a reader that may have enough of it.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::exit;

use super::Failure;

/// Prints a line.
pub fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Prints a text as it is. Where nobody reads any more, which `| head` does, the process ends well:
/// commands that have something to take back use [`is_read`],
/// and those that may fail after it [`text_before_verdict`].
pub fn text(text: impl Display) {
    match is_read(write!(io::stdout(), "{text}")) {
        Ok(true) => {}
        Ok(false) => exit(0),
        Err(failure) => {
            eprintln!("error: {failure}");
            exit(1)
        }
    }
}

/// Prints a text before a verdict, which stands whether or not somebody reads.
pub fn text_before_verdict(text: impl Display) -> Result<(), Failure> {
    is_read(write!(io::stdout(), "{text}")).map(drop)
}

/// Whether somebody still reads what was `written`.
pub fn is_read(written: io::Result<()>) -> Result<bool, Failure> {
    base::still_read(written).map_err(|error| Failure::because("cannot print", &error))
}
