//! XML: records are elements, fields are elements in them, and elements of one name are a list.
//!
//! Only the entities that XML itself has are known, so that none can grow.

use std::io::{self, BufReader, Read, Write};

use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesStart, Event};

use super::{Create, Open, RecordError, RecordReader, RecordWriter, infer};
use crate::json::{Fields, Json};
use crate::limits::{RECORD_BYTES_MAX, XML_DEPTH_MAX};

/// Opens readers of XML.
#[derive(Clone, Debug)]
pub(super) struct XmlReaders {
    /// The field for the text of an element that has elements or attributes too.
    pub(super) content_field: String,
    /// What begins the names of attributes' fields; attributes are left out, where none.
    pub(super) attribute_prefix: Option<String>,
    /// Whether records are within an outer element.
    pub(super) is_wrapped: bool,
}

/// Opens writers of XML.
#[derive(Clone, Debug)]
pub(super) struct XmlWriters {
    pub(super) root: String,
    pub(super) record: String,
    pub(super) arrays: ArrayTags,
    pub(super) has_declaration: bool,
    pub(super) is_pretty: bool,
}

/// How lists are written.
#[derive(Clone, Debug)]
pub(super) enum ArrayTags {
    /// Items one after the other.
    None,
    /// Items within an element of this name.
    Wrapper(String),
    /// Items as elements of this name within one of the field's.
    Elements(String),
}

struct XmlReader<'r> {
    input: quick_xml::Reader<BufReader<Box<dyn Read + 'r>>>,
    how: XmlReaders,
    /// Whether the outer element is open.
    is_inside: bool,
    is_done: bool,
}

/// An element that is being read.
struct Element {
    name: String,
    fields: Fields,
    text: String,
}

struct XmlWriter<'w> {
    output: Box<dyn Write + 'w>,
    how: XmlWriters,
    is_started: bool,
}

impl Open for XmlReaders {
    fn open<'r>(&self, input: Box<dyn Read + 'r>) -> Box<dyn RecordReader + 'r> {
        let buffered = BufReader::with_capacity(READ_BYTES, input);
        let mut input = quick_xml::Reader::from_reader(buffered);
        input.config_mut().expand_empty_elements = true;
        Box::new(XmlReader {
            input,
            how: self.clone(),
            is_inside: false,
            is_done: false,
        })
    }
}

impl RecordReader for XmlReader<'_> {
    fn next(&mut self) -> Result<Option<Fields>, RecordError> {
        let mut buffer = Vec::new();
        while !self.is_done {
            buffer.clear();
            match self.input.read_event_into(&mut buffer).map_err(refused)? {
                Event::Start(start) if self.how.is_wrapped && !self.is_inside => {
                    drop(start);
                    self.is_inside = true;
                }
                Event::Start(start) => {
                    let element = self.open_element(&start)?;
                    let record = self.read_record(element)?;
                    self.is_done = !self.how.is_wrapped;
                    return Ok(Some(record));
                }
                Event::End(_) => self.is_done = true,
                Event::Eof if self.is_inside => {
                    return Err(RecordError::format("the outer element does not end"));
                }
                Event::Eof => self.is_done = true,
                _ => {}
            }
        }
        Ok(None)
    }
}

impl XmlReader<'_> {
    fn open_element(&self, start: &BytesStart<'_>) -> Result<Element, RecordError> {
        let mut element = Element {
            name: start.name().as_ref().to_owned(),
            fields: Fields::default(),
            text: String::new(),
        };
        if let Some(prefix) = &self.how.attribute_prefix {
            for attribute in start.attributes() {
                let attribute = attribute.map_err(RecordError::format)?;
                let name = format!("{prefix}{}", attribute.key.as_ref());
                let value = attribute
                    .normalized_value(XML)
                    .map_err(refused)?
                    .into_owned();
                add(&mut element.fields, &name, infer::value(value));
            }
        }
        Ok(element)
    }

    /// Reads what is in an element that was opened, to its end.
    fn read_record(&mut self, first: Element) -> Result<Fields, RecordError> {
        let mut open = vec![first];
        let start = self.input.buffer_position();
        let mut buffer = Vec::new();
        loop {
            buffer.clear();
            let event = self.input.read_event_into(&mut buffer).map_err(refused)?;
            if self.input.buffer_position() - start > RECORD_BYTES_MAX as u64 {
                return Err(RecordError::Format(format!(
                    "a record has more than {RECORD_BYTES_MAX} bytes"
                )));
            }
            let depth = open.len();
            let Some(element) = open.last_mut() else {
                return Err(RecordError::format("an element ends that was not open"));
            };
            match event {
                Event::Start(start) => {
                    if depth > XML_DEPTH_MAX {
                        return Err(RecordError::Format(format!(
                            "elements are nested more than {XML_DEPTH_MAX} deep"
                        )));
                    }
                    let inner = self.open_element(&start)?;
                    open.push(inner);
                }
                Event::Text(text) => element.text.push_str(&text.xml10_content()),
                Event::CData(text) => element.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => {
                    match reference.resolve_char_ref().map_err(refused)? {
                        Some(c) => element.text.push(c),
                        None => {
                            let name = reference.xml10_content();
                            let known = resolve_predefined_entity(&name);
                            element.text.push_str(known.ok_or_else(|| {
                                RecordError::Format(format!("the entity '{name}' is not known"))
                            })?);
                        }
                    }
                }
                Event::End(_) => {
                    let Some(ended) = open.pop() else {
                        return Err(RecordError::format("an element ends that was not open"));
                    };
                    let is_record = open.is_empty();
                    let (name, value) = self.close(ended, is_record);
                    match (open.last_mut(), value) {
                        (Some(outer), value) => add(&mut outer.fields, &name, value),
                        (None, Json::Object(fields)) => return Ok(fields),
                        (None, _) => return Ok(Fields::default()),
                    }
                }
                Event::Eof => return Err(RecordError::format("a record does not end")),
                _ => {}
            }
        }
    }

    fn close(&self, element: Element, is_record: bool) -> (String, Json) {
        let Element {
            name,
            mut fields,
            text,
        } = element;
        let has_fields = fields.len() > 0;
        if !has_fields && !is_record {
            return (name, infer::value(text));
        }
        // Blanks between elements are no content.
        if !text.trim().is_empty() {
            let value = infer::value(text.trim().to_owned());
            add(&mut fields, &self.how.content_field, value);
        }
        (name, Json::Object(fields))
    }
}

