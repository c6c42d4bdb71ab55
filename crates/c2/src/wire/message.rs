//! The macro that declares a message.

/// Declares a JSON object: its fields with their keys (further keys after `|` are read, never
/// written), and after `drops` the keys that carry nothing. Keys of neither kind go to `other`.
macro_rules! message {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $( $(#[$field_meta:meta])* pub $field:ident: $type:ty = $key:literal $(| $alias:literal)*, )*
        }
        $(drops $($dropped:literal),+)?
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $( $(#[$field_meta])* pub $field: $type, )*
            /// What came under keys that have no field here.
            pub other: std::collections::BTreeMap<String, $crate::wire::RawJson>,
        }

        const _: () = {
            use serde::ser::SerializeMap;
            use $crate::wire::{Message, Part, PartSeed, RawJson, TopVisitor};

            #[allow(non_camel_case_types)]
            enum Key {
                $( $field, )*
                #[allow(dead_code, reason = "most messages drop no key")]
                Dropped,
                Other(String),
            }

            impl Key {
                fn named(text: &str) -> Option<Key> {
                    match text {
                        $( $key $(| $alias)* => Some(Key::$field), )*
                        $( $($dropped)|+ => Some(Key::Dropped), )?
                        _ => None,
                    }
                }
            }

            impl<'de> serde::Deserialize<'de> for Key {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    struct KeyVisitor;

                    impl serde::de::Visitor<'_> for KeyVisitor {
                        type Value = Key;

                        fn expecting(
                            &self,
                            f: &mut std::fmt::Formatter<'_>,
                        ) -> std::fmt::Result {
                            f.write_str("a key")
                        }

                        fn visit_str<E>(self, text: &str) -> Result<Key, E> {
                            Ok(Key::named(text).unwrap_or_else(|| Key::Other(text.to_owned())))
                        }
                    }

                    deserializer.deserialize_identifier(KeyVisitor)
                }
            }

            impl Message for $name {
                fn from_map<'de, A: serde::de::MapAccess<'de>>(
                    mut map: A,
                ) -> Result<Self, A::Error> {
                    let mut this = $name::default();
                    while let Some(key) = map.next_key::<Key>()? {
                        match key {
                            $( Key::$field => {
                                this.$field =
                                    map.next_value_seed(PartSeed(std::marker::PhantomData))?;
                            } )*
                            Key::Dropped => {
                                map.next_value::<serde::de::IgnoredAny>()?;
                            }
                            Key::Other(name) => {
                                this.other.insert(name, map.next_value::<RawJson>()?);
                            }
                        }
                    }
                    Ok(this)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(
                    deserializer: D,
                ) -> Result<Self, D::Error> {
                    deserializer.deserialize_map(TopVisitor(std::marker::PhantomData))
                }
            }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(
                    &self,
                    serializer: S,
                ) -> Result<S::Ok, S::Error> {
                    let mut map = serializer.serialize_map(None)?;
                    $( if !Part::is_absent(&self.$field) {
                        map.serialize_entry($key, &self.$field)?;
                    } )*
                    for (key, value) in &self.other {
                        map.serialize_entry(key, value)?;
                    }
                    map.end()
                }
            }
        };
    };
}

pub(crate) use message;
