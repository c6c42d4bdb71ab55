//! The controller services that flows configure readers and writers by.

use std::sync::Arc;

use super::avro::{AvroReaders, AvroSchema, AvroWriters, Packing};
use super::csv::{CsvReaders, CsvWriters};
use super::json::{JsonReaders, JsonWriters};
use super::xml::{ArrayTags, XmlReaders, XmlWriters};
use super::{Create, Open, Readers, Writers};
use crate::processors::{Dynamic, PropertyKind, Settings, Shape};
use crate::services::{Service, ServiceKind};

/// What properties that want a reader ask for; its type is [`Readers`].
pub(crate) const READER_ROLE: &str = "RecordReader";

/// What properties that want a writer ask for; its type is [`Writers`].
pub(crate) const WRITER_ROLE: &str = "RecordSetWriter";

pub(crate) const JSON_READER: ServiceKind = ServiceKind {
    name: "JsonTreeReader",
    provides: READER_ROLE,
    description: "Reads records of JSON: the objects of a list, or objects with blanks in \
                  between, such as one in each line.",
    properties: &[],
    dynamic: Dynamic::None,
    make: |_| Ok(reader(JsonReaders)),
};

pub(crate) const JSON_WRITER: ServiceKind = ServiceKind {
    name: "JsonRecordSetWriter",
    provides: WRITER_ROLE,
    description: "Writes records as a list of JSON objects, or one object in each line.",
    properties: &[
        PropertyKind::new("Output Grouping", "A list, or one object in each line.")
            .default("Array")
            .allowed(&["Array", "One Line Per Object"]),
        PropertyKind::new("Pretty Print JSON", "Whether a list is indented.")
            .default("false")
            .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        Ok(writer(JsonWriters {
            by_lines: settings.needed("Output Grouping")? != "Array",
            is_pretty: settings.flag("Pretty Print JSON")?,
        }))
    },
};

pub(crate) const CSV_READER: ServiceKind = ServiceKind {
    name: "CSVReader",
    provides: READER_ROLE,
    description: "Reads records of CSV. Fields are named by the first line.",
    properties: &[
        PropertyKind::new(
            "Schema Access Strategy",
            "What fields are: numbers, true and false where they write one (infer-schema), or \
             texts all of them (csv-header-derived).",
        )
        .default("infer-schema")
        .allowed(&["infer-schema", "csv-header-derived"]),
        PropertyKind::new(
            "Treat First Line as Header",
            "Whether the first line names the fields; else they are column_0, column_1 and so on. \
             NiFi's own default is false, which it overrules.",
        )
        .default("true")
        .shape(Shape::Flag),
        VALUE_SEPARATOR,
        PropertyKind::new(
            "Quote Character",
            "What stands around values with separators in them; none, where empty.",
        )
        .default("\""),
        PropertyKind::new(
            "Escape Character",
            "What takes the meaning from a quote behind it; two quotes are always one.",
        )
        .default("\\"),
        PropertyKind::new(
            "Comment Marker",
            "What lines begin with that are no records.",
        ),
        PropertyKind::new("Null String", "What stands for nothing."),
        PropertyKind::new(
            "Trim Fields",
            "Whether blanks around values are left out; quotes have to stand right behind a \
             separator.",
        )
        .default("true")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        Ok(reader(CsvReaders {
            separator: character(settings, "Value Separator")?.unwrap_or(b','),
            quote: character(settings, "Quote Character")?,
            escape: character(settings, "Escape Character")?,
            comment: character(settings, "Comment Marker")?,
            null: settings.text("Null String")?,
            trims: settings.flag("Trim Fields")?,
            has_header: settings.flag("Treat First Line as Header")?,
            infers: settings.needed("Schema Access Strategy")? == "infer-schema",
        }))
    },
};

