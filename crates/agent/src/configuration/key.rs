//! How the table of keys writes its rows.

use super::{Effect, Key};
use crate::processors::{PropertyKind, Shape};

/// A property and what it means.
pub(super) const fn kind(name: &'static str, about: &'static str) -> PropertyKind {
    PropertyKind::new(name, about)
}

/// A key that is any text.
pub(super) const fn text(name: &'static str, toml: &'static str, about: &'static str) -> Key {
    Key::new(kind(name, about), toml)
}

/// A key that is a secret.
pub(super) const fn secret(name: &'static str, toml: &'static str, about: &'static str) -> Key {
    Key::new(kind(name, about).sensitive(), toml)
}

/// A key that is true or false.
pub(super) const fn flag(
    name: &'static str,
    toml: &'static str,
    about: &'static str,
    default: &'static str,
) -> Key {
    Key::new(kind(name, about).default(default).shape(Shape::Flag), toml)
}

/// A key that is a whole number from 0.
pub(super) const fn number(
    name: &'static str,
    toml: &'static str,
    about: &'static str,
    default: &'static str,
) -> Key {
    let kind = kind(name, about).default(default).shape(Shape::Integer(0));
    Key::new(kind, toml)
}

/// A key that is a duration.
pub(super) const fn duration(
    name: &'static str,
    toml: &'static str,
    about: &'static str,
    default: &'static str,
) -> Key {
    let kind = kind(name, about).default(default).shape(Shape::Duration);
    Key::new(kind, toml)
}

/// A key that is a size.
pub(super) const fn size(
    name: &'static str,
    toml: &'static str,
    about: &'static str,
    default: &'static str,
) -> Key {
    Key::new(kind(name, about).default(default).shape(Shape::Size), toml)
}

/// All keys that begin so.
pub(super) const fn every(prefix: &'static str, about: &'static str) -> Key {
    let mut key = Key::new(kind(prefix, about), "");
    key.is_prefix = true;
    key
}

impl Key {
    /// A key that is honoured.
    pub(super) const fn new(kind: PropertyKind, toml: &'static str) -> Key {
        Key {
            kind,
            toml,
            effect: Effect::Honoured,
            is_prefix: false,
        }
    }

    /// The same, without effect for this reason.
    pub(super) const fn ignored(mut self, why: &'static str) -> Key {
        self.effect = Effect::Ignored(why);
        self
    }

    /// The same, but for one value, with what to do instead.
    pub(super) const fn refused(mut self, value: &'static str, instead: &'static str) -> Key {
        self.effect = Effect::Refused(Some(value), instead);
        self
    }

    /// The same, never to be had, with what to do instead.
    pub(super) const fn refused_always(mut self, instead: &'static str) -> Key {
        self.effect = Effect::Refused(None, instead);
        self
    }
}
