//! Users, tokens, ACLs and quotas as they are at one moment, laid out for asking.
//!
//! A question costs one look into a table of names and one for each length that prefixes have;
//! nothing is allocated.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::acl::EVERY_NAME;
use base::TenantId;

use crate::quota::QuotaIndex;
use crate::tenant::{RemovedTenants, TenantIndex};
use crate::{
    Acl, AclFilter, Collection, Credential, Grant, Operation, PasswordHash, PatternType, Permission,
};
use crate::{
    Bound, OfCaller, OfTopic, Principal, Quota, QuotaEntity, ResourceType, ScramHash, Sharing,
    Tenant, Token, TokenHash,
};

/// Everything known at one moment.
#[derive(Default)]
pub struct Snapshot {
    pub(crate) users: BTreeMap<String, Vec<Credential>>,
    /// By users' names; each of them is among `users`.
    pub(crate) password_hashes: BTreeMap<String, PasswordHash>,
    pub(crate) acls: BTreeSet<Acl>,
    pub(crate) quotas: BTreeMap<QuotaEntity, Quota>,
    pub(crate) tokens: BTreeMap<String, Token>,
    pub(crate) grants: BTreeMap<Principal, BTreeSet<Grant>>,
    /// The ids of the tokens by their hashes.
    ids: HashMap<TokenHash, String>,
    by_type: HashMap<ResourceType, OfType>,
    bounds: QuotaIndex,
    pub(crate) tenants: TenantIndex,
}

/// The ACLs of one type of resource.
#[derive(Default)]
struct OfType {
    literal: HashMap<String, Vec<Acl>>,
    prefixed: HashMap<String, Vec<Acl>>,
    /// Lengths that prefixes have, in bytes.
    lengths: BTreeSet<usize>,
}

/// Who asks, and from where.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Who.
    pub principal: &'a Principal,
    /// From which address.
    pub host: &'a str,
}

/// What holds beside the ACLs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// These may do everything.
    pub super_users: Vec<Principal>,
    /// Whether everybody may do everything to what no ACL names.
    pub allow_if_no_acl: bool,
}

impl Snapshot {
    pub(crate) fn new(
        users: BTreeMap<String, Vec<Credential>>,
        acls: BTreeSet<Acl>,
        quotas: BTreeMap<QuotaEntity, Quota>,
    ) -> Self {
        let mut by_type: HashMap<ResourceType, OfType> = HashMap::new();
        for acl in &acls {
            let of_type = by_type.entry(acl.resource_type).or_default();
            let names = match acl.pattern_type {
                PatternType::Literal => &mut of_type.literal,
                PatternType::Prefixed => {
                    of_type.lengths.insert(acl.resource_name.len());
                    &mut of_type.prefixed
                }
            };
            let of_name = names.entry(acl.resource_name.clone()).or_default();
            of_name.push(acl.clone());
        }
        let bounds = QuotaIndex::new(&quotas);
        Snapshot {
            users,
            acls,
            quotas,
            by_type,
            bounds,
            ..Snapshot::default()
        }
    }

    pub(crate) fn with_password_hashes(mut self, hashes: BTreeMap<String, PasswordHash>) -> Self {
        self.password_hashes = hashes;
        self
    }

    pub(crate) fn with_tokens(mut self, tokens: BTreeMap<String, Token>) -> Self {
        let ids = tokens.values().map(|token| (token.hash, token.id.clone()));
        self.ids = ids.collect();
        self.tokens = tokens;
        self
    }

    pub(crate) fn with_grants(mut self, grants: BTreeMap<Principal, BTreeSet<Grant>>) -> Self {
        self.grants = grants;
        self
    }

    pub(crate) fn with_tenants(
        mut self,
        tenants: BTreeMap<TenantId, Tenant>,
        removed: RemovedTenants,
        collections: BTreeSet<Collection>,
    ) -> Self {
        self.tenants = TenantIndex::new(tenants, removed, collections);
        self
    }

    pub(crate) fn with_closed(mut self, topics: Arc<BTreeSet<String>>) -> Self {
        self.tenants.closed = topics;
        self
    }

