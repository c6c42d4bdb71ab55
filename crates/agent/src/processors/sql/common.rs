//! What the processors of SQL share: the connection that is kept, and rows as content.

use std::sync::Arc;

use crate::content::Content;
use crate::database::{DatabaseError, Link, Place, Rows};
use crate::engine::Context;
use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::json::Fields;
use crate::limits::{SPLITS_MAX, SQL_STATEMENT_BYTES_MAX};
use crate::processors::refused::Refused;
use crate::processors::{Expressions, ProcessorError, PropertyKind, Settings, Shape};
use crate::record_sets::Writers;
use crate::services::DATABASE_ROLE;
use crate::session::ProcessSession;

pub(super) const SERVICE: PropertyKind =
    PropertyKind::new("DB Controller Service", "Where the database is.")
        .required()
        .shape(Shape::Service(DATABASE_ROLE));

pub(super) const OUTPUT_FORMAT: PropertyKind = PropertyKind::new(
    "Output Format",
    "Rows are a list of JSON objects, plain or indented.",
)
.default("JSON-Pretty")
.allowed(&["JSON", "JSON-Pretty"])
.expressions(Expressions::Once);

pub(super) const ROWS_MAX: PropertyKind = PropertyKind::new(
    "Max Rows Per Flow File",
    "Rows of one FlowFile at most; all of them in one, where this is 0.",
)
.default("0")
.expressions(Expressions::FlowFile);

/// A database and the connection to it, opened when it is first needed.
pub(super) struct Connected {
    pub(super) place: Arc<Place>,
    link: Option<Link>,
}

impl Connected {
    /// To the database that the service names.
    pub(super) fn new(settings: &Settings<'_>) -> Result<Self, String> {
        let place = settings.service(SERVICE.name)?;
        Ok(Connected {
            place: place.ok_or_else(|| format!("{} is required and empty", SERVICE.name))?,
            link: None,
        })
    }

    /// Does something on the connection, which is given up when that fails.
    pub(super) fn with<T>(
        &mut self,
        context: &Context,
        work: impl FnOnce(&mut Link) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => Link::open(context, &self.place)?,
        };
        let done = work(&mut link)?;
        self.link = Some(link);
        Ok(done)
    }

    /// Lets go of the connection.
    pub(super) fn close(&mut self) {
        self.link = None;
    }
}

impl From<DatabaseError> for Refused {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Refused(reason) => Refused::FlowFile(reason),
            DatabaseError::Away(reason) => Refused::Session(ProcessorError::Failed(reason)),
        }
    }
}

/// Writes rows as contents of at most `rows_max` each, or as one where that is 0; there is one at
/// least. `see` is shown each row.
pub(super) fn contents(
    session: &mut ProcessSession<'_>,
    mut rows: Rows<'_>,
    rows_max: u64,
    writers: &Writers,
    mut see: impl FnMut(&Fields) -> Result<(), String>,
) -> Result<Vec<(Content, u64)>, Refused> {
    let mut contents = Vec::new();
    let mut next = rows.next()?;
    loop {
        let mut content = session.writer();
        let mut count = 0;
        {
            let mut writer = writers.create(&mut content);
            while (rows_max == 0 || count < rows_max)
                && let Some(row) = next.take()
            {
                see(&row).map_err(Refused::FlowFile)?;
                writer.write(&row)?;
                count += 1;
                next = rows.next()?;
            }
            writer.finish()?;
        }
        contents.push((content.finish()?, count));
        if next.is_none() {
            return Ok(contents);
        }
        if contents.len() >= SPLITS_MAX {
            return Err(Refused::flow_file(format!(
                "the rows make more than {SPLITS_MAX} FlowFiles: raise {}",
                ROWS_MAX.name
            )));
        }
    }
}

/// What the property says, and where it says nothing, what the content does.
pub(super) fn statement(
    session: &ProcessSession<'_>,
    property: Option<&Expression>,
    flow_file: Option<&FlowFile>,
) -> Result<String, Refused> {
    if let Some(property) = property {
        let scope = scope(session, flow_file);
        return Ok(property.evaluate(scope)?.into_owned());
    }
    let Some(flow_file) = flow_file else {
        return Err(Refused::flow_file(
            "there is neither a statement nor a FlowFile that has one",
        ));
    };
    if flow_file.size() > SQL_STATEMENT_BYTES_MAX {
        return Err(Refused::flow_file(format!(
            "a statement has at most {SQL_STATEMENT_BYTES_MAX} bytes"
        )));
    }
    let bytes = session.read(flow_file)?;
    let text =
        std::str::from_utf8(&bytes).map_err(|_| Refused::flow_file("the statement is no UTF-8"))?;
    Ok(text.to_owned())
}

/// Rows of one FlowFile at most.
pub(super) fn rows_max(
    session: &ProcessSession<'_>,
    property: &Expression,
    flow_file: Option<&FlowFile>,
) -> Result<u64, Refused> {
    let text = property.evaluate(scope(session, flow_file))?;
    text.trim()
        .parse()
        .map_err(|_| Refused::flow_file(format!("{}: '{text}' is no whole number", ROWS_MAX.name)))
}

fn scope<'s>(
    session: &ProcessSession<'_>,
    flow_file: Option<&'s FlowFile>,
) -> crate::expression::Scope<'s> {
    match flow_file {
        Some(flow_file) => session.scope(flow_file),
        None => crate::expression::Scope {
            attributes: None,
            flow_file: None,
            now: session.now(),
        },
    }
}