/// Adds a field; a second of its name makes both a list.
fn add(fields: &mut Fields, name: &str, value: Json) {
    match fields.get_mut(name) {
        None => fields.push(name.to_owned(), value),
        Some(Json::List(items)) => items.push(value),
        Some(known) => {
            let first = std::mem::take(known);
            *known = Json::List(vec![first, value]);
        }
    }
}

fn refused(error: quick_xml::Error) -> RecordError {
    match error {
        quick_xml::Error::Io(error) => {
            let kind = error.kind();
            io::Error::new(kind, error.to_string()).into()
        }
        other => RecordError::Format(format!("no XML: {other}")),
    }
}

impl Create for XmlWriters {
    fn create<'w>(&self, output: Box<dyn Write + 'w>) -> Box<dyn RecordWriter + 'w> {
        Box::new(XmlWriter {
            output,
            how: self.clone(),
            is_started: false,
        })
    }

    fn mime_type(&self) -> &'static str {
        "application/xml"
    }
}

impl RecordWriter for XmlWriter<'_> {
    fn write(&mut self, record: &Fields) -> Result<(), RecordError> {
        self.start()?;
        let name = self.how.record.clone();
        self.object(&name, record, 1)
    }

    fn finish(&mut self) -> Result<(), RecordError> {
        self.start()?;
        self.indent(0)?;
        write!(self.output, "</{}>", tag(&self.how.root))?;
        Ok(self.output.flush()?)
    }
}

impl XmlWriter<'_> {
    fn start(&mut self) -> Result<(), RecordError> {
        if self.is_started {
            return Ok(());
        }
        self.is_started = true;
        if self.how.has_declaration {
            self.output.write_all(b"<?xml version=\"1.0\"?>")?;
            self.indent(0)?;
        }
        Ok(write!(self.output, "<{}>", tag(&self.how.root))?)
    }

    fn object(&mut self, name: &str, fields: &Fields, depth: usize) -> Result<(), RecordError> {
        self.indent(depth)?;
        write!(self.output, "<{}>", tag(name))?;
        for (field, value) in fields.iter() {
            self.field(field, value, depth + 1)?;
        }
        if fields.len() > 0 {
            self.indent(depth)?;
        }
        Ok(write!(self.output, "</{}>", tag(name))?)
    }

    fn field(&mut self, name: &str, value: &Json, depth: usize) -> Result<(), RecordError> {
        match value {
            Json::Object(fields) => self.object(name, fields, depth),
            Json::List(items) => {
                let (outer, item) = match self.how.arrays.clone() {
                    ArrayTags::None => (None, name.to_owned()),
                    ArrayTags::Wrapper(tag) => (Some(tag), name.to_owned()),
                    ArrayTags::Elements(tag) => (Some(name.to_owned()), tag),
                };
                let inner = depth + usize::from(outer.is_some());
                if let Some(outer) = &outer {
                    self.indent(depth)?;
                    write!(self.output, "<{}>", tag(outer))?;
                }
                for value in items {
                    self.field(&item, value, inner)?;
                }
                if let Some(outer) = &outer {
                    self.indent(depth)?;
                    write!(self.output, "</{}>", tag(outer))?;
                }
                Ok(())
            }
            scalar => {
                self.indent(depth)?;
                let (tag, text) = (tag(name), scalar.to_plain());
                let text: String = text.chars().filter(|c| is_legal(*c)).collect();
                Ok(write!(self.output, "<{tag}>{}</{tag}>", escape(text))?)
            }
        }
    }

    fn indent(&mut self, depth: usize) -> Result<(), RecordError> {
        if self.how.is_pretty {
            write!(self.output, "\n{}", "  ".repeat(depth))?;
        }
        Ok(())
    }
}

/// A name as an element can have it: what cannot stand there becomes `_`.
fn tag(name: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':');
    let mut tag: String = name
        .chars()
        .map(|c| if is_part(c) { c } else { '_' })
        .collect();
    let begins = |c: char| c.is_alphabetic() || c == '_';
    if !tag.chars().next().is_some_and(begins) {
        tag.insert(0, '_');
    }
    tag
}

/// Characters that XML 1.0 can have.
fn is_legal(c: char) -> bool {
    !matches!(c, '\0'..='\x08' | '\x0b' | '\x0c' | '\x0e'..='\x1f' | '\u{fffe}' | '\u{ffff}')
}

/// Attributes' values are read as XML 1.0's, which all documents in practice are.
const XML: quick_xml::XmlVersion = quick_xml::XmlVersion::Implicit1_0;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