    /// Every collection that any tenant was ever to be in.
    pub fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.tenants.collections.iter()
    }

    /// Whether any tenant is kept, or was; before the first one nothing is asked of anybody.
    pub fn has_tenants(&self) -> bool {
        self.tenants.is_any()
    }

    /// The kept tenants, by name.
    pub fn tenants(&self) -> &BTreeMap<TenantId, Tenant> {
        &self.tenants.tenants
    }

    /// The tenant that a caller belongs to; none for a super user of one that is not kept, who is a
    /// caller of no tenant.
    pub fn tenant_of(&self, policy: Option<&Policy>, caller: &Principal) -> Option<OfCaller<'_>> {
        let of = self.tenants.of(caller)?;
        let is_super = || policy.is_some_and(|policy| policy.super_users.contains(caller));
        (of.kept().is_some() || !is_super()).then_some(of)
    }

    /// Whose a topic is by its name.
    pub fn owner_of_topic<'t>(&'t self, topic: &'t str) -> Option<OfTopic<'t>> {
        self.tenants.of_topic(topic)
    }

    /// Whether something is kept from a caller because by its name it is of another tenant than the
    /// caller's, or shared by tenants of whom the caller may hear nothing, or one of those topics in which
    /// a part of the process keeps what is all tenants' ([`Access::close_to_members`]). Of a topic that it
    /// shares it may be shown its own tenant's records, see [`Snapshot::only_of`]. From who belongs to a
    /// tenant that is not kept all that is anybody's is kept.
    ///
    /// [`Access::close_to_members`]: crate::Access::close_to_members
    pub fn is_foreign(
        &self,
        caller: &Principal,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        let Some(of) = self.tenants.of(caller) else {
            return false;
        };
        let owner = match resource_type {
            ResourceType::Topic if self.tenants.closed.contains(name) => return true,
            ResourceType::Topic => match self.owner_of_topic(name) {
                None => return false,
                Some(OfTopic::Tenant(owner)) => Some(owner),
                Some(OfTopic::Shared(shared)) => {
                    let may = |tenant| may_share(tenant, shared, operation);
                    return !of.kept().is_some_and(may);
                }
            },
            ResourceType::Group | ResourceType::TransactionalId => self.tenants.of_group(name),
            ResourceType::MqttTopic => self.tenants.of_mqtt_topic(name),
            _ => None,
        };
        owner.is_some_and(|owner| of.kept().is_none() || owner != of.name())
    }

    /// The tenant whose records alone a caller may be shown of a topic, where several tenants share
    /// the topic and the caller belongs to one and is no super user.
    pub fn only_of(&self, policy: &Policy, caller: &Principal, topic: &str) -> Option<TenantId> {
        let of = self.tenants.of(caller)?;
        if policy.super_users.contains(caller) {
            return None;
        }
        let is_shared = matches!(self.owner_of_topic(topic), Some(OfTopic::Shared(_)));
        is_shared.then(|| of.name().clone())
    }

    /// The roles that were granted, by whom they are for.
    pub fn grants(&self) -> impl Iterator<Item = (&Principal, &BTreeSet<Grant>)> {
        self.grants.iter()
    }

    /// The grants that speak of a caller, by name or as one of a tenant.
    pub fn grants_of<'s>(&'s self, caller: &'s Principal) -> impl Iterator<Item = &'s Grant> {
        let fitting = self.grants.iter();
        let fitting = fitting.filter(move |(holder, _)| holder.speaks_of(caller));
        fitting.flat_map(|(_, grants)| grants)
    }

    /// Whether the caller may do `operation` to the resource of this type and name.
    ///
    /// Super users may; a tenant's caller may nothing to what is another tenant's; else one fitting
    /// denial is enough to refuse, and one fitting permission to allow; what no ACL names follows the
    /// policy.
    pub fn may(
        &self,
        policy: &Policy,
        asking: Asking<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        let is_super = policy.super_users.contains(asking.principal);
        let is_foreign = || self.is_foreign(asking.principal, operation, resource_type, name);
        (is_super || !is_foreign()) && self.permits(policy, asking, operation, resource_type, name)
    }

    /// As [`Snapshot::may`], whosever the resource is: for who gives something else by a right to it, and
    /// asks whose that is.
    pub fn permits(
        &self,
        policy: &Policy,
        asking: Asking<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        let Asking { principal, host } = asking;
        if policy.super_users.contains(principal) {
            return true;
        }
        let denies = |on: Operation| on == operation || on == Operation::All;
        let allows = |on: Operation| denies(on) || operation.implied_by().contains(&on);
        let (mut is_named, mut is_allowed) = (false, false);
        for acl in self.holding_for(resource_type, name) {
            is_named = true;
            if acl.covers(Permission::Deny, denies, principal, host) {
                return false;
            }
            is_allowed |= acl.covers(Permission::Allow, allows, principal, host);
        }
        is_allowed || (policy.allow_if_no_acl && !is_named)
    }

    /// Whether an ACL denies the caller this, whoever they are and whatever else allows it.
    pub fn denies(
        &self,
        asking: Asking<'_>,
        operation: Operation,
        resource_type: ResourceType,
        name: &str,
    ) -> bool {
        let denies = |on: Operation| on == operation || on == Operation::All;
        let Asking { principal, host } = asking;
        let mut holding = self.holding_for(resource_type, name);
        holding.any(|acl| acl.covers(Permission::Deny, denies, principal, host))
    }

    /// Whether the caller may do `operation` to some resource of this type, whatever its name.
    pub fn may_some(
        &self,
        policy: &Policy,
        asking: Asking<'_>,
        operation: Operation,
        resource_type: ResourceType,
    ) -> bool {
        if policy.super_users.contains(asking.principal) {
            return true;
        }
        let Asking { principal, host } = asking;
        let denies = |on: Operation| on == operation || on == Operation::All;
        let allows = |on: Operation| denies(on) || operation.implied_by().contains(&on);
        let Some(of_type) = self.by_type.get(&resource_type) else {
            return policy.allow_if_no_acl;
        };
        let every = of_type.literal.get(EVERY_NAME).into_iter().flatten();
        let mut every = every.filter(|acl| acl.covers(Permission::Deny, denies, principal, host));
        if every.next().is_some() {
            return false;
        }
        // A permission counts unless a denial takes all of what it gives.
        let lists = of_type.literal.values().chain(of_type.prefixed.values());
        let is_allowed = lists.flatten().any(|acl| {
            acl.covers(Permission::Allow, allows, principal, host)
                && !self.is_taken_back(acl, denies, asking)
        });
        is_allowed || policy.allow_if_no_acl
    }

    /// The operations of `among` that the caller may do, as the set of bits in Kafka's answers.
    pub fn allowed_bits(
        &self,
        policy: &Policy,
        asking: Asking<'_>,
        among: &[Operation],
        resource_type: ResourceType,
        name: &str,
    ) -> i32 {
        among
            .iter()
            .filter(|operation| self.may(policy, asking, **operation, resource_type, name))
            .fold(0, |bits, operation| bits | operation.bit())
    }

    /// The users' names with their credentials for SCRAM, in the order of the names; there are none
    /// where only the hash of the password is kept.
    pub fn users(&self) -> impl Iterator<Item = (&str, &[Credential])> {
        self.users
            .iter()
            .map(|(name, credentials)| (name.as_str(), credentials.as_slice()))
    }

    /// A user's credential for a hash.
    pub fn credential(&self, name: &str, hash: ScramHash) -> Option<&Credential> {
        let credentials = self.users.get(name)?;
        credentials
            .iter()
            .find(|credential| credential.hash == hash)
    }

    /// The hash of a user's password, if it is kept.
    pub fn password_hash(&self, name: &str) -> Option<&PasswordHash> {
        self.password_hashes.get(name)
    }

    /// Whether the hash of any user's password is kept.
    pub(crate) fn has_password_hashes(&self) -> bool {
        !self.password_hashes.is_empty()
    }

    /// Every API token, in the order of the ids.
    pub fn tokens(&self) -> impl Iterator<Item = &Token> {
        self.tokens.values()
    }

    /// The API token of this id, expired or not.
    pub fn token(&self, id: &str) -> Option<&Token> {
        self.tokens.get(id)
    }

    /// The API token that reads like this, expired or not.
    pub fn token_of(&self, text: &str) -> Option<&Token> {
        // The hash of a guess tells nothing of the hashes that are there, so that looking it up
        // needs no constant time.
        self.tokens.get(self.ids.get(&TokenHash::of(text))?)
    }

    /// The ACLs that a filter means, in order.
    pub fn acls(&self, filter: &AclFilter) -> impl Iterator<Item = &Acl> {
        self.acls.iter().filter(|acl| filter.matches(acl))
    }

    /// Every quota, in the order of the entities.
    pub fn quotas(&self) -> impl Iterator<Item = (&QuotaEntity, &Quota)> {
        self.quotas.iter()
    }

    /// Whether anybody is bounded by anything.
    pub fn has_quotas(&self) -> bool {
        !self.quotas.is_empty()
    }

    /// What bounds a user's client, and who shares it.
    pub fn bound_of_client(
        &self,
        bound: Bound,
        user: &str,
        client_id: &str,
    ) -> Option<(Sharing, f64)> {
        self.bounds.of_client(bound, user, client_id)
    }

    /// What bounds an address.
    pub fn bound_of_ip(&self, bound: Bound, ip: &str) -> Option<f64> {
        self.bounds.of_ip(bound, ip)
    }

    fn is_taken_back(
        &self,
        given: &Acl,
        denies: impl Fn(Operation) -> bool,
        asking: Asking<'_>,
    ) -> bool {
        let Some(of_type) = self.by_type.get(&given.resource_type) else {
            return false;
        };
        let name = given.resource_name.as_str();
        let literal = match given.pattern_type {
            PatternType::Literal => of_type.literal.get(name),
            PatternType::Prefixed => None,
        };
        let prefixed = of_type.prefixes_of(name);
        let mut all = literal.into_iter().chain(prefixed).flatten();
        all.any(|acl| acl.covers(Permission::Deny, &denies, asking.principal, asking.host))
    }

    fn holding_for<'s>(
        &'s self,
        resource_type: ResourceType,
        name: &'s str,
    ) -> impl Iterator<Item = &'s Acl> {
        let of_type = self.by_type.get(&resource_type).into_iter();
        of_type
            .flat_map(move |of_type| {
                let own = of_type.literal.get(name);
                let every = of_type
                    .literal
                    .get(EVERY_NAME)
                    .filter(|_| name != EVERY_NAME);
                own.into_iter()
                    .chain(every)
                    .chain(of_type.prefixes_of(name))
            })
            .flatten()
    }
}

