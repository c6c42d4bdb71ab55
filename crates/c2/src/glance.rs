//! A quick look at a heartbeat: who calls, and what tells whether anything is new.
//!
//! Of two heartbeats of an agent all but the last figures are the same, and who serves a million of
//! them need not take each apart. A glance walks over the text once, copies none of it, and keeps
//! what it finds as pieces of the text. It declines what it would not understand the same way as
//! [`Heartbeat::parse`], and what has to be read whole in any case (a manifest, bulletins): what it
//! accepts, the whole reading accepts too, and both say the same.
//!
//! [`Heartbeat::parse`]: crate::Heartbeat::parse

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::wire::{NodeSeed, Scalar, scalars_are};

/// What a heartbeat says at a glance. Texts are as they came: an empty one names nothing.
#[derive(Debug, Default, PartialEq)]
pub struct Glance<'a> {
    /// Whether it says when it was made.
    pub has_created: bool,
    /// The machine, where there is a section of it.
    pub device: Option<DeviceGlance<'a>>,
    /// The agent, where there is a section of it.
    pub agent: Option<AgentGlance<'a>>,
    /// The flow's id, where there is a section of the flow; an empty id is none.
    pub flow: Option<Option<Cow<'a, str>>>,
    /// The resources' hash, where there is a section of them.
    pub resources: Option<Option<Cow<'a, str>>>,
    /// The names of all other sections, sorted.
    pub others: Vec<Cow<'a, str>>,
    agent_id: Option<Cow<'a, str>>,
    agent_class: Option<Cow<'a, str>>,
    identifier: Option<Cow<'a, str>>,
}

/// Of the machine.
#[derive(Debug, Default, PartialEq)]
pub struct DeviceGlance<'a> {
    /// Its identifier.
    pub identifier: Option<Cow<'a, str>>,
    /// The host's name.
    pub hostname: Option<Cow<'a, str>>,
}

/// Of the agent.
#[derive(Debug, Default, PartialEq)]
pub struct AgentGlance<'a> {
    /// Its identifier.
    pub identifier: Option<Cow<'a, str>>,
    /// Its class.
    pub class: Option<Cow<'a, str>>,
    /// The hash of its manifest.
    pub manifest_hash: Option<Cow<'a, str>>,
    /// Milliseconds since it started.
    pub uptime: Option<i64>,
}

impl<'a> Glance<'a> {
    /// Looks at a heartbeat; `None`: read it whole.
    pub fn at(bytes: &'a [u8]) -> Option<Glance<'a>> {
        serde_json::from_slice(bytes).ok()
    }

    /// Who sends, as [`Heartbeat::sender`](crate::Heartbeat::sender) says it.
    pub fn sender(&self) -> Option<&str> {
        let agent = self.agent.as_ref();
        let section = agent.and_then(|agent| filled(&agent.identifier));
        section
            .or_else(|| filled(&self.agent_id))
            .or_else(|| filled(&self.identifier))
    }

    /// The class, as [`Heartbeat::class`](crate::Heartbeat::class) says it.
    pub fn class(&self) -> Option<&str> {
        let agent = self.agent.as_ref();
        let section = agent.and_then(|agent| filled(&agent.class));
        section.or_else(|| filled(&self.agent_class))
    }

    /// The digest of the resources, as [`ResourceInfo::digest`](crate::ResourceInfo::digest) says it.
    pub fn digest(&self) -> Option<&str> {
        filled(self.resources.as_ref()?).filter(|hash| *hash != "null")
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Glance<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seen = Seen::<Glance<'de>>(PhantomData).deserialize(deserializer)?;
        let mut glance = seen.ok_or_else(|| D::Error::custom("no object"))?;
        glance.others.sort_unstable();
        glance.others.dedup();
        Ok(glance)
    }
}

/// A JSON object that is looked at member by member; a member that comes twice takes its last value.
trait Look<'de>: Default {
    /// Takes the value of the member `key` from `map`.
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error>;
}

impl<'de> Look<'de> for Glance<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "created" => self.has_created = number(map)?.is_some(),
            "identifier" => self.identifier = text(map)?,
            "deviceInfo" => self.device = object(map)?,
            "agentInfo" => self.agent = object(map)?,
            "flowInfo" => self.flow = object::<Flow, _>(map)?.map(|flow| flow.id),
            "resourceInfo" => {
                self.resources = object::<Resources, _>(map)?.map(|resources| resources.hash);
            }
            "agentId" => self.agent_id = text(map)?,
            "agentClass" => self.agent_class = text(map)?,
            "operation" | "deviceId" | "flowId" | "agentManifestId" => pass(map)?,
            _ => {
                pass(map)?;
                self.others.push(key);
            }
        }
        Ok(())
    }
}

