//! Who the agent is to S3: keys that are set, or those that AWS's default chain finds.
//!
//! The chain is the environment's keys, a profile of the shared file, a web identity that STS
//! exchanges for keys, the container's endpoint and the machine's metadata service (IMDSv2). Which
//! of them it is is decided once, by the environment; keys that end are asked for anew before.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base::UnixMillis;
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::Value;

use super::Credentials;
use crate::net::http_client::{self, ClientSettings};
use crate::object_storage::gcs::json_words;
use crate::object_storage::{Request, query, told, xml, xml_words};

/// Who the agent is, with the keys that it has at present.
pub(crate) struct Identity {
    source: Source,
    /// The keys and until when they are used.
    kept: Mutex<Option<(Credentials, UnixMillis)>>,
}

/// Where keys come from.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// They are set.
    Keys(Credentials),
    /// A profile in a file of AWS's.
    Profile { file: PathBuf, name: String },
    /// A token in a file that STS, at this address, gives the keys of a role for.
    WebIdentity {
        file: PathBuf,
        role: String,
        session: String,
        address: String,
    },
    /// An address that answers containers, and what it wants to be shown: the token or its file.
    Container {
        address: String,
        token: Option<String>,
        token_file: Option<PathBuf>,
    },
    /// The machine's metadata service at this address.
    Machine(String),
}

impl Source {
    /// What the default chain comes to in an environment; none where all of it is turned off.
    pub(crate) fn of_chain(variable: &dyn Fn(&str) -> Option<String>) -> Option<Source> {
        let keys = variable("AWS_ACCESS_KEY_ID").zip(variable("AWS_SECRET_ACCESS_KEY"));
        if let Some((access_key, secret_key)) = keys {
            return Some(Source::Keys(Credentials {
                access_key,
                secret_key,
                session_token: variable("AWS_SESSION_TOKEN"),
            }));
        }
        let home = variable("HOME").map(|home| PathBuf::from(home).join(".aws/credentials"));
        let shared = variable("AWS_SHARED_CREDENTIALS_FILE").map(PathBuf::from);
        let name = variable("AWS_PROFILE").unwrap_or_else(|| "default".to_owned());
        if let Some(file) = shared.or(home)
            && profile(&file, &name).is_ok()
        {
            return Some(Source::Profile { file, name });
        }
        let identity = variable("AWS_WEB_IDENTITY_TOKEN_FILE").zip(variable("AWS_ROLE_ARN"));
        if let Some((file, role)) = identity {
            return Some(Source::WebIdentity {
                file: PathBuf::from(file),
                role,
                session: variable("AWS_ROLE_SESSION_NAME")
                    .unwrap_or_else(|| "thalweg-agent".to_owned()),
                address: variable("AWS_ENDPOINT_URL_STS").unwrap_or_else(|| sts(variable)),
            });
        }
        let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        let container = relative.map(|path| format!("{CONTAINER}{path}"));
        if let Some(address) = container.or_else(|| variable("AWS_CONTAINER_CREDENTIALS_FULL_URI"))
        {
            return Some(Source::Container {
                address,
                token: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
                token_file: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE").map(PathBuf::from),
            });
        }
        let is_off = variable("AWS_EC2_METADATA_DISABLED").as_deref() == Some("true");
        let address = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let address = address.unwrap_or_else(|| MACHINE.to_owned());
        (!is_off).then(|| Source::Machine(address.trim_end_matches('/').to_owned()))
    }
}

/// STS of the region, where the environment names one.
fn sts(variable: &dyn Fn(&str) -> Option<String>) -> String {
    let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
    let region = region.map(|region| format!("{region}."));
    format!("https://sts.{}amazonaws.com", region.unwrap_or_default())
}

impl Identity {
    pub(crate) fn new(source: Source) -> Self {
        Identity {
            source,
            kept: Mutex::new(None),
        }
    }

    /// Keys to sign with, new ones where the kept ones are about to end.
    pub(crate) async fn credentials(
        &self,
        client: &reqwest::Client,
        now: UnixMillis,
        wait: Duration,
    ) -> Result<Credentials, String> {
        if let Source::Keys(keys) = &self.source {
            return Ok(keys.clone());
        }
        if let Some((keys, _)) = self.kept.lock().as_ref().filter(|(_, until)| now < *until) {
            return Ok(keys.clone());
        }
        let found = match &self.source {
            Source::Keys(keys) => Ok((keys.clone(), None)),
            Source::Profile { file, name } => profile(file, name).map(|keys| (keys, None)),
            Source::WebIdentity {
                file,
                role,
                session,
                address,
            } => of_role(client, file, role, session, address, wait).await,
            Source::Container {
                address,
                token,
                token_file,
            } => of_container(address, token.clone(), token_file.as_deref(), wait).await,
            Source::Machine(address) => of_machine(address, wait).await,
        };
        let (keys, end) = found.map_err(|reason| format!("{reason} (for the account's keys)"))?;
        let end = end.and_then(|end| end.parse::<jiff::Timestamp>().ok());
        let until = match end {
            Some(end) => UnixMillis(end.as_millisecond() - BEFORE_END.as_millis() as i64),
            None => now + LOOKED_AT_AGAIN,
        };
        *self.kept.lock() = Some((keys.clone(), until));
        Ok(keys)
    }
}

