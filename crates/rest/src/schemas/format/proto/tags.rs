//! Tags of messages and fields: the texts `tags` of the options `confluent.message_meta` and
//! `confluent.field_meta`.
//!
//! A path names a message by the names that lead to it within the file, and a field by its name behind
//! those of its message (`Order.Item.price`); a dot may stand before, and a field's oneof before it. A
//! file that has had no tags comes to import what they are.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::prost::Message;
use prost_reflect::prost_types::{DescriptorProto, FileDescriptorProto};
use prost_reflect::{DynamicMessage, MessageDescriptor, ReflectMessage, Value};

use super::super::tags::{EntityKind, EntityTags, add as with, nothing_at};
use super::{ProtobufSchema, SchemaFault, add, known};

/// Where a message lies, by the numbers that lead to it, and maybe which of its fields is meant.
struct Place {
    messages: Vec<usize>,
    field: Option<usize>,
}

impl ProtobufSchema {
    /// The descriptor in base64 with tags added and then others removed.
    ///
    /// # Errors
    /// [`SchemaFault::Schema`]: a path leads nowhere.
    pub fn tagged(
        &self,
        added: &[EntityTags],
        removed: &[EntityTags],
    ) -> Result<String, SchemaFault> {
        let proto = self.file.file_descriptor_proto();
        let mut pool = self.file.parent_pool().clone();
        if pool.get_file_by_name(META).is_none() {
            let text = known::text(META).unwrap_or_default();
            add(&mut pool, META, text).map_err(SchemaFault::Schema)?;
        }
        let kind = pool.get_message_by_name("google.protobuf.FileDescriptorProto");
        let kind = kind.ok_or_else(other_meta)?;
        let mut file = DynamicMessage::decode(kind, &*self.file.encode_to_vec())
            .map_err(|error| SchemaFault::Schema(error.to_string()))?;
        for (entities, is_added) in [(added, true), (removed, false)] {
            for entity in entities {
                let place = place(proto, entity).ok_or_else(|| nothing_at(&entity.path))?;
                let changed = change(&mut file, &place, |tags| match is_added {
                    true => with(tags, &entity.tags),
                    false => tags.retain(|tag| !entity.tags.contains(tag)),
                });
                changed.ok_or_else(other_meta)?;
            }
        }
        let is_imported = proto.dependency.iter().any(|name| name == META);
        if !added.is_empty() && !is_imported {
            let imports = file.get_field_by_name_mut("dependency");
            if let Some(imports) = imports.and_then(Value::as_list_mut) {
                imports.push(Value::String(META.to_owned()));
            }
        }
        Ok(STANDARD.encode(file.encode_to_vec()))
    }

    /// As [`ProtobufSchema::tagged`] with the tags that an earlier schema has at the same places.
    pub fn with_tags_of(&self, earlier: &ProtobufSchema) -> Result<String, SchemaFault> {
        let mut found = Vec::new();
        for message in earlier.file.messages() {
            collect(&message, message.name().to_owned(), &mut found);
        }
        // What is no longer there has no tags.
        let proto = self.file.file_descriptor_proto();
        found.retain(|entity| place(proto, entity).is_some());
        match found.is_empty() {
            true => Ok(self.canonical.clone()),
            false => self.tagged(&found, &[]),
        }
    }
}

/// Adds the tags of a message, of its fields and of the messages within it.
fn collect(message: &MessageDescriptor, path: String, found: &mut Vec<EntityTags>) {
    for field in message.fields() {
        let path = format!("{path}.{}", field.name());
        found.extend(tags_of(&field.options(), path, EntityKind::Field));
    }
    for child in message.child_messages().filter(|it| !it.is_map_entry()) {
        collect(&child, format!("{path}.{}", child.name()), found);
    }
    found.extend(tags_of(&message.options(), path, EntityKind::Record));
}

/// The tags that options have, where they have any.
fn tags_of(options: &DynamicMessage, path: String, kind: EntityKind) -> Option<EntityTags> {
    let mut extensions = options.extensions();
    let (_, meta) = extensions.find(|(extension, _)| extension.full_name() == name_of(kind))?;
    let tags = meta.as_message()?.get_field_by_name("tags")?;
    let tags = tags.as_list()?.iter().filter_map(Value::as_str);
    let tags: Vec<String> = tags.map(str::to_owned).collect();
    (!tags.is_empty()).then_some(EntityTags { path, kind, tags })
}

