//! DescribeUserScramCredentials and AlterUserScramCredentials: users by the admin API.
//!
//! A client salts a new password itself, so the password never comes here.

use std::collections::{BTreeMap, BTreeSet};

use access::{AccessError, Credential, Operation, ScramHash, UserChange};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
};

use super::reply::{Call, Ending, Reply, owned};
use super::security::{access_of, blocking};
use super::topics::Refusal;

/// Tells which credentials users have.
pub(super) fn describe_credentials(call: Call) -> Result<Reply, Ending> {
    let request: DescribeUserScramCredentialsRequest =
        call.decode("DescribeUserScramCredentials")?;
    let access = match (call.may_of_all(Operation::Describe), access_of(&call)) {
        (true, Some(access)) => access,
        (may, _) => {
            let refusal = refusal_of(may);
            // Each user that was asked for is told too: clients look there.
            let results = request.users.into_iter().flatten().map(|user| {
                DescribeUserScramCredentialsResult::default()
                    .with_user(user.name)
                    .with_error_code(refusal.code)
                    .with_error_message(Some(owned(refusal.reason.as_str())))
            });
            let results = results.collect();
            let body = DescribeUserScramCredentialsResponse::default()
                .with_results(results)
                .with_error_code(refusal.code)
                .with_error_message(Some(owned(refusal.reason)));
            return call.now(&body);
        }
    };
    let snapshot = access.snapshot();
    // Users of whom only a password's hash is kept are none of SCRAM's.
    let known = snapshot.users().filter(|(_, keys)| !keys.is_empty());
    let known: BTreeMap<&str, &[Credential]> = known.collect();
    let wanted: Vec<&str> = match &request.users {
        Some(users) if !users.is_empty() => users.iter().map(|user| &*user.name).collect(),
        _ => known.keys().copied().collect(),
    };
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &wanted {
        *count.entry(name).or_default() += 1;
    }
    let results = count.into_iter().map(|(name, count)| {
        let result = DescribeUserScramCredentialsResult::default().with_user(owned(name));
        let refused = |code: ResponseError, reason: &str| {
            result
                .clone()
                .with_error_code(code.code())
                .with_error_message(Some(owned(reason)))
        };
        match known.get(name) {
            _ if count > 1 => refused(
                ResponseError::DuplicateResource,
                "the request names the user twice",
            ),
            None => refused(ResponseError::ResourceNotFound, "there is no such user"),
            Some(credentials) => result.with_credential_infos(
                credentials
                    .iter()
                    .map(|credential| {
                        CredentialInfo::default()
                            .with_mechanism(code_of(credential.hash))
                            .with_iterations(
                                i32::try_from(credential.iterations).unwrap_or(i32::MAX),
                            )
                    })
                    .collect(),
            ),
        }
    });
    let results = results.collect();
    call.now(&DescribeUserScramCredentialsResponse::default().with_results(results))
}

/// Sets and removes credentials; each user stands or fails alone.
pub(super) fn alter_credentials(call: Call) -> Result<Reply, Ending> {
    let request: AlterUserScramCredentialsRequest = call.decode("AlterUserScramCredentials")?;
    let mut users: BTreeMap<String, Result<Vec<UserChange>, Refusal>> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    let removals = request.deletions.into_iter().map(|removal| {
        let name = removal.name.to_string();
        let change =
            hash_of(removal.mechanism).map(|hash| UserChange::Remove(name.clone(), Some(hash)));
        (name, removal.mechanism, change)
    });
    let settings = request.upsertions.into_iter().map(|setting| {
        let name = setting.name.to_string();
        let change = hash_of(setting.mechanism).and_then(|hash| {
            let iterations = u32::try_from(setting.iterations).unwrap_or(0);
            Credential::of_salted(hash, &setting.salt, iterations, &setting.salted_password)
                .map(|credential| UserChange::Set(name.clone(), credential))
                .map_err(Refusal::from)
        });
        (name, setting.mechanism, change)
    });
    for (name, mechanism, change) in removals.chain(settings) {
        let is_first = seen.insert((name.clone(), mechanism));
        let changes = users.entry(name).or_insert_with(|| Ok(Vec::new()));
        match (changes, change) {
            (changes, _) if !is_first => {
                let reason = "the request names the user's mechanism twice";
                *changes = Err(Refusal::of(ResponseError::DuplicateResource, reason));
            }
            (Ok(changes), Ok(change)) => changes.push(change),
            (changes @ Ok(_), Err(refusal)) => *changes = Err(refusal),
            (Err(_), _) => {}
        }
    }
    let may = call.may_of_all(Operation::Alter);
    Reply::later(async move {
        let mut results = Vec::with_capacity(users.len());
        for (name, changes) in users {
            let altered = match (may, access_of(&call), changes) {
                (true, Some(access), Ok(changes)) => {
                    blocking(move || access.alter_users(&changes).map_err(Refusal::from)).await
                }
                (true, Some(_), Err(refusal)) => Err(refusal),
                (may, ..) => Err(refusal_of(may)),
            };
            let result = AlterUserScramCredentialsResult::default().with_user(owned(name));
            results.push(match altered {
                Ok(()) => result,
                Err(refusal) => result
                    .with_error_code(refusal.code)
                    .with_error_message(Some(owned(refusal.reason))),
            });
        }
        call.answer(&AlterUserScramCredentialsResponse::default().with_results(results))
    })
}

impl From<AccessError> for Refusal {
    fn from(error: AccessError) -> Self {
        let code = match &error {
            AccessError::Invalid { what, .. } => match *what {
                "iterations" | "salt" | "salted password" | "user name" => {
                    ResponseError::UnacceptableCredential
                }
                "principal" => ResponseError::InvalidPrincipalType,
                _ => ResponseError::InvalidRequest,
            },
            AccessError::UnknownUser(_) => ResponseError::ResourceNotFound,
            AccessError::Limit { .. } => ResponseError::PolicyViolation,
            AccessError::File { .. } | AccessError::Unreadable { .. } | AccessError::Shared(_) => {
                ResponseError::KafkaStorageError
            }
            _ => ResponseError::UnknownServerError,
        };
        Refusal::of(code, base::report(&error))
    }
}

fn refusal_of(may: bool) -> Refusal {
    match may {
        false => Refusal::of(ResponseError::ClusterAuthorizationFailed, "not allowed"),
        true => Refusal::of(ResponseError::SecurityDisabled, "there are no users here"),
    }
}

fn hash_of(mechanism: i8) -> Result<ScramHash, Refusal> {
    let found = ScramHash::ALL
        .into_iter()
        .find(|hash| code_of(*hash) == mechanism);
    let unknown = "write SCRAM-SHA-256 or SCRAM-SHA-512";
    found.ok_or_else(|| Refusal::of(ResponseError::UnsupportedSaslMechanism, unknown))
}

/// Kafka's number for a SCRAM mechanism.
fn code_of(hash: ScramHash) -> i8 {
    match hash {
        ScramHash::Sha256 => 1,
        ScramHash::Sha512 => 2,
    }
}
