//! AWSCredentialsService: who the agent is to object storage.

use std::sync::Arc;

use super::ServiceKind;
use crate::object_storage::s3::{Credentials, Identity, Source};
use crate::processors::{Dynamic, Expressions, PropertyKind, Settings, Shape};

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "AWSCredentialsService",
    provides: "AWSCredentialsService",
    description: "Keys of an account at object storage, for the S3 processors.",
    properties: &[
        PropertyKind::new("Access Key", "The access key.").expressions(Expressions::Once),
        PropertyKind::new("Secret Key", "The secret key.")
            .expressions(Expressions::Once)
            .sensitive(),
        PropertyKind::new(
            "Credentials File",
            "File with lines `accessKey=…` and `secretKey=…`, instead of the keys.",
        ),
        PropertyKind::new(
            "Use Default Credentials",
            "Whether AWS's default chain is asked when no keys are set: the environment, a profile \
             of ~/.aws/credentials, a web identity, the container, the machine (IMDSv2).",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| match aws_source(settings)? {
        Some(source) => Ok(Arc::new(Identity::new(source))),
        None => Err("no keys are set: write Access Key and Secret Key".to_owned()),
    },
};

/// What Access Key, Secret Key and Credentials File say; then what the default chain finds, where
/// it is to be asked.
pub(crate) fn aws_source(settings: &Settings<'_>) -> Result<Option<Source>, String> {
    let access_key = settings.text("Access Key")?;
    let secret_key = settings.text("Secret Key")?;
    let keys = |access_key, secret_key| {
        Some(Source::Keys(Credentials {
            access_key,
            secret_key,
            session_token: None,
        }))
    };
    match (access_key, secret_key) {
        (Some(access_key), Some(secret_key)) => return Ok(keys(access_key, secret_key)),
        (None, None) => {}
        _ => return Err("Access Key and Secret Key need each other".to_owned()),
    }
    if let Some(file) = settings.text("Credentials File")? {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("Credentials File '{file}': {error}"))?;
        let field = |name: &str| {
            let mut pairs = text.lines().filter_map(|line| line.split_once('='));
            let found = pairs.find(|(key, _)| key.trim() == name);
            found
                .map(|(_, value)| value.trim().to_owned())
                .ok_or_else(|| format!("Credentials File '{file}' has no line `{name}=…`"))
        };
        return Ok(keys(field("accessKey")?, field("secretKey")?));
    }
    if !settings.flag("Use Default Credentials")? {
        return Ok(None);
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let source = Source::of_chain(&variable);
    source
        .map(Some)
        .ok_or_else(|| "AWS's default chain is turned off".to_owned())
}