/// Keys, and when they end as the server writes it.
type Found = Result<(Credentials, Option<String>), String>;

/// The keys of a profile.
fn profile(file: &Path, name: &str) -> Result<Credentials, String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    let (mut is_it, mut fields) = (false, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(section) = line
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            is_it = section.trim() == name;
        } else if let Some((key, value)) = line.split_once('=').filter(|_| is_it) {
            fields.push((key.trim(), value.trim()));
        }
    }
    let field = |key: &str| {
        let found = fields.iter().find(|(known, _)| *known == key);
        found.map(|(_, value)| (*value).to_owned())
    };
    let keys = field("aws_access_key_id").zip(field("aws_secret_access_key"));
    let (access_key, secret_key) = keys.ok_or_else(|| {
        let file = file.display();
        format!("{file} has no aws_access_key_id and aws_secret_access_key of the profile '{name}'")
    })?;
    Ok(Credentials {
        access_key,
        secret_key,
        session_token: field("aws_session_token"),
    })
}

/// The keys of a role, for a token that says who the agent is.
async fn of_role(
    client: &reqwest::Client,
    file: &Path,
    role: &str,
    session: &str,
    address: &str,
    wait: Duration,
) -> Found {
    let form = query(&[
        ("Action", "AssumeRoleWithWebIdentity".to_owned()),
        ("RoleArn", role.to_owned()),
        ("RoleSessionName", session.to_owned()),
        ("Version", "2011-06-15".to_owned()),
        ("WebIdentityToken", secret_of(file)?),
    ]);
    let kind = "application/x-www-form-urlencoded".to_owned();
    let request = Request {
        method: Method::POST,
        url: address.to_owned(),
        headers: vec![("content-type".to_owned(), kind)],
        body: Some(form.into()),
    };
    let text = told(client, request, xml_words, wait).await?;
    let field = |name: &str| xml::text(&text, name);
    found(
        field("AccessKeyId"),
        field("SecretAccessKey"),
        field("SessionToken"),
        field("Expiration"),
    )
}

/// What answers containers is beside them, never behind a proxy.
async fn of_container(
    address: &str,
    token: Option<String>,
    token_file: Option<&Path>,
    wait: Duration,
) -> Found {
    let token = match token_file {
        Some(file) => Some(secret_of(file)?),
        None => token,
    };
    let token = token.map(|token| ("authorization".to_owned(), token));
    let text = local(Method::GET, address.to_owned(), token, wait).await?;
    found_in_json(&text)
}

/// IMDSv2: a token for the session first, then the role's name, then its keys.
async fn of_machine(address: &str, wait: Duration) -> Found {
    let lasting = (
        "x-aws-ec2-metadata-token-ttl-seconds".to_owned(),
        "300".to_owned(),
    );
    let url = format!("{address}/latest/api/token");
    let token = local(Method::PUT, url, Some(lasting), wait).await?;
    let token = ("x-aws-ec2-metadata-token".to_owned(), token);
    let url = format!("{address}/latest/meta-data/iam/security-credentials/");
    let roles = local(Method::GET, url.clone(), Some(token.clone()), wait).await?;
    let role = roles.lines().next().unwrap_or_default().trim();
    let text = local(Method::GET, format!("{url}{role}"), Some(token), wait).await?;
    found_in_json(&text)
}

async fn local(
    method: Method,
    url: String,
    header: Option<(String, String)>,
    wait: Duration,
) -> Result<String, String> {
    let client = http_client::client(&ClientSettings {
        connect_wait: wait,
        ..ClientSettings::default()
    })?;
    let request = Request {
        method,
        url,
        headers: header.into_iter().collect(),
        body: None,
    };
    Ok(told(&client, request, json_words, wait).await?)
}

fn found_in_json(text: &str) -> Found {
    let told: Value = serde_json::from_str(text).map_err(|_| "the answer is no JSON".to_owned())?;
    let field = |name: &str| told.get(name)?.as_str().map(str::to_owned);
    found(
        field("AccessKeyId"),
        field("SecretAccessKey"),
        field("Token"),
        field("Expiration"),
    )
}

fn found(
    access_key: Option<String>,
    secret_key: Option<String>,
    session_token: Option<String>,
    end: Option<String>,
) -> Found {
    let keys = access_key.zip(secret_key);
    let (access_key, secret_key) = keys.ok_or("the answer has no keys".to_owned())?;
    let keys = Credentials {
        access_key,
        secret_key,
        session_token,
    };
    Ok((keys, end))
}

