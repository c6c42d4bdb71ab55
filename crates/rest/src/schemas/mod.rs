//! Schemas: their formats, and the registry that keeps them.

pub(crate) mod format;
