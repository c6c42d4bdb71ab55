//! AzureStorageCredentialsService: an account of Azure's storage, and by what right it is used.

use std::sync::Arc;

use super::ServiceKind;
use crate::object_storage::azure::{Account, Right};
use crate::object_storage::base64_bytes;
use crate::processors::{Dynamic, Expressions, PropertyKind, Settings, Shape};

/// What the service and the processors alike say of an account.
pub(crate) const ACCOUNT: [PropertyKind; 8] = [
    PropertyKind::new("Storage Account Name", "The account's name.").expressions(Expressions::Once),
    PropertyKind::new("Storage Account Key", "The account's key, in Base64.")
        .expressions(Expressions::Once)
        .sensitive(),
    PropertyKind::new(
        "SAS Token",
        "A shared access signature, instead of the key.",
    )
    .expressions(Expressions::Once)
    .sensitive(),
    PropertyKind::new(
        "Common Storage Account Endpoint Suffix",
        "What the account's host ends with; core.windows.net when empty.",
    )
    .expressions(Expressions::Once),
    PropertyKind::new(
        "Connection String",
        "All that in one, instead of it: AccountName, AccountKey or SharedAccessSignature, \
         EndpointSuffix, DefaultEndpointsProtocol or BlobEndpoint.",
    )
    .expressions(Expressions::Once)
    .sensitive(),
    PropertyKind::new(
        "Credential Configuration Strategy",
        "Where the right comes from; others than the first are refused.",
    )
    .default(FROM_PROPERTIES)
    .required()
    .allowed(&[
        FROM_PROPERTIES,
        "Default Credential",
        "Managed Identity",
        "Workload Identity",
    ]),
    PropertyKind::new(
        "Managed Identity Client ID",
        "Who the machine is; it has no effect.",
    )
    .expressions(Expressions::Once)
    .sensitive(),
    PropertyKind::new(
        "Use Managed Identity Credentials",
        "The strategy's older form; `true` is refused.",
    )
    .default("false")
    .shape(Shape::Flag),
];

pub(super) const KIND: ServiceKind = ServiceKind {
    name: "AzureStorageCredentialsService",
    provides: "AzureStorageCredentialsService",
    description: "An account at Azure's Blob Storage, for its processors.",
    properties: &ACCOUNT,
    dynamic: Dynamic::None,
    make: |settings| Ok(Arc::new(account(settings)?)),
};

/// The account that properties describe.
pub(crate) fn account(settings: &Settings<'_>) -> Result<Account, String> {
    let strategy = settings.needed("Credential Configuration Strategy")?;
    if strategy != FROM_PROPERTIES || settings.flag("Use Managed Identity Credentials")? {
        return Err(
            "identities of the machine are not spoken for: set a key, a SAS Token or a Connection \
             String, with the Credential Configuration Strategy From Properties"
                .to_owned(),
        );
    }
    if let Some(text) = settings.text("Connection String")? {
        return connection(&text);
    }
    let suffix = settings.text("Common Storage Account Endpoint Suffix")?;
    made(
        settings.text("Storage Account Name")?,
        settings.text("Storage Account Key")?,
        settings.text("SAS Token")?,
        &|name| endpoint("https", name, suffix.as_deref()),
    )
}

fn connection(text: &str) -> Result<Account, String> {
    let field = |name: &str| {
        let mut pairs = text.split(';').filter_map(|pair| pair.split_once('='));
        let found = pairs.find(|(known, _)| known.trim().eq_ignore_ascii_case(name));
        let found = found.map(|(_, value)| value.trim().to_owned());
        found.filter(|value| !value.is_empty())
    };
    let protocol = field("DefaultEndpointsProtocol");
    let (suffix, given) = (field("EndpointSuffix"), field("BlobEndpoint"));
    let key = field("AccountKey");
    // A signature is for an address; only a key is an account's.
    let name = match (field("AccountName"), &key, &given) {
        (None, None, Some(_)) => Some(String::new()),
        (name, ..) => name,
    };
    let made = made(name, key, field("SharedAccessSignature"), &|name| {
        given.clone().unwrap_or_else(|| {
            endpoint(
                protocol.as_deref().unwrap_or("https"),
                name,
                suffix.as_deref(),
            )
        })
    });
    made.map_err(|reason| format!("Connection String: {reason}"))
}

