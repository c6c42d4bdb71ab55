//! AWSCredentialsService: who the agent is to object storage.

use std::sync::Arc;

use super::ServiceKind;
use crate::processors::{Dynamic, Expressions, PropertyKind, Settings, Shape};

/// Keys of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct AwsCredentials {
    /// The name of the secret.
    pub access_key: String,
    /// The secret.
    pub secret_key: String,
    /// Of temporary keys.
    pub session_token: Option<String>,
}

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
            "Whether AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN of the \
             environment are used when no keys are set.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    make: |settings| {
        let found = AwsCredentials::read(settings, settings.flag("Use Default Credentials")?)?;
        found
            .map(|found| Arc::new(found) as super::Service)
            .ok_or_else(|| "no keys are set: write Access Key and Secret Key".to_owned())
    },
};

impl AwsCredentials {
    /// Reads Access Key, Secret Key and Credentials File; then the environment, if it may.
    pub(crate) fn read(settings: &Settings<'_>, default: bool) -> Result<Option<Self>, String> {
        let access_key = settings.text("Access Key")?;
        let secret_key = settings.text("Secret Key")?;
        let made = |access_key, secret_key, session_token| {
            Some(AwsCredentials {
                access_key,
                secret_key,
                session_token,
            })
        };
        match (access_key, secret_key) {
            (Some(access_key), Some(secret_key)) => return Ok(made(access_key, secret_key, None)),
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
            return Ok(made(field("accessKey")?, field("secretKey")?, None));
        }
        if !default {
            return Ok(None);
        }
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Ok(variable("AWS_ACCESS_KEY_ID")
            .zip(variable("AWS_SECRET_ACCESS_KEY"))
            .and_then(|(access, secret)| made(access, secret, variable("AWS_SESSION_TOKEN"))))
    }
}