/// Where what a path names lies in a file.
fn place(file: &FileDescriptorProto, entity: &EntityTags) -> Option<Place> {
    let path = entity.path.strip_prefix('.').unwrap_or(&entity.path);
    let names: Vec<&str> = path.split('.').collect();
    let (mut rest, mut within) = (&names[..], &file.message_type);
    let (mut messages, mut found) = (Vec::new(), None);
    while let Some((name, after)) = rest.split_first()
        && let Some(index) = within.iter().position(|of| of.name() == *name)
    {
        messages.push(index);
        found = Some(&within[index]);
        (rest, within) = (after, &within[index].nested_type);
    }
    let message: &DescriptorProto = found?;
    let field = match (entity.kind, rest) {
        (EntityKind::Record, []) => None,
        (EntityKind::Field, [name]) => Some(field(message, None, name)?),
        (EntityKind::Field, [oneof, name]) => Some(field(message, Some(oneof), name)?),
        _ => return None,
    };
    Some(Place { messages, field })
}

/// The number of a field of a message, and of a oneof if one is named.
fn field(message: &DescriptorProto, oneof: Option<&str>, name: &str) -> Option<usize> {
    let oneofs = &message.oneof_decl;
    let is_within = |index: Option<i32>, oneof: &str| {
        let index = index.and_then(|index| usize::try_from(index).ok());
        let found = index.and_then(|index| oneofs.get(index));
        found.is_some_and(|found| found.name() == oneof)
    };
    let mut fields = message.field.iter();
    fields.position(|field| {
        let is_there = oneof
            .is_none_or(|oneof| !field.proto3_optional() && is_within(field.oneof_index, oneof));
        is_there && field.name() == name
    })
}

/// Changes the tags at a place; the last one takes the options along that nothing else is in. None where
/// there are no tags as we know them.
fn change(
    file: &mut DynamicMessage,
    place: &Place,
    change: impl FnOnce(&mut Vec<String>),
) -> Option<()> {
    let mut entity = file;
    for (depth, index) in place.messages.iter().enumerate() {
        let list = if depth == 0 {
            "message_type"
        } else {
            "nested_type"
        };
        entity = nth(entity, list, *index)?;
    }
    let mut kind = EntityKind::Record;
    if let Some(index) = place.field {
        (entity, kind) = (nth(entity, "field", index)?, EntityKind::Field);
    }
    let pool = entity.descriptor().parent_pool().clone();
    let meta = pool.get_extension_by_name(name_of(kind))?;
    let options = entity.get_field_by_name_mut("options")?;
    let options = options.as_message_mut()?;
    let told = options.get_extension_mut(&meta).as_message_mut()?;
    let list = told.get_field_by_name_mut("tags")?.as_list_mut()?;
    let tags = list.iter().filter_map(Value::as_str).map(str::to_owned);
    let mut tags = tags.collect();
    change(&mut tags);
    *list = tags.into_iter().map(Value::String).collect();
    if told.encoded_len() == 0 {
        options.clear_extension(&meta);
    }
    if options.encoded_len() == 0 {
        entity.clear_field_by_name("options");
    }
    Some(())
}

/// The message at a number of a list.
fn nth<'m>(
    within: &'m mut DynamicMessage,
    list: &str,
    index: usize,
) -> Option<&'m mut DynamicMessage> {
    let items = within.get_field_by_name_mut(list)?.as_list_mut()?;
    items.get_mut(index)?.as_message_mut()
}

/// The option that has the tags.
fn name_of(kind: EntityKind) -> &'static str {
    match kind {
        EntityKind::Record => "confluent.message_meta",
        EntityKind::Field => "confluent.field_meta",
    }
}

fn other_meta() -> SchemaFault {
    SchemaFault::Schema(format!("the file {META} that it rests on has no tags"))
}

