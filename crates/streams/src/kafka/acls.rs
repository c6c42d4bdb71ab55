//! DescribeAcls, CreateAcls and DeleteAcls.
//!
//! Topics of streams are written by either of their names and kept by the one on the wire.

use access::{
    Access, AccessError, Acl, AclFilter, Operation, PatternFilter, PatternType, Permission,
    ResourceType,
};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_request::DeleteAclsFilter;
use kafka_protocol::messages::delete_acls_response::{
    DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse,
    DescribeAclsRequest, DescribeAclsResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::reply::{Call, Ending, Reply, owned};
use super::security::{access_of, blocking};
use super::topics::Refusal;
use crate::{TopicNameError, kept_acl, kept_filter};

/// Tells the ACLs that a filter means.
pub(super) fn describe_acls(call: Call) -> Result<Reply, Ending> {
    let request: DescribeAclsRequest = call.decode("DescribeAcls")?;
    let access = match judged(&call, Operation::Describe) {
        Ok(access) => access,
        Err(refusal) => {
            let body = DescribeAclsResponse::default()
                .with_error_code(refusal.code)
                .with_error_message(Some(owned(refusal.reason)));
            return call.now(&body);
        }
    };
    let filter = Wanted {
        resource_type: request.resource_type_filter,
        name: request.resource_name_filter,
        pattern: request.pattern_type_filter,
        principal: request.principal_filter,
        host: request.host_filter,
        operation: request.operation,
        permission: request.permission_type,
    };
    let filter = match filter.read() {
        Ok(filter) => filter,
        Err(refusal) => {
            let body = DescribeAclsResponse::default()
                .with_error_code(refusal.code)
                .with_error_message(Some(owned(refusal.reason)));
            return call.now(&body);
        }
    };
    let snapshot = access.snapshot();
    let mut resources: Vec<DescribeAclsResource> = Vec::new();
    // They come in order, so those of one resource come together.
    for acl in snapshot.acls(&filter) {
        let told = AclDescription::default()
            .with_principal(owned(acl.principal.as_str()))
            .with_host(owned(acl.host.as_str()))
            .with_operation(acl.operation.code())
            .with_permission_type(acl.permission.code());
        match resources.last_mut() {
            Some(last)
                if last.resource_type == acl.resource_type.code()
                    && last.pattern_type == acl.pattern_type.code()
                    && last.resource_name.as_str() == acl.resource_name =>
            {
                last.acls.push(told);
            }
            _ => resources.push(
                DescribeAclsResource::default()
                    .with_resource_type(acl.resource_type.code())
                    .with_resource_name(owned(acl.resource_name.as_str()))
                    .with_pattern_type(acl.pattern_type.code())
                    .with_acls(vec![told]),
            ),
        }
    }
    call.now(&DescribeAclsResponse::default().with_resources(resources))
}

/// Adds ACLs; each stands or fails alone.
pub(super) fn create_acls(call: Call) -> Result<Reply, Ending> {
    let request: CreateAclsRequest = call.decode("CreateAcls")?;
    let read: Vec<Result<Acl, Refusal>> = match judged(&call, Operation::Alter) {
        Ok(_) => request.creations.iter().map(acl_asked).collect(),
        Err(refusal) => vec![Err(refusal); request.creations.len()],
    };
    Reply::later(async move {
        let good: Vec<Acl> = read.iter().flatten().cloned().collect();
        let added = match access_of(&call) {
            Some(access) if !good.is_empty() => {
                blocking(move || access.add_acls(good).map_err(Refusal::from)).await
            }
            _ => Ok(()),
        };
        let results = read.into_iter().map(|read| {
            let result = AclCreationResult::default();
            match read.and(added.clone()) {
                Ok(()) => result,
                Err(refusal) => result
                    .with_error_code(refusal.code)
                    .with_error_message(Some(owned(refusal.reason))),
            }
        });
        call.answer(&CreateAclsResponse::default().with_results(results.collect()))
    })
}

/// Removes the ACLs that filters mean, and tells them.
pub(super) fn delete_acls(call: Call) -> Result<Reply, Ending> {
    let request: DeleteAclsRequest = call.decode("DeleteAcls")?;
    let judged = judged(&call, Operation::Alter);
    Reply::later(async move {
        let mut results = Vec::with_capacity(request.filters.len());
        for filter in request.filters {
            let removed = match (&judged, wanted(filter).read()) {
                (Err(refusal), _) => Err(refusal.clone()),
                (_, Err(refusal)) => Err(refusal),
                (Ok(access), Ok(filter)) => {
                    let access = access.clone();
                    let filters = [filter];
                    blocking(move || access.remove_acls(&filters).map_err(Refusal::from)).await
                }
            };
            let result = DeleteAclsFilterResult::default();
            results.push(match removed {
                Ok(removed) => {
                    let told = removed.iter().flatten().map(removed_acl);
                    result.with_matching_acls(told.collect())
                }
                Err(refusal) => result
                    .with_error_code(refusal.code)
                    .with_error_message(Some(owned(refusal.reason))),
            });
        }
        call.answer(&DeleteAclsResponse::default().with_filter_results(results))
    })
}

/// The ACLs, for a caller who may do `operation` to the cluster where ACLs are followed.
fn judged(call: &Call, operation: Operation) -> Result<std::sync::Arc<Access>, Refusal> {
    if !call.is_judged() {
        let reason = "this listener follows no ACLs: set streams.authorization = \"acl\"";
        return Err(Refusal::of(ResponseError::SecurityDisabled, reason));
    }
    if !call.may_of_all(operation) {
        let code = ResponseError::ClusterAuthorizationFailed;
        return Err(Refusal::of(code, "not allowed"));
    }
    let disabled = || Refusal::of(ResponseError::SecurityDisabled, "there are no ACLs here");
    access_of(call).ok_or_else(disabled)
}

fn acl_asked(asked: &AclCreation) -> Result<Acl, Refusal> {
    let unknown = |what: &str| {
        let reason = format!("the {what} is not one that an ACL can have");
        Refusal::of(ResponseError::InvalidRequest, reason)
    };
    let resource_type = ResourceType::of_code(asked.resource_type)
        .filter(|kind| kind.is_kafkas())
        .ok_or_else(|| unknown("resource type"))?;
    let acl = Acl {
        resource_type,
        resource_name: asked.resource_name.to_string(),
        pattern_type: PatternType::of_code(asked.resource_pattern_type)
            .ok_or_else(|| unknown("pattern type"))?,
        principal: asked
            .principal
            .parse()
            .map_err(|error: AccessError| Refusal::from(error))?,
        host: asked.host.to_string(),
        operation: Operation::of_code(asked.operation).ok_or_else(|| unknown("operation"))?,
        permission: Permission::of_code(asked.permission_type)
            .ok_or_else(|| unknown("permission type"))?,
    };
    acl.check()?;
    let invalid =
        |error: TopicNameError| Refusal::of(ResponseError::InvalidRequest, error.to_string());
    kept_acl(acl).map_err(invalid)
}

/// A filter as it comes.
struct Wanted {
    resource_type: i8,
    name: Option<StrBytes>,
    pattern: i8,
    principal: Option<StrBytes>,
    host: Option<StrBytes>,
    operation: i8,
    permission: i8,
}

fn wanted(filter: DeleteAclsFilter) -> Wanted {
    Wanted {
        resource_type: filter.resource_type_filter,
        name: filter.resource_name_filter,
        pattern: filter.pattern_type_filter,
        principal: filter.principal_filter,
        host: filter.host_filter,
        operation: filter.operation,
        permission: filter.permission_type,
    }
}

impl Wanted {
    fn read(self) -> Result<AclFilter, Refusal> {
        fn word<T>(code: i8, of_code: fn(i8) -> Option<T>) -> Result<Option<T>, Refusal> {
            if code == ANY {
                return Ok(None);
            }
            let reason = format!("{code} stands for nothing that an ACL can have");
            let refused = || Refusal::of(ResponseError::InvalidRequest, reason);
            of_code(code).map(Some).ok_or_else(refused)
        }
        Ok(kept_filter(AclFilter {
            resource_type: word(self.resource_type, ResourceType::of_code)?,
            resource_name: self.name.map(|name| name.to_string()),
            pattern: match self.pattern {
                MATCH => PatternFilter::Match,
                code => match word(code, PatternType::of_code)? {
                    Some(only) => PatternFilter::Only(only),
                    None => PatternFilter::Any,
                },
            },
            principal: self.principal.map(|principal| principal.to_string()),
            host: self.host.map(|host| host.to_string()),
            operation: word(self.operation, Operation::of_code)?,
            permission: word(self.permission, Permission::of_code)?,
            only_kafkas: true,
        }))
    }
}

fn removed_acl(acl: &Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl::default()
        .with_resource_type(acl.resource_type.code())
        .with_resource_name(owned(acl.resource_name.as_str()))
        .with_pattern_type(acl.pattern_type.code())
        .with_principal(owned(acl.principal.as_str()))
        .with_host(owned(acl.host.as_str()))
        .with_operation(acl.operation.code())
        .with_permission_type(acl.permission.code())
}

/// Kafka's number for anything, in a filter.
const ANY: i8 = 1;
/// Kafka's number for every pattern that holds for a name.
const MATCH: i8 = 2;
