//! What the processors of files share: which files a folder has for them, what is to be done with
//! a file once its FlowFile is durable, and contents on their way from and to files.

mod content;
mod settle;
mod walk;

pub(super) use content::{CopyError, content_failed, head, import, write_out};
pub(super) use settle::{Leftovers, Settle, Taken, raw_path};
pub(super) use walk::{Entry, FOLDER_PROPERTIES, Filter, Walk};

use std::fs::File;
use std::io;
use std::path::Path;

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// Makes what was done to the names in a folder durable.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    File::open(folder)?.sync_all()
}

/// The URI of a file, for provenance.
pub(super) fn file_uri(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