pub(crate) const CSV_WRITER: ServiceKind = ServiceKind {
    name: "CSVRecordSetWriter",
    provides: WRITER_ROLE,
    description: "Writes records as CSV, with the fields of the first record as columns. Lists and \
                  objects are written as JSON.",
    properties: &[
        PropertyKind::new(
            "Include Header Line",
            "Whether the first line names the fields.",
        )
        .default("true")
        .shape(Shape::Flag),
        VALUE_SEPARATOR,
        PropertyKind::new("Record Separator", "What ends a line: \\n or \\r\\n.")
            .default("\\n")
            .allowed(&["\\n", "\\r\\n"]),
        PropertyKind::new(
            "Quote Character",
            "What stands around values with separators in them.",
        )
        .default("\""),
        PropertyKind::new("Quote Mode", "Which values are quoted.")
            .default("MINIMAL")
            .allowed(&["MINIMAL", "ALL", "NON_NUMERIC", "NONE"]),
        PropertyKind::new("Null String", "What is written for nothing.").default(""),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        Ok(writer(CsvWriters {
            separator: character(settings, "Value Separator")?.unwrap_or(b','),
            quote: character(settings, "Quote Character")?.unwrap_or(b'"'),
            quotes: match settings.needed("Quote Mode")?.as_str() {
                "ALL" => csv::QuoteStyle::Always,
                "NON_NUMERIC" => csv::QuoteStyle::NonNumeric,
                "NONE" => csv::QuoteStyle::Never,
                _ => csv::QuoteStyle::Necessary,
            },
            terminator: match settings.needed("Record Separator")?.as_str() {
                "\\r\\n" => csv::Terminator::CRLF,
                _ => csv::Terminator::Any(b'\n'),
            },
            has_header: settings.flag("Include Header Line")?,
            null: settings.text("Null String")?.unwrap_or_default(),
        }))
    },
};

