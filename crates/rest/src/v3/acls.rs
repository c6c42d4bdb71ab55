//! Access control lists.
//!
//! Where nobody is asked who they are there are no ACLs, and each call answers 40002. Names of
//! streams' topics may be written either way; they are told as Kafka's clients write them.

use access::Acl;
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use super::Here;
use super::form::{Object, json};
use super::refusal::Refusal;
use crate::acl_words::AclWords;
use crate::answer::{self, JsonObject, Parameters};
use crate::error::RestError;
use crate::limits;

/// `GET …/acls` with any of an ACL's fields as parameters
pub(super) async fn list(
    here: Here,
    Parameters(words): Parameters<AclWords>,
) -> Result<Response, Refusal> {
    let acls = here.shared.store.acls(&words.filter()?).await?;
    let objects = acls.into_iter().map(|acl| here.acl_object(acl)).collect();
    Ok(here.place.list("acls", "KafkaAcl", objects))
}

/// `POST …/acls`: 201
pub(super) async fn create(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    let held = here.entity(&headers, body).await?;
    let acl = answer::entity::<AclWords>(&held.bytes)?.acl()?;
    let at = here.acl_url(&acl);
    here.shared.store.add_acls(vec![acl]).await?;
    let mut response = StatusCode::CREATED.into_response();
    if let Ok(at) = HeaderValue::try_from(at) {
        response.headers_mut().insert(header::LOCATION, at);
    }
    Ok(response)
}

/// `POST …/acls:batch` with `{"data": [ACL]}`: 201, all or none
pub(super) async fn create_all(
    here: Here,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Refusal> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Batch {
        data: Vec<JsonObject<AclWords>>,
    }
    let held = here.entity(&headers, body).await?;
    let Batch { data } = answer::entity(&held.bytes)?;
    if data.is_empty() || data.len() > limits::ACLS_AT_ONCE_MAX {
        let max = limits::ACLS_AT_ONCE_MAX;
        let text = format!("send 1 to {max} ACLs at a time");
        return Err(RestError::InvalidEntity(text).into());
    }
    let acls = data.iter().map(|JsonObject(words)| words.acl());
    let acls = acls.collect::<Result<Vec<Acl>, RestError>>()?;
    here.shared.store.add_acls(acls).await?;
    Ok(StatusCode::CREATED.into_response())
}

/// `DELETE …/acls` with at least one of an ACL's fields as parameters: what was removed
pub(super) async fn delete(
    here: Here,
    Parameters(words): Parameters<AclWords>,
) -> Result<Response, Refusal> {
    #[derive(Serialize)]
    struct Removed {
        data: Vec<Object<AclFields>>,
    }
    let filter = words.filter_of_some()?;
    let removed = here.shared.store.remove_acls(&filter).await?;
    let data = removed.into_iter().map(|acl| here.acl_object(acl));
    let removed = Removed {
        data: data.collect(),
    };
    Ok(json(StatusCode::OK, &removed))
}

#[derive(Serialize)]
struct AclFields {
    cluster_id: String,
    #[serde(flatten)]
    acl: Acl,
}

impl Here {
    fn acl_object(&self, acl: Acl) -> Object<AclFields> {
        let at = self.place.elsewhere(self.acl_url(&acl));
        let fields = AclFields {
            cluster_id: self.cluster.id.clone(),
            acl,
        };
        at.object("KafkaAcl", fields)
    }

    /// The URL that lists just this one.
    fn acl_url(&self, acl: &Acl) -> String {
        let words = [
            ("resource_type", acl.resource_type.name()),
            ("resource_name", acl.resource_name.clone()),
            ("pattern_type", acl.pattern_type.name()),
            ("principal", acl.principal.as_str().to_owned()),
            ("host", acl.host.clone()),
            ("operation", acl.operation.name()),
            ("permission", acl.permission.name()),
        ];
        let words = words.map(|(name, value)| format!("{name}={}", answer::segment(&value)));
        let at = self.place.related_under("acls").url();
        format!("{at}?{}", words.join("&"))
    }
}
