//! Whose certificate an agent's connection shows, and for whom it may speak.

use base::UnixMillis;

use crate::config::CertificateBinding;
use crate::error::FleetError;
use crate::expiry::ShownCertificate;

/// Who a client's certificate says it is; whoever serves the port puts it among a request's
/// extensions. A connection without one has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    common_name: Option<String>,
    /// Organizational units, where the whole subject is known.
    units: Option<Vec<String>>,
    shown: Option<ShownCertificate>,
}

impl Certificate {
    /// Of a subject as RFC 2253 writes it, such as `CN=agent-1,OU=edge`.
    pub fn of_subject(subject: &str) -> Certificate {
        let parts = attributes(subject);
        let all = |wanted: &str| -> Vec<String> {
            let of_kind = parts
                .iter()
                .filter(|(kind, _)| kind.eq_ignore_ascii_case(wanted));
            of_kind.map(|(_, value)| value.clone()).collect()
        };
        Certificate {
            common_name: all("CN").into_iter().next(),
            units: Some(all("OU")),
            shown: None,
        }
    }

    /// Of a common name alone.
    pub fn of_common_name(name: &str) -> Certificate {
        Certificate {
            common_name: Some(name.to_owned()),
            units: None,
            shown: None,
        }
    }

    /// With a mark that tells it from others, and the end of its validity.
    pub fn with_facts(self, mark: u64, until: Option<UnixMillis>) -> Certificate {
        Certificate {
            shown: Some(ShownCertificate { mark, until }),
            ..self
        }
    }

    /// What was shown of it.
    pub(crate) fn shown(&self) -> Option<ShownCertificate> {
        self.shown
    }

    /// The agent that it speaks for, where it is held to one.
    pub(crate) fn agent(&self, binding: CertificateBinding) -> Option<&str> {
        match binding {
            CertificateBinding::Off => None,
            _ => Some(self.common_name.as_deref().unwrap_or_default()),
        }
    }

    /// Checks that its owner may speak for this agent of this class.
    ///
    /// # Errors
    /// [`FleetError::WrongCertificate`].
    pub(crate) fn check(
        &self,
        binding: CertificateBinding,
        agent: &str,
        class: Option<&str>,
    ) -> Result<(), FleetError> {
        let wrong = |claimed: String| FleetError::WrongCertificate {
            certificate: self.common_name.clone().unwrap_or_default(),
            claimed,
        };
        if binding == CertificateBinding::Off {
            return Ok(());
        }
        if self.common_name.as_deref() != Some(agent) {
            return Err(wrong(format!("the agent '{agent}'")));
        }
        let (CertificateBinding::AgentAndClass, Some(class)) = (binding, class) else {
            return Ok(());
        };
        let has = |units: &Vec<String>| units.iter().any(|unit| unit == class);
        match self.units.as_ref().is_some_and(has) {
            true => Ok(()),
            false => Err(wrong(format!("agents of the class '{class}'"))),
        }
    }
}

/// The attributes of a subject; what is escaped in a value is part of it.
fn attributes(subject: &str) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    let (mut kind, mut text) = (None, Vec::new());
    let mut bytes = subject.bytes().peekable();
    let mut close = |kind: &mut Option<String>, text: &mut Vec<u8>| {
        let value = String::from_utf8_lossy(&std::mem::take(text)).into_owned();
        if let Some(kind) = kind.take() {
            parts.push((kind, value));
        }
    };
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => match bytes.next() {
                Some(first) if first.is_ascii_hexdigit() => {
                    let second = bytes.next_if(u8::is_ascii_hexdigit);
                    let digit = |b: u8| char::from(b).to_digit(16).unwrap_or_default() as u8;
                    match second {
                        Some(second) => text.push(digit(first) * 16 + digit(second)),
                        None => text.push(first),
                    }
                }
                Some(escaped) => text.push(escaped),
                None => {}
            },
            b'=' if kind.is_none() => {
                let name = String::from_utf8_lossy(&std::mem::take(&mut text)).into_owned();
                kind = Some(name.trim().to_owned());
            }
            b',' | b'+' => close(&mut kind, &mut text),
            byte => text.push(byte),
        }
    }
    close(&mut kind, &mut text);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(subject: &str, binding: CertificateBinding, agent: &str, class: Option<&str>) -> bool {
        let certificate = Certificate::of_subject(subject);
        certificate.check(binding, agent, class).is_ok()
    }

    #[test]
    fn a_common_name_is_the_agents_identifier() {
        use CertificateBinding::{Agent, AgentAndClass, Off};
        let subject = "CN=agent-1,OU=edge,OU=north,O=Example";
        assert!(check(subject, Agent, "agent-1", Some("other")));
        assert!(!check(subject, Agent, "agent-2", None));
        assert!(check(subject, Off, "agent-2", None));
        assert!(check(subject, AgentAndClass, "agent-1", Some("north")));
        assert!(check(subject, AgentAndClass, "agent-1", None));
        assert!(!check(subject, AgentAndClass, "agent-1", Some("Example")));
        assert!(!check("OU=edge", Agent, "", None));
        let alone = Certificate::of_common_name("agent-1");
        assert!(alone.check(Agent, "agent-1", Some("x")).is_ok());
        assert!(alone.check(AgentAndClass, "agent-1", Some("x")).is_err());
    }

    #[test]
    fn an_escaped_comma_begins_no_new_attribute() {
        let name = r"CN=a\,CN=b,OU=c\2Cd\C3\A9";
        assert!(check(name, CertificateBinding::Agent, "a,CN=b", None));
        assert!(!check(name, CertificateBinding::Agent, "b", None));
        assert!(check(
            name,
            CertificateBinding::AgentAndClass,
            "a,CN=b",
            Some("c,dé")
        ));
    }
}