/// The file that says what tags are.
const META: &str = "confluent/meta.proto";

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::super::{SchemaSource, SchemaType};
    use super::*;

    fn parse(text: &str) -> ProtobufSchema {
        let source = SchemaSource {
            kind: SchemaType::Protobuf,
            text: Arc::from(text),
            references: Vec::new(),
        };
        ProtobufSchema::parse(&source).unwrap()
    }

    fn entity(path: &str, kind: EntityKind, tags: &[&str]) -> EntityTags {
        EntityTags {
            path: path.to_owned(),
            kind,
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        }
    }

    const ORDER: &str = r#"syntax = "proto3";
package shop;
message Order {
  string email = 1;
  oneof by {
    string card = 2;
  }
  optional int32 count = 4;
  message Item {
    int32 price = 1;
  }
}
"#;

    #[test]
    fn messages_and_fields_are_tagged_and_the_last_tag_takes_its_option_along() {
        let added = [
            entity(".Order.email", EntityKind::Field, &["PII", "OLD", "PII"]),
            entity("Order.by.card", EntityKind::Field, &["PCI"]),
            entity("Order.card", EntityKind::Field, &["SECRET"]),
            entity("Order.Item", EntityKind::Record, &["R"]),
            entity("Order.Item.price", EntityKind::Field, &["F"]),
        ];
        let removed = [entity("Order.email", EntityKind::Field, &["OLD"])];
        let plain = parse(ORDER);
        let tagged = parse(&plain.tagged(&added, &removed).unwrap());
        assert_eq!(
            tagged.canonical(),
            r#"syntax = "proto3";
package shop;
import "confluent/meta.proto";
message Order {
  string email = 1 [(confluent.field_meta) = { tags: ["PII"] }];
  oneof by {
    string card = 2 [(confluent.field_meta) = { tags: ["PCI", "SECRET"] }];
  }
  optional int32 count = 4;
  message Item {
    option (confluent.message_meta) = { tags: ["R"] };
    int32 price = 1 [(confluent.field_meta) = { tags: ["F"] }];
  }
}
"#
        );
        let again = tagged.tagged(&[], &added).unwrap();
        let import = "import \"confluent/meta.proto\";\n";
        assert_eq!(
            parse(&again).canonical().replace(import, ""),
            plain.canonical()
        );
    }

    #[test]
    fn other_options_and_what_else_an_option_tells_stay() {
        let text = r#"syntax = "proto3";
import "confluent/meta.proto";
message M {
  option deprecated = true;
  int32 a = 1 [deprecated = true, (confluent.field_meta) = { doc: "d" tags: ["X"] }];
}
"#;
        let changes = [
            entity("M.a", EntityKind::Field, &["X"]),
            entity("M", EntityKind::Record, &["Y"]),
        ];
        let without = parse(text).tagged(&[], &changes).unwrap();
        assert_eq!(
            parse(&without).canonical(),
            text.replace(r#" tags: ["X"]"#, "")
        );
    }

    #[test]
    fn paths_that_lead_nowhere_are_told() {
        for (path, kind) in [
            ("Order", EntityKind::Field),
            ("Order.email", EntityKind::Record),
            ("Order.none", EntityKind::Field),
            ("Order.other.card", EntityKind::Field),
            ("Order._count.count", EntityKind::Field),
            ("shop.Order.email", EntityKind::Field),
            ("..Order", EntityKind::Record),
            ("", EntityKind::Record),
        ] {
            let wanted = [entity(path, kind, &["A"])];
            assert!(parse(ORDER).tagged(&wanted, &[]).is_err(), "{path}");
        }
    }

    #[test]
    fn tags_are_taken_over_where_the_names_are_still_there() {
        let added = [
            entity("Order.email", EntityKind::Field, &["PII"]),
            entity("Order.Item", EntityKind::Record, &["R"]),
        ];
        let earlier = parse(&parse(ORDER).tagged(&added, &[]).unwrap());
        let later = parse("syntax = \"proto3\"; message Order { string email = 7; }");
        let taken = parse(&later.with_tags_of(&earlier).unwrap());
        let told = r#"string email = 7 [(confluent.field_meta) = { tags: ["PII"] }];"#;
        assert!(taken.canonical().contains(told), "{}", taken.canonical());
        let plain = parse(ORDER);
        assert_eq!(later.with_tags_of(&plain).unwrap(), later.canonical());
    }
}
