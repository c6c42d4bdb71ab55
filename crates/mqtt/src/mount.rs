//! Mount points: where all topics of a tenant's clients lie, which they neither write nor see.
//!
//! A client with a mount point `acme/` that says `x/y` means `acme/x/y`, and that is the topic's name
//! everywhere inside the server: in subscriptions, sessions, retained messages and the journal, for
//! ACLs, sinks and bridges. Names go in and out here alone: topics of messages and wills, filters (of
//! a shared one the part behind its group), and response topics. Numbers that stand for topics stand
//! for the names that the client writes. Sessions have names below it too: client ids are each
//! tenant's own.
//!
//! What begins with `$` is not below any mount point: it goes in as it is, and the client's
//! [`Pass`](crate::gate::Pass) refuses it, as it does whatever is not below the client's own.

use std::sync::{Arc, OnceLock};

use base::TenantId;

use crate::codec::{Outgoing, Properties};
use crate::reason::ReasonCode;
use crate::topic::{TopicError, TopicFilter, check_name};

/// What stands before the names of a client's topics: a tenant's name and `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount(Arc<str>);

impl Mount {
    /// The mount point of a tenant's clients.
    pub fn of(tenant: &TenantId) -> Mount {
        Mount(format!("{tenant}/").into())
    }

    /// The name of a topic inside of the server.
    ///
    /// # Errors
    /// The reason code for who writes a topic that is too long or too deep there.
    pub(crate) fn inside(&self, topic: &str) -> Result<Box<str>, ReasonCode> {
        if topic.starts_with('$') {
            return Ok(topic.into());
        }
        let inside = format!("{}{topic}", self.0);
        match check_name(&inside) {
            Ok(()) => Ok(inside.into()),
            Err(_) => Err(ReasonCode::TopicNameInvalid),
        }
    }

    /// The filter inside of the server.
    ///
    /// # Errors
    /// The reason code for a filter that is too long or too deep there.
    pub(crate) fn filter_inside(&self, filter: &TopicFilter) -> Result<TopicFilter, ReasonCode> {
        filter.below(&self.0).map_err(|error| match error {
            TopicError::TooDeep(_) => ReasonCode::QuotaExceeded,
            _ => ReasonCode::TopicFilterInvalid,
        })
    }

    /// The name of a topic as the client sees it; none of one that does not lie below.
    pub(crate) fn outside<'t>(&self, topic: &'t str) -> Option<&'t str> {
        let below = topic.strip_prefix(&*self.0)?;
        (!below.is_empty() && !below.starts_with('$')).then_some(below)
    }

    /// The name that a client's session has inside of the server: other tenants' clients may have the
    /// same id.
    pub(crate) fn client_inside(&self, client_id: &str) -> String {
        format!("{}{client_id}", self.0)
    }

    /// The client's own id, of its session's name; one from before there were mount points has no other.
    pub(crate) fn client_outside<'t>(&self, session: &'t str) -> &'t str {
        session.strip_prefix(&*self.0).unwrap_or(session)
    }

    /// The message as the client sees it; none of one whose topic does not lie below. A response
    /// topic that does not, which the client could not publish to, is left out. `room` is for the
    /// properties.
    pub(crate) fn hand_back<'m>(
        &self,
        message: Outgoing<'m>,
        room: &'m mut Vec<u8>,
    ) -> Option<Outgoing<'m>> {
        let topic = self.outside(message.topic)?;
        let mut properties = message.properties;
        if let Some(response) = properties.response_topic() {
            *room = properties.readdressed(self.outside(response));
            properties = Properties::stored(room);
        }
        Some(Outgoing {
            topic,
            properties,
            ..message
        })
    }
}

/// What a client's messages are inside of the server, held for as long as these are handed on.
#[derive(Default)]
pub(crate) struct Carried(OnceLock<Box<Piece>>);

struct Piece {
    topic: Box<str>,
    /// Of a message with a response topic.
    properties: Option<Vec<u8>>,
    next: Carried,
}

/// Carries messages in, one after the other.
pub(crate) struct Carrier<'c> {
    mount: &'c Mount,
    /// Where the next piece comes.
    end: &'c Carried,
    /// The last topic, inside.
    topic: &'c str,
}

impl<'c> Carrier<'c> {
    pub(crate) fn new(mount: &'c Mount, carried: &'c Carried) -> Self {
        Carrier {
            mount,
            end: carried,
            topic: "",
        }
    }

    /// A message's topic and properties as they are inside.
    ///
    /// # Errors
    /// As [`Mount::inside`], of the response topic too.
    pub(crate) fn carry<'m>(
        &mut self,
        topic: &str,
        properties: Properties<'m>,
    ) -> Result<(&'c str, Properties<'m>), ReasonCode>
    where
        'c: 'm,
    {
        let response = properties.response_topic();
        let is_last = self.mount.outside(self.topic) == Some(topic);
        if is_last && response.is_none() {
            return Ok((self.topic, properties));
        }
        let response = response.map(|response| self.mount.inside(response));
        let response = response.transpose()?;
        let piece = Piece {
            topic: match is_last {
                true => self.topic.into(),
                false => self.mount.inside(topic)?,
            },
            properties: response.map(|response| properties.readdressed(Some(&response))),
            next: Carried::default(),
        };
        let piece = self.end.0.get_or_init(|| Box::new(piece));
        (self.topic, self.end) = (&piece.topic, &piece.next);
        let carried = piece.properties.as_deref().map(Properties::stored);
        Ok((self.topic, carried.unwrap_or(properties)))
    }
}