fn made(
    name: Option<String>,
    key: Option<String>,
    signature: Option<String>,
    endpoint: &dyn Fn(&str) -> String,
) -> Result<Account, String> {
    let name = name.ok_or("the account's name is missing")?;
    let right = match (key, signature) {
        (Some(key), None) => {
            Right::Key(base64_bytes(&key).ok_or("the account's key is no Base64")?)
        }
        (None, Some(signature)) => Right::Signature(signature.trim_start_matches('?').to_owned()),
        (None, None) => return Err("neither a key nor a SAS Token is set".to_owned()),
        (Some(_), Some(_)) => return Err("either a key or a SAS Token, not both".to_owned()),
    };
    let endpoint = endpoint(&name).trim_end_matches('/').to_owned();
    let parsed: Result<reqwest::Url, _> = endpoint.parse();
    if !parsed.is_ok_and(|url| url.has_host() && matches!(url.scheme(), "http" | "https")) {
        return Err(format!("'{endpoint}' is no address"));
    }
    Ok(Account {
        name,
        endpoint,
        right,
    })
}

fn endpoint(protocol: &str, name: &str, suffix: Option<&str>) -> String {
    format!("{protocol}://{name}.blob.{}", suffix.unwrap_or(SUFFIX))
}

const FROM_PROPERTIES: &str = "From Properties";

/// Where the accounts of the public Azure are.
const SUFFIX: &str = "core.windows.net";

#[cfg(test)]
mod tests {
    use base::UnixMillis;

    use super::*;
    use crate::definition::ServiceDefinition;
    use crate::services::Services;

    fn made(properties: &[(&str, &str)]) -> Result<Arc<Account>, String> {
        let definition = ServiceDefinition {
            id: "a".to_owned(),
            name: "a".to_owned(),
            path: String::new(),
            group_id: String::new(),
            kind: &KIND,
            properties: properties
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        let services = Services::make(UnixMillis(0), &[definition]).map_err(|e| e.to_string())?;
        Ok(services.find("a").expect("it was made"))
    }

    #[test]
    fn an_account_comes_from_properties_or_one_string() {
        let named = ("Storage Account Name", "plant");
        let key = ("Storage Account Key", "c2VjcmV0");
        let signature = ("SAS Token", "?sv=1&sig=a%3D");
        let account = made(&[named, key]).unwrap();
        assert_eq!(account.endpoint, "https://plant.blob.core.windows.net");
        assert!(account.right == Right::Key(b"secret".to_vec()));
        assert_eq!(
            format!("{account:?}"),
            "Account(plant at https://plant.blob.core.windows.net)"
        );
        let suffix = ("Common Storage Account Endpoint Suffix", "core.example");
        let account = made(&[named, signature, suffix]).unwrap();
        assert_eq!(account.endpoint, "https://plant.blob.core.example");
        assert!(account.right == Right::Signature("sv=1&sig=a%3D".to_owned()));
        for (text, endpoint, is_key) in [
            (
                "DefaultEndpointsProtocol=http;AccountName=n;AccountKey=c2VjcmV0c2U=;",
                "http://n.blob.core.windows.net",
                true,
            ),
            (
                "AccountName=n;AccountKey=c2VjcmV0;BlobEndpoint=http://127.0.0.1:10000/n/",
                "http://127.0.0.1:10000/n",
                true,
            ),
            (
                "BlobEndpoint=https://blobs.example;SharedAccessSignature=sv=1&sig=x",
                "https://blobs.example",
                false,
            ),
        ] {
            // What else is set does not count.
            let account = made(&[("Connection String", text), signature]).unwrap();
            assert_eq!(account.endpoint, endpoint);
            assert_eq!(matches!(account.right, Right::Key(_)), is_key, "{text}");
        }
    }

    #[test]
    fn what_makes_no_account_is_refused_without_its_secrets() {
        let named = ("Storage Account Name", "plant");
        let key = ("Storage Account Key", "c2VjcmV0");
        for (properties, message) in [
            (vec![key], "the account's name is missing"),
            (vec![named], "neither a key nor a SAS Token"),
            (vec![named, key, ("SAS Token", "sv=1")], "not both"),
            (vec![named, ("Storage Account Key", "%%")], "is no Base64"),
            (
                vec![("Connection String", "AccountKey=c2VjcmV0")],
                "Connection String: the account's name is missing",
            ),
            (
                vec![("Connection String", "AccountName=a b;AccountKey=c2VjcmV0")],
                "is no address",
            ),
            (
                vec![
                    named,
                    key,
                    ("Credential Configuration Strategy", "Managed Identity"),
                ],
                "identities of the machine are not spoken for",
            ),
            (
                vec![named, key, ("Use Managed Identity Credentials", "true")],
                "identities of the machine are not spoken for",
            ),
        ] {
            let error = made(&properties).unwrap_err();
            assert!(error.contains(message), "{error}");
            assert!(!error.contains("c2VjcmV0"), "{error}");
        }
    }
}