/// Whether those of a tenant may do this to the topics of a collection.
fn may_share(tenant: &Tenant, shared: &str, operation: Operation) -> bool {
    let own = tenant.collection.as_ref().map(Collection::as_str);
    let may = [
        Operation::Read,
        Operation::Write,
        Operation::Describe,
        Operation::Create,
    ];
    own == Some(shared) && may.contains(&operation)
}

impl OfType {
    /// The lists under every prefix of `name`.
    fn prefixes_of<'s>(&'s self, name: &'s str) -> impl Iterator<Item = &'s Vec<Acl>> {
        let lengths = self.lengths.range(..=name.len());
        lengths.filter_map(move |length| self.prefixed.get(name.get(..*length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CLUSTER, EVERY_HOST};

    use Operation::*;

    /// Writes ACLs as lines: `allow alice read topic orders [from host]`, a name that ends in `…`
    /// is a prefix.
    fn snapshot(lines: &str) -> Snapshot {
        let acls = lines
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let (name, pattern_type) = match words[4].strip_suffix('…') {
                    Some(prefix) => (prefix, PatternType::Prefixed),
                    None => (words[4], PatternType::Literal),
                };
                Acl {
                    permission: words[0].parse().unwrap(),
                    principal: Principal::user(words[1]),
                    operation: words[2].parse().unwrap(),
                    resource_type: words[3].parse().unwrap(),
                    resource_name: name.to_owned(),
                    pattern_type,
                    host: words.get(6).unwrap_or(&EVERY_HOST).to_string(),
                }
            });
        Snapshot::new(BTreeMap::new(), acls.collect(), BTreeMap::new())
    }

    fn check(snapshot: &Snapshot, who: &str, operation: Operation, topic: &str) -> bool {
        let asking = Asking {
            principal: &Principal::user(who),
            host: "10.0.0.1",
        };
        let topics = ResourceType::Topic;
        snapshot.may(&Policy::default(), asking, operation, topics, topic)
    }

    #[test]
    fn decisions_as_a_table() {
        let acls = snapshot(
            "allow alice read   topic orders
             allow alice write  topic log-…
             deny  alice write  topic log-secret
             deny  alice all    topic locked…
             allow alice all    topic locked-mine
             allow *     describe topic *
             deny  mallory all  topic *
             allow mallory all  topic orders
             allow bob   alter  topic own from 10.0.0.1
             allow bob   read   topic own from 10.9.9.9
             allow carl  all    topic *
             allow dora  alter-configs topic t
             deny  dora  describe topic hidden
             allow dora  read   topic hidden
             allow erik  read   group orders",
        );
        let cases = [
            ("alice", Read, "orders", true),
            ("alice", Write, "orders", false),
            ("alice", Describe, "orders", true),
            ("alice", Write, "log-a", true),
            ("alice", Write, "log-", true),
            ("alice", Write, "log", false),
            ("alice", Write, "log-secret", false),
            ("alice", Write, "log-secret-2", true),
            ("alice", Read, "locked-mine", false),
            ("nobody", Describe, "orders", true),
            ("nobody", Read, "orders", false),
            ("mallory", Read, "orders", false),
            ("mallory", Describe, "anything", false),
            ("bob", Alter, "own", true),
            ("bob", Describe, "own", true),
            ("bob", Read, "own", false),
            ("carl", Read, "x", true),
            ("carl", AlterConfigs, "x", true),
            ("dora", DescribeConfigs, "t", true),
            ("dora", AlterConfigs, "t", true),
            ("dora", Describe, "hidden", false),
            // A denial of DESCRIBE takes no READ, as Kafka has it.
            ("dora", Read, "hidden", true),
            ("erik", Read, "orders", false),
        ];
        for (who, operation, topic, expected) in cases {
            let got = check(&acls, who, operation, topic);
            assert_eq!(got, expected, "{who} {operation} {topic}");
        }
    }

    #[test]
    fn super_users_pass_and_the_unnamed_follow_the_policy() {
        let acls = snapshot("deny root all topic t\nallow alice read topic named");
        let policy = Policy {
            super_users: vec![Principal::user("root")],
            allow_if_no_acl: true,
        };
        let (root, eve) = (Principal::user("root"), Principal::user("eve"));
        let asking = |principal| Asking {
            principal,
            host: "::1",
        };
        let may = |who, name| acls.may(&policy, asking(who), Read, ResourceType::Topic, name);
        assert!(may(&root, "t"));
        assert!(may(&eve, "unnamed"));
        assert!(!may(&eve, "named"));
        let cluster = ResourceType::Cluster;
        assert!(acls.may(&policy, asking(&eve), Alter, cluster, CLUSTER));
    }

    #[test]
    fn some_topic_is_enough_unless_it_is_taken_back() {
        let cases = [
            ("allow a write topic t", true),
            ("allow a write topic p…", true),
            ("allow a read topic t", false),
            ("allow a write group t", false),
            ("allow b write topic t", false),
            ("allow a write topic t\ndeny a write topic *", false),
            ("allow a write topic t\ndeny a write topic t", false),
            ("allow a write topic tt\ndeny a all topic t…", false),
            ("allow a write topic t…\ndeny a all topic tt…", true),
            ("allow a write topic *\ndeny a all topic t", true),
        ];
        for (lines, expected) in cases {
            let principal = Principal::user("a");
            let asking = Asking {
                principal: &principal,
                host: "::1",
            };
            let topic = ResourceType::Topic;
            let got = snapshot(lines).may_some(&Policy::default(), asking, Write, topic);
            assert_eq!(got, expected, "{lines}");
        }
    }

    #[test]
    fn allowed_operations_are_bits() {
        let acls = snapshot("allow a read topic t\nallow a alter topic t");
        let principal = Principal::user("a");
        let asking = Asking {
            principal: &principal,
            host: "::1",
        };
        let among = [Read, Write, Describe, Alter];
        let topic = ResourceType::Topic;
        let bits = acls.allowed_bits(&Policy::default(), asking, &among, topic, "t");
        assert_eq!(bits, Read.bit() | Describe.bit() | Alter.bit());
    }
}