impl Drop for Carried {
    fn drop(&mut self) {
        // One after the other: pieces may be many, and each would be dropped within the last one's end.
        let mut next = self.0.take();
        while let Some(mut piece) = next {
            next = piece.next.0.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::PropertyBlock;
    use crate::message::Qos;

    fn mount() -> Mount {
        Mount::of(&"acme".parse().unwrap())
    }

    #[test]
    fn names_go_in_and_come_out_as_they_were() {
        let mount = mount();
        for topic in ["x", "x/y", "/x", "acme/x", "x/", "x/$y", "a b"] {
            let inside = mount.inside(topic).unwrap();
            assert_eq!(*inside, format!("acme/{topic}"));
            assert_eq!(mount.outside(&inside), Some(topic));
        }
        for foreign in [
            "beta/x",
            "acme",
            "acme/",
            "acmes/x",
            "$SYS/x",
            "acme/$SYS/x",
        ] {
            assert_eq!(mount.outside(foreign), None, "{foreign}");
        }
        assert_eq!(&*mount.inside("$SYS/x").unwrap(), "$SYS/x");
        let deep = "/".repeat(crate::limits::TOPIC_LEVELS_MAX - 1);
        assert_eq!(mount.inside(&deep), Err(ReasonCode::TopicNameInvalid));
        let long = "x".repeat(crate::limits::TOPIC_BYTES_MAX);
        assert_eq!(mount.inside(&long), Err(ReasonCode::TopicNameInvalid));
    }

    #[test]
    fn filters_go_below_and_shared_ones_behind_their_group() {
        let mount = mount();
        let inside = |text: &str| {
            let filter = mount.filter_inside(&text.parse().unwrap());
            filter.map(|filter| filter.as_str().to_owned())
        };
        for (filter, expected) in [
            ("#", "acme/#"),
            ("+/x", "acme/+/x"),
            ("/x", "acme//x"),
            ("$share/g/x/#", "$share/g/acme/x/#"),
            ("$share/g//x", "$share/g/acme//x"),
            ("$SYS/#", "$SYS/#"),
            ("$share/g/$SYS/#", "$share/g/$SYS/#"),
        ] {
            assert_eq!(inside(filter).as_deref(), Ok(expected));
        }
        let deep = "/".repeat(crate::limits::TOPIC_LEVELS_MAX - 1);
        assert_eq!(inside(&deep), Err(ReasonCode::QuotaExceeded));
    }

    #[test]
    fn a_run_of_messages_is_carried_in_with_their_response_topics() {
        let (mount, carried) = (mount(), Carried::default());
        let mut carrier = Carrier::new(&mount, &carried);
        let mut block = PropertyBlock::default();
        block.message_expiry_s(7);
        block.response_topic("re");
        block.user("a", "b");
        let mut seen = Vec::new();
        for n in 0..200_000 {
            let topic = ["x", "x", "y"][n % 3];
            let properties = match n % 4 {
                0 => block.properties(),
                _ => Properties::default(),
            };
            seen.push((topic, carrier.carry(topic, properties).unwrap()));
        }
        for (n, (topic, (inside, properties))) in seen.into_iter().enumerate() {
            assert_eq!(inside, format!("acme/{topic}"));
            let response = (n % 4 == 0).then_some("acme/re");
            assert_eq!(properties.response_topic(), response);
            if response.is_some() {
                assert_eq!(properties.message_expiry_s(), Some(7));
                assert_eq!(properties.user().collect::<Vec<_>>(), [("a", "b")]);
            }
        }
        // One with a response topic that is too long is refused whole.
        let mut long = PropertyBlock::default();
        assert!(long.response_topic(&"x".repeat(crate::limits::TOPIC_BYTES_MAX)));
        let refused = carrier.carry("x", long.properties()).map(drop);
        assert_eq!(refused, Err(ReasonCode::TopicNameInvalid));
    }

    #[test]
    fn what_is_handed_back_names_no_topic_that_the_client_could_not_write() {
        let mount = mount();
        let mut block = PropertyBlock::default();
        block.content_type("text/plain");
        block.response_topic("acme/re");
        for (response, expected) in [("acme/re", Some("re")), ("beta/re", None)] {
            let mut block = PropertyBlock::default();
            block.content_type("text/plain");
            block.response_topic(response);
            let message = Outgoing {
                properties: block.properties(),
                ..Outgoing::plain("acme/x", b"", Qos::AtMostOnce, false, 0)
            };
            let mut room = Vec::new();
            let handed = mount.hand_back(message, &mut room).unwrap();
            assert_eq!(handed.topic, "x");
            assert_eq!(handed.properties.response_topic(), expected);
            assert_eq!(handed.properties.content_type(), Some("text/plain"));
        }
        let foreign = Outgoing::plain("beta/x", b"", Qos::AtMostOnce, false, 0);
        assert!(mount.hand_back(foreign, &mut Vec::new()).is_none());
    }
}
