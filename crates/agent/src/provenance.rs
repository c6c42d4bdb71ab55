//! For the time being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, dead_code)]
pub enum EventKind {
    Receive,
    Fetch,
    Send,
    Download,
}