pub(crate) const XML_READER: ServiceKind = ServiceKind {
    name: "XMLReader",
    provides: READER_ROLE,
    description: "Reads records of XML: the elements within the outer one, or that one itself. \
                  Elements of one name become a list; texts that write numbers, true or false \
                  become these.",
    properties: &[
        PropertyKind::new(
            "Field Name for Content",
            "The field for the text of an element that has elements or attributes too; 'value' \
             where this is empty.",
        ),
        PropertyKind::new(
            "Parse XML Attributes",
            "Whether attributes of elements become fields.",
        )
        .default("false")
        .shape(Shape::Flag),
        PropertyKind::new("Attribute Prefix", "What their names begin with then."),
        PropertyKind::new(
            "Expect Records as Array",
            "Whether records are within an outer element, or that is the only record.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        let content = settings.text("Field Name for Content")?;
        Ok(reader(XmlReaders {
            content_field: content.unwrap_or_else(|| "value".to_owned()),
            attribute_prefix: match settings.flag("Parse XML Attributes")? {
                true => Some(settings.text("Attribute Prefix")?.unwrap_or_default()),
                false => None,
            },
            is_wrapped: settings.flag("Expect Records as Array")?,
        }))
    },
};

pub(crate) const XML_WRITER: ServiceKind = ServiceKind {
    name: "XMLRecordSetWriter",
    provides: WRITER_ROLE,
    description: "Writes records as elements of XML within an outer one.",
    properties: &[
        PropertyKind::new("Name of Root Tag", "The outer element.").required(),
        PropertyKind::new("Name of Record Tag", "The element of each record.").required(),
        PropertyKind::new("Array Tag Name", "The element for lists, where it is used."),
        PropertyKind::new(
            "Wrap Elements of Arrays",
            "How lists are written: within an element of the Array Tag Name (Use Property as \
             Wrapper), as elements of that name within one of the field's (Use Property for \
             Elements), or one after the other (No Wrapping). MiNiFi C++'s own values, in one \
             word each, are taken too.",
        )
        .default("No Wrapping")
        .allowed(&[
            "No Wrapping",
            "Use Property as Wrapper",
            "Use Property for Elements",
            "NoWrapping",
            "UsePropertyAsWrapper",
            "UsePropertyForElements",
        ]),
        PropertyKind::new("Omit XML Declaration", "Whether <?xml ...?> is left out.")
            .default("false")
            .shape(Shape::Flag),
        PropertyKind::new("Pretty Print XML", "Whether elements are indented.")
            .default("false")
            .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        let tag = || {
            let tag = settings.text("Array Tag Name")?;
            tag.ok_or_else(|| "Array Tag Name is needed to wrap lists by".to_owned())
        };
        let wrap = settings.needed("Wrap Elements of Arrays")?;
        Ok(writer(XmlWriters {
            root: settings.needed("Name of Root Tag")?,
            record: settings.needed("Name of Record Tag")?,
            arrays: match wrap.replace(' ', "").to_ascii_lowercase().as_str() {
                "usepropertyaswrapper" => ArrayTags::Wrapper(tag()?),
                "usepropertyforelements" => ArrayTags::Elements(tag()?),
                _ => ArrayTags::None,
            },
            has_declaration: !settings.flag("Omit XML Declaration")?,
            is_pretty: settings.flag("Pretty Print XML")?,
        }))
    },
};

pub(crate) const AVRO_READER: ServiceKind = ServiceKind {
    name: "AvroReader",
    provides: READER_ROLE,
    description: "Reads records of Avro: object container files with blocks that are plain, \
                  deflate, snappy, zstandard or bzip2, or datums of a given schema one after the \
                  other. Bytes become texts of one character for each; dates and times stay \
                  numbers; decimals are numbers, or texts where these would not be exact.",
    properties: &[
        PropertyKind::new(
            "Schema Access Strategy",
            "Whether content is files that bring their schema, or datums of the Schema Text.",
        )
        .default("embedded-avro-schema")
        .allowed(&["embedded-avro-schema", "schema-text-property"]),
        SCHEMA_TEXT,
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        let schema = schema(settings)?;
        let is_given = settings.needed("Schema Access Strategy")? == "schema-text-property";
        Ok(reader(AvroReaders {
            schema: match (is_given, schema) {
                (false, _) => None,
                (true, None) => return Err(format!("{} is needed", SCHEMA_TEXT.name)),
                (true, given) => given,
            },
        }))
    },
};

pub(crate) const AVRO_WRITER: ServiceKind = ServiceKind {
    name: "AvroRecordSetWriter",
    provides: WRITER_ROLE,
    description: "Writes records as an Avro object container file, or as datums one after the \
                  other. Without a schema one is found from the first thousand records, all of \
                  its fields nullable; later records are of it or are refused.",
    properties: &[
        PropertyKind::new(
            "Schema Write Strategy",
            "Whether there is a file around the records, with its schema, or none.",
        )
        .default("avro-embedded")
        .allowed(&["avro-embedded", "no-schema"]),
        PropertyKind::new(
            "Schema Access Strategy",
            "What is written by: a schema found from the records, or the Schema Text. Fields \
             that this has not are left out.",
        )
        .default("inherit-record-schema")
        .allowed(&["inherit-record-schema", "schema-text-property"]),
        SCHEMA_TEXT,
        PropertyKind::new("Compression Format", "How blocks of a file are packed.")
            .default("NONE")
            .allowed(&["NONE", "DEFLATE", "SNAPPY", "ZSTANDARD", "BZIP2"]),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        let schema = schema(settings)?;
        let is_given = settings.needed("Schema Access Strategy")? == "schema-text-property";
        let is_bare = settings.needed("Schema Write Strategy")? == "no-schema";
        if (is_given && schema.is_none()) || (is_bare && !is_given) {
            return Err(format!(
                "{} is needed, with the Schema Access Strategy schema-text-property",
                SCHEMA_TEXT.name
            ));
        }
        Ok(writer(AvroWriters {
            schema: schema.filter(|_| is_given),
            packing: match settings.needed("Compression Format")?.as_str() {
                "DEFLATE" => Packing::Deflate,
                "SNAPPY" => Packing::Snappy,
                "ZSTANDARD" => Packing::Zstandard,
                "BZIP2" => Packing::Bzip2,
                _ => Packing::None,
            },
            is_bare,
        }))
    },
};

const SCHEMA_TEXT: PropertyKind =
    PropertyKind::new("Schema Text", "An Avro schema whose outermost is a record.");

const VALUE_SEPARATOR: PropertyKind = PropertyKind::new(
    "Value Separator",
    "What stands between values; \\t is a tab.",
)
.default(",");

fn reader(open: impl Open + 'static) -> Service {
    Arc::new(Readers(Box::new(open)))
}

fn writer(create: impl Create + 'static) -> Service {
    Arc::new(Writers(Box::new(create)))
}

/// The Schema Text, read.
fn schema(settings: &Settings<'_>) -> Result<Option<Arc<AvroSchema>>, String> {
    let Some(text) = settings.text(SCHEMA_TEXT.name)? else {
        return Ok(None);
    };
    let schema = AvroSchema::parse(&text);
    let schema = schema.map_err(|why| format!("{}: {why}", SCHEMA_TEXT.name))?;
    Ok(Some(Arc::new(schema)))
}

/// A property that is one ASCII character, or none.
fn character(settings: &Settings<'_>, name: &str) -> Result<Option<u8>, String> {
    let Some(text) = settings.text(name)? else {
        return Ok(None);
    };
    match text.as_bytes() {
        b"\\t" => Ok(Some(b'\t')),
        [byte] if byte.is_ascii() => Ok(Some(*byte)),
        _ => Err(format!("{name}: '{text}' is not one ASCII character")),
    }
}
