//! DescribeClientQuotas and AlterClientQuotas.

use std::collections::BTreeSet;

use access::{Operation, QuotaEntity};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_client_quotas_request::EntryData as Asked;
use kafka_protocol::messages::alter_client_quotas_response::{
    EntityData as AlteredEntity, EntryData as Altered,
};
use kafka_protocol::messages::describe_client_quotas_request::ComponentData;
use kafka_protocol::messages::describe_client_quotas_response::{EntityData, EntryData, ValueData};
use kafka_protocol::messages::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::reply::{Call, Ending, Reply, owned, text};
use super::security::{access_of, blocking};
use super::topics::Refusal;

/// Tells the quotas whose entities pass the filter.
pub(super) fn describe(call: Call) -> Result<Reply, Ending> {
    let request: DescribeClientQuotasRequest = call.decode("DescribeClientQuotas")?;
    let entries = match (
        call.may_of_all(Operation::DescribeConfigs),
        access_of(&call),
    ) {
        (false, _) => Err(not_allowed()),
        (true, None) => Err(no_quotas()),
        (true, Some(access)) => Filter::of(&request).map(|filter| {
            let snapshot = access.snapshot();
            let fitting = snapshot.quotas().filter(|(entity, _)| filter.fits(entity));
            let told = fitting.map(|(entity, quota)| {
                let values = quota.iter().map(|(key, value)| {
                    ValueData::default()
                        .with_key(owned(key.as_str()))
                        .with_value(*value)
                });
                EntryData::default()
                    .with_entity(told_entity(entity))
                    .with_values(values.collect())
            });
            told.collect()
        }),
    };
    let body = DescribeClientQuotasResponse::default();
    call.now(&match entries {
        Ok(entries) => body.with_entries(Some(entries)).with_error_message(None),
        Err(refusal) => body
            .with_error_code(refusal.code)
            .with_error_message(Some(owned(refusal.reason)))
            .with_entries(None),
    })
}

/// Sets and removes quotas; each entity stands or fails alone, durable when answered.
pub(super) fn alter(call: Call) -> Result<Reply, Ending> {
    let request: AlterClientQuotasRequest = call.decode("AlterClientQuotas")?;
    let may = call.may_of_all(Operation::AlterConfigs);
    Reply::later(async move {
        let mut entries = Vec::with_capacity(request.entries.len());
        for asked in request.entries {
            let altered = match (may, access_of(&call), changes_of(&asked)) {
                (false, ..) => Err(not_allowed()),
                (true, None, _) => Err(no_quotas()),
                (true, _, Err(refusal)) => Err(refusal),
                (true, Some(_), Ok(_)) if request.validate_only => Ok(()),
                (true, Some(access), Ok(changes)) => {
                    blocking(move || access.alter_quotas(&changes).map_err(Refusal::from)).await
                }
            };
            let (code, reason) = Refusal::told(altered);
            let entity = asked.entity.into_iter().map(|part| {
                AlteredEntity::default()
                    .with_entity_type(part.entity_type)
                    .with_entity_name(part.entity_name)
            });
            entries.push(
                Altered::default()
                    .with_error_code(code)
                    .with_error_message(reason)
                    .with_entity(entity.collect()),
            );
        }
        call.answer(&AlterClientQuotasResponse::default().with_entries(entries))
    })
}

type Change = (QuotaEntity, String, Option<f64>);

fn changes_of(asked: &Asked) -> Result<Vec<Change>, Refusal> {
    let mut entity = QuotaEntity::default();
    for part in &asked.entity {
        let name = part.entity_name.as_ref().map(|name| name.to_string());
        let place = place_of(&mut entity, &part.entity_type)
            .ok_or_else(|| invalid(format!("quotas are not by '{}'", &*part.entity_type)))?;
        if place.replace(name).is_some() {
            return Err(invalid(format!(
                "'{}' stands there twice",
                &*part.entity_type
            )));
        }
    }
    let mut seen = BTreeSet::new();
    let mut changes = Vec::with_capacity(asked.ops.len());
    for change in &asked.ops {
        if !seen.insert(&change.key) {
            return Err(invalid(format!("'{}' is changed twice", &*change.key)));
        }
        let value = (!change.remove).then_some(change.value);
        entity.check(&change.key, value)?;
        changes.push((entity.clone(), change.key.to_string(), value));
    }
    Ok(changes)
}

