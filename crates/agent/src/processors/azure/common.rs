//! The account, the container and the blob; as properties.

use std::time::Duration;

use crate::expression::Expression;
use crate::flowfile::FlowFile;
use crate::object_storage::azure::Account;
use crate::processors::object_storage::{PROXY, client, text_alone, text_of};
use crate::processors::{Expressions, PropertyKind, Settings, Shape, joined};
use crate::services::azure_credentials as azure;
use crate::session::ProcessSession;

/// Whose container it is, and by which way: properties that every one has.
pub(super) const ACCOUNT: [PropertyKind; 11] = joined::<3, 8, 11>(
    [
        PropertyKind::new("Container Name", "The container.")
            .required()
            .expressions(Expressions::FlowFile),
        PropertyKind::new(
            "Azure Storage Credentials Service",
            "The account, instead of the properties below.",
        )
        .shape(Shape::Service("AzureStorageCredentialsService")),
        PROXY,
    ],
    azure::ACCOUNT,
);

pub(super) const BLOB: PropertyKind = PropertyKind::new(
    "Blob",
    "The blob's name; the attribute filename when empty.",
)
.expressions(Expressions::FlowFile);

/// The way to an account.
pub(super) struct Way {
    pub(super) client: reqwest::Client,
    pub(super) account: Account,
    container: Expression,
    blob: Option<Expression>,
}

impl Way {
    /// Reads the properties above.
    pub(super) fn new(settings: &Settings<'_>, has_blob: bool) -> Result<Self, String> {
        let service = settings.service::<Account>("Azure Storage Credentials Service")?;
        Ok(Way {
            client: client(settings, WAIT, None)?,
            account: match service {
                Some(account) => Account::clone(&account),
                None => azure::account(settings)?,
            },
            container: settings
                .expression("Container Name")?
                .ok_or("Container Name is empty")?,
            blob: match has_blob {
                true => settings.expression("Blob")?,
                false => None,
            },
        })
    }

    /// The container and the blob of a FlowFile.
    pub(super) fn object(
        &self,
        session: &ProcessSession<'_>,
        flow_file: &FlowFile,
    ) -> Result<(String, String), String> {
        let container = text_of(Some(&self.container), session, flow_file)?;
        let mut blob = text_of(self.blob.as_ref(), session, flow_file)?;
        if blob.is_empty() {
            blob = session.filename(flow_file).into_owned();
        }
        if container.is_empty() || blob.is_empty() {
            return Err("Container Name or Blob and filename are empty".to_owned());
        }
        Ok((container, blob))
    }

    /// The container where no FlowFile says which.
    pub(super) fn alone(&self, session: &ProcessSession<'_>) -> Result<String, String> {
        let container = text_alone(Some(&self.container), session)?;
        match container.is_empty() {
            true => Err("Container Name is empty".to_owned()),
            false => Ok(container),
        }
    }
}

/// Longest wait for the server.
pub(super) const WAIT: Duration = Duration::from_secs(30);