impl<'de> Look<'de> for AgentGlance<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "identifier" => self.identifier = text(map)?,
            "agentClass" => self.class = text(map)?,
            "agentManifestHash" => self.manifest_hash = text(map)?,
            "agentManifest" => return Err(A::Error::custom("a manifest")),
            "status" => self.uptime = object::<Status, _>(map)?.and_then(|status| status.uptime),
            _ => pass(map)?,
        }
        Ok(())
    }
}

impl<'de> Look<'de> for DeviceGlance<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "identifier" => self.identifier = text(map)?,
            "networkInfo" => {
                self.hostname = object::<Network, _>(map)?.and_then(|network| network.hostname);
            }
            _ => pass(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Network<'a> {
    hostname: Option<Cow<'a, str>>,
}

impl<'de> Look<'de> for Network<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "hostname" => self.hostname = text(map)?,
            _ => pass(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Status {
    uptime: Option<i64>,
}

impl<'de> Look<'de> for Status {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "uptime" => self.uptime = number(map)?,
            _ => pass(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Flow<'a> {
    id: Option<Cow<'a, str>>,
}

impl<'de> Look<'de> for Flow<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "flowId" => self.id = text(map)?.filter(|id: &Cow<'_, str>| !id.is_empty()),
            "processorBulletins" => map.next_value_seed(NoBulletins)?,
            _ => pass(map)?,
        }
        Ok(())
    }
}

#[derive(Default)]
struct Resources<'a> {
    hash: Option<Cow<'a, str>>,
}

impl<'de> Look<'de> for Resources<'de> {
    fn member<A: MapAccess<'de>>(
        &mut self,
        key: Cow<'de, str>,
        map: &mut A,
    ) -> Result<(), A::Error> {
        match &*key {
            "hash" => self.hash = text(map)?,
            _ => pass(map)?,
        }
        Ok(())
    }
}

/// A text; a number or a truth in its place is left to the whole reading.
fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<Cow<'de, str>>, A::Error> {
    match map.next_value_seed(ScalarSeed)? {
        Scalar::Text(text) => Ok(Some(text)),
        Scalar::Nothing => Ok(None),
        Scalar::Bool(_) | Scalar::Integer(_) | Scalar::Float(_) => Err(A::Error::custom("no text")),
    }
}

fn number<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<i64>, A::Error> {
    map.next_value_seed(NodeSeed::<i64>(PhantomData))
}

/// An object; any other value stands for none.
fn object<'de, T: Look<'de>, A: MapAccess<'de>>(map: &mut A) -> Result<Option<T>, A::Error> {
    map.next_value_seed(Seen(PhantomData))
}

/// Goes over a value, as strictly as whoever reads it.
fn pass<'de, A: MapAccess<'de>>(map: &mut A) -> Result<(), A::Error> {
    map.next_value_seed(Passed)
}

fn filled<'a>(text: &'a Option<Cow<'_, str>>) -> Option<&'a str> {
    text.as_deref().filter(|text| !text.is_empty())
}

struct ScalarSeed;

impl<'de> DeserializeSeed<'de> for ScalarSeed {
    type Value = Scalar<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar<'de>, D::Error> {
        Scalar::read(deserializer)
    }
}

/// A member's name.
struct Name;

impl<'de> DeserializeSeed<'de> for Name {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// An object that is looked at.
struct Seen<T>(PhantomData<T>);

impl<'de, T: Look<'de>> DeserializeSeed<'de> for Seen<T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: Look<'de>> Visitor<'de> for Seen<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    scalars_are!(None);

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Option<T>, A::Error> {
        Passed.visit_seq(seq)?;
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<T>, A::Error> {
        let mut seen = T::default();
        while let Some(key) = map.next_key_seed(Name)? {
            seen.member(key, &mut map)?;
        }
        Ok(Some(seen))
    }
}

/// A value that is passed over: its numbers, texts and levels are held to the same bounds as in the
/// whole reading.
struct Passed;

impl<'de> DeserializeSeed<'de> for Passed {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Passed {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    scalars_are!(());

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Passed)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Passed)?;
        }
        Ok(())
    }
}

/// A list without bulletins; one that has some is declined.
struct NoBulletins;

impl<'de> DeserializeSeed<'de> for NoBulletins {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NoBulletins {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an empty list")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        match seq.next_element::<IgnoredAny>()? {
            None => Ok(()),
            Some(_) => Err(A::Error::custom("bulletins")),
        }
    }
}