/// What entities are asked for.
struct Filter {
    parts: Vec<(StrBytes, Wanted)>,
    /// Whether entities with more parts are left out.
    is_strict: bool,
}

enum Wanted {
    Name(String),
    Default,
    Any,
}

impl Filter {
    fn of(request: &DescribeClientQuotasRequest) -> Result<Self, Refusal> {
        let mut parts: Vec<(StrBytes, Wanted)> = Vec::with_capacity(request.components.len());
        for part in &request.components {
            let kind = &part.entity_type;
            if place_of(&mut QuotaEntity::default(), kind).is_none() {
                let reason = format!("Custom entity type '{}' not supported", &**kind);
                return Err(Refusal::of(ResponseError::UnsupportedVersion, reason));
            }
            if parts.iter().any(|(known, _)| known == kind) {
                return Err(invalid(format!("'{}' stands there twice", &**kind)));
            }
            parts.push((kind.clone(), wanted(part)?));
        }
        let has = |kind: &str| parts.iter().any(|(known, _)| &**known == kind);
        if has(IP) && (has(USER) || has(CLIENT_ID)) {
            let reason = "an address cannot be combined with a user or a client id";
            return Err(invalid(reason.to_owned()));
        }
        Ok(Filter {
            parts,
            is_strict: request.strict,
        })
    }

    fn fits(&self, entity: &QuotaEntity) -> bool {
        let parts = parts_of(entity);
        let count = parts.iter().filter(|(_, name)| name.is_some()).count();
        if self.is_strict && count != self.parts.len() {
            return false;
        }
        self.parts.iter().all(|(kind, wanted)| {
            let of_kind = parts.iter().find(|(known, _)| *known == &**kind);
            match (of_kind.and_then(|(_, name)| name.as_ref()), wanted) {
                (None, _) => false,
                (Some(_), Wanted::Any) => true,
                (Some(name), Wanted::Default) => name.is_none(),
                (Some(name), Wanted::Name(wanted)) => name.as_ref() == Some(wanted),
            }
        })
    }
}

fn wanted(part: &ComponentData) -> Result<Wanted, Refusal> {
    match (part.match_type, &part._match) {
        (0, Some(name)) => Ok(Wanted::Name(name.to_string())),
        (0, None) => Err(invalid("an exact match needs a name".to_owned())),
        (1, None) => Ok(Wanted::Default),
        (2, None) => Ok(Wanted::Any),
        (1 | 2, Some(_)) => Err(invalid("only an exact match has a name".to_owned())),
        (other, _) => Err(invalid(format!("{other} is no kind of match"))),
    }
}

fn told_entity(entity: &QuotaEntity) -> Vec<EntityData> {
    let parts = parts_of(entity).into_iter();
    let told = parts.filter_map(|(kind, name)| {
        let name = name.as_ref()?.as_deref().map(owned);
        let told = EntityData::default().with_entity_type(text(kind));
        Some(told.with_entity_name(name))
    });
    told.collect()
}

fn parts_of(entity: &QuotaEntity) -> [(&'static str, &Option<Option<String>>); 3] {
    [
        (USER, &entity.user),
        (CLIENT_ID, &entity.client_id),
        (IP, &entity.ip),
    ]
}

fn place_of<'e>(entity: &'e mut QuotaEntity, kind: &str) -> Option<&'e mut Option<Option<String>>> {
    match kind {
        USER => Some(&mut entity.user),
        CLIENT_ID => Some(&mut entity.client_id),
        IP => Some(&mut entity.ip),
        _ => None,
    }
}

fn not_allowed() -> Refusal {
    Refusal::of(ResponseError::ClusterAuthorizationFailed, "not allowed")
}

fn no_quotas() -> Refusal {
    Refusal::of(
        ResponseError::UnsupportedVersion,
        "there are no quotas here",
    )
}

fn invalid(reason: String) -> Refusal {
    Refusal::of(ResponseError::InvalidRequest, reason)
}

/// Kafka's words for kinds of entities.
const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";