/// A secret that a file holds.
fn secret_of(file: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(file);
    let text = text.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Ok(text.trim().to_owned())
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never keys or tokens: this goes into logs.
        f.write_str(match &self.source {
            Source::Keys(_) => "keys",
            Source::Profile { name, .. } => name,
            Source::WebIdentity { role, .. } => role,
            Source::Container { address, .. } | Source::Machine(address) => address,
        })
    }
}

/// Where ECS answers containers.
const CONTAINER: &str = "http://169.254.170.2";

/// Where EC2 answers machines.
const MACHINE: &str = "http://169.254.169.254";

/// Keys are not used any more so long before they end.
const BEFORE_END: Duration = Duration::from_secs(300);

/// Keys that do not say when they end are looked at again after this long.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Answer, HttpPeer, Seen, runtime};

    const JSON: &str = r#"{"AccessKeyId": "a", "SecretAccessKey": "s", "Token": "t",
                           "Expiration": "1970-01-01T01:00:00Z"}"#;

    const XML: &str = "<R><Credentials><AccessKeyId>a</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
        <SessionToken>t</SessionToken><Expiration>1970-01-01T01:00:00Z</Expiration></Credentials></R>";

    /// STS, a container's endpoint and a machine's metadata service.
    fn aws(seen: &Seen) -> Answer {
        let body = String::from_utf8_lossy(&seen.body);
        let machine = seen.header("x-aws-ec2-metadata-token") == Some("imds");
        match (seen.method.as_str(), seen.target.as_str()) {
            ("POST", "/") if body.contains("RoleArn=arn%3Arole") && body.contains("Token=web") => {
                Answer::new(200, XML)
            }
            ("GET", "/v2/keys") if seen.header("authorization") == Some("Bearer x") => {
                Answer::new(200, JSON)
            }
            ("PUT", "/latest/api/token") => Answer::new(200, "imds"),
            ("GET", "/latest/meta-data/iam/security-credentials/") if machine => {
                Answer::new(200, "edge")
            }
            ("GET", "/latest/meta-data/iam/security-credentials/edge") if machine => {
                Answer::new(200, JSON)
            }
            _ => Answer::new(403, "who?"),
        }
    }

    #[test]
    fn the_chain_finds_keys_wherever_they_are() {
        let peer = HttpPeer::start(None, aws);
        let address = format!("http://{}", peer.address());
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let shared = "[other]\naws_access_key_id = x\n[edge]\naws_access_key_id=a\n\
                      aws_secret_access_key = s\naws_session_token=t\n";
        let (shared, web) = (file("credentials", shared), file("web", "web\n"));
        let token = file("token", "Bearer x");
        let full = format!("{address}/v2/keys");
        let sources: [&[(&str, &str)]; 5] = [
            &[
                ("AWS_ACCESS_KEY_ID", "a"),
                ("AWS_SECRET_ACCESS_KEY", "s"),
                ("AWS_SESSION_TOKEN", "t"),
            ],
            &[
                ("AWS_SHARED_CREDENTIALS_FILE", &shared),
                ("AWS_PROFILE", "edge"),
            ],
            &[
                ("AWS_WEB_IDENTITY_TOKEN_FILE", &web),
                ("AWS_ROLE_ARN", "arn:role"),
                ("AWS_ENDPOINT_URL_STS", &address),
            ],
            &[
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", &full),
                ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &token),
            ],
            &[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &address)],
        ];
        let client = http_client::client(&ClientSettings::default()).unwrap();
        for variables in sources {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let identity = Identity::new(Source::of_chain(&variable).unwrap());
            let ask = |now: i64| {
                let wait = Duration::from_secs(10);
                let asking = identity.credentials(&client, UnixMillis(now), wait);
                let keys = runtime().block_on(asking).unwrap();
                assert_eq!(
                    (keys.access_key.as_str(), keys.secret_key.as_str()),
                    ("a", "s")
                );
                assert_eq!(keys.session_token.as_deref(), Some("t"));
                peer.seen().len()
            };
            // They end after an hour, and are asked for again five minutes before.
            let first = ask(0);
            assert_eq!(ask(3_299_999), first, "{variables:?}");
            let is_told = ask(3_300_000) > first;
            let lasts = ["AWS_ACCESS_KEY_ID", "AWS_SHARED_CREDENTIALS_FILE"];
            assert_eq!(is_told, !lasts.contains(&variables[0].0), "{variables:?}");
        }
        let off = |name: &str| (name == "AWS_EC2_METADATA_DISABLED").then(|| "true".to_owned());
        assert!(Source::of_chain(&off).is_none());
    }
}
