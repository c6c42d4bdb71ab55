//! Resources: files that a class's agents have beside their flow. Without IO.
//!
//! A resource never changes: new content is a new resource with a new id, since C++ agents do not
//! fetch an id twice. A class has a set of them; the set's digest is what an agent echoes once it
//! has them all.

mod fetch;
mod shelf;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use base::UnixMillis;
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::error::FleetError;
use crate::manifest::hex;
use crate::registry::check_name;
use crate::request::check_path;

pub use shelf::read;

/// A file that agents fetch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resource {
    /// A UUID.
    pub id: Arc<str>,
    /// The file's name on the agent.
    pub name: String,
    /// What it is to the agent.
    #[serde(rename = "type")]
    pub kind: ResourceKind,
    /// The folder on the agent, relative to that of its assets or extensions; may be empty.
    pub path: String,
    /// An operator's words.
    pub notes: String,
    /// Bytes of the content.
    pub bytes: i64,
    /// SHA-512 of the content, lower-case hexadecimal.
    pub sha512: String,
    /// When it was uploaded, milliseconds since 1970.
    #[serde(rename = "created_ms")]
    pub created: UnixMillis,
}

/// What a resource is to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceKind {
    /// A file for flows to use.
    Asset,
    /// Code that brings processors; only Java agents take it.
    Extension,
}

/// A class's resources.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceSet {
    /// Names exactly this set: SHA-256, lower-case hexadecimal.
    pub digest: Arc<str>,
    /// By id.
    pub items: Vec<Arc<Resource>>,
    /// How many agents may fetch them at the same time; 0: all.
    pub at_once: u32,
}

/// What an operator says of a file to be uploaded.
#[derive(Clone, Debug)]
pub struct NewResource {
    pub name: String,
    pub kind: ResourceKind,
    pub path: String,
    pub notes: String,
}

impl NewResource {
    /// Checks the names: agents put the file where they say.
    ///
    /// # Errors
    /// [`FleetError::BadField`], [`FleetError::BadName`]; the caller's fault.
    pub fn check(&self) -> Result<(), FleetError> {
        check_name("a resource", &self.name)?;
        let bad = |field: &str, reason| FleetError::BadField {
            field: field.to_owned(),
            reason,
        };
        if self.name.contains('/') {
            let reason = "it may have no '/': folders go into path".to_owned();
            return Err(bad("name", reason));
        }
        check_path(&self.name).map_err(|reason| bad("name", reason))?;
        if !self.path.is_empty() {
            check_path(&self.path).map_err(|reason| bad("path", reason))?;
        }
        if self.notes.len() > crate::limits::DETAILS_BYTES_MAX {
            return Err(bad("notes", "they are too long".to_owned()));
        }
        Ok(())
    }
}

impl ResourceSet {
    /// The set of these.
    pub fn of(mut items: Vec<Arc<Resource>>, at_once: u32) -> ResourceSet {
        items.sort_by(|a, b| a.id.cmp(&b.id));
        let mut digest = Sha256::new();
        for item in &items {
            // An id is content, name and place in one: none of them ever changes.
            digest.update(item.id.as_bytes());
            digest.update(b"\n");
        }
        ResourceSet {
            digest: Arc::from(hex(&digest.finalize())),
            items,
            at_once,
        }
    }
}

impl ResourceKind {
    /// The word in the protocol, the API and the database.
    pub fn as_str(self) -> &'static str {
        match self {
            ResourceKind::Asset => "ASSET",
            ResourceKind::Extension => "EXTENSION",
        }
    }
}

impl FromStr for ResourceKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let all = [ResourceKind::Asset, ResourceKind::Extension];
        let found = all
            .into_iter()
            .find(|kind| kind.as_str().eq_ignore_ascii_case(text));
        found.ok_or(())
    }
}

impl fmt::Display for ResourceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ResourceKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(name: &str, path: &str) -> Result<(), FleetError> {
        let resource = NewResource {
            name: name.to_owned(),
            kind: ResourceKind::Asset,
            path: path.to_owned(),
            notes: String::new(),
        };
        resource.check()
    }

    #[test]
    fn names_stay_in_the_agents_folder() {
        assert!(new("m.bin", "").is_ok());
        assert!(new("m.bin", "models/v1").is_ok());
        for (name, path) in [
            ("", ""),
            ("a/b", ""),
            ("..", ""),
            ("a\\b", ""),
            ("a\0", ""),
            ("a", "/etc"),
            ("a", "../x"),
            ("a", "x/../../y"),
            ("a", "x//y"),
            ("a", "c:/x"),
            ("a", "x/"),
        ] {
            assert!(new(name, path).is_err(), "{name:?} in {path:?}");
        }
    }

    #[test]
    fn a_digest_names_a_set_whatever_its_order() {
        let item = |id: &str| {
            Arc::new(Resource {
                id: id.into(),
                name: "n".to_owned(),
                kind: ResourceKind::Asset,
                path: String::new(),
                notes: String::new(),
                bytes: 0,
                sha512: String::new(),
                created: UnixMillis(0),
            })
        };
        let set = |ids: &[&str]| ResourceSet::of(ids.iter().map(|id| item(id)).collect(), 0).digest;
        assert_eq!(set(&["a", "b"]), set(&["b", "a"]));
        assert_ne!(set(&["a", "b"]), set(&["a"]));
        assert_ne!(set(&["ab"]), set(&["a", "b"]));
        assert_ne!(set(&[]), set(&["a"]));
    }
}
