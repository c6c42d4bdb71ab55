//! Bars that show how far something is: on standard error, and only where that is a terminal.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use indicatif::{ProgressBar, ProgressStyle};
use tokio::fs::File;
use tokio::io::{AsyncRead, ReadBuf};

/// A bar of so many bytes.
pub fn bar(bytes: u64, template: &str) -> ProgressBar {
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(bytes).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// A file whose bar shows how much of it was read.
pub struct Shown {
    file: File,
    bar: ProgressBar,
}

impl Shown {
    pub fn new(file: File, bar: ProgressBar) -> Self {
        Shown { file, bar }
    }
}

impl AsyncRead for Shown {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.file).poll_read(context, buffer);
        self.bar.inc((buffer.filled().len() - before) as u64);
        read
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn a_bar_is_as_far_as_its_file_was_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![7; 300_000]).unwrap();
        let bar = bar(300_000, "{bar:40} {eta}");
        let mut shown = Shown::new(File::open(&path).await.unwrap(), bar.clone());
        shown.read_exact(&mut vec![0; 1_000]).await.unwrap();
        assert_eq!(bar.position(), 1_000);
        let rest = shown.read_to_end(&mut Vec::new()).await.unwrap();
        assert_eq!((rest, bar.position()), (299_000, 300_000));
    }
}
