//! What MiNiFi C++ knows and what means nothing here: it is taken with a note, since flows name it.

use super::Problems;
use super::remote::{INPUT_PORT, OUTPUT_PORT};

/// What is passed over.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) all: Problems,
    /// Whether names that are not known are passed over too, as in NiFi's JSON.
    pub(super) is_lenient: bool,
}

impl Notes {
    pub(super) fn add(&mut self, path: &str, message: impl Into<String>) {
        self.all.add(path, message);
    }

    /// Takes a property that a component of this kind does not have, where that can be.
    pub(super) fn takes_property(&mut self, kind: &str, name: &str, path: &str) -> bool {
        let mut idle = PROPERTIES.iter();
        let is_idle = idle.any(|(kinds, names)| kinds.contains(&kind) && names.contains(&name));
        self.takes(is_idle, &format!("{path} / Properties / {name}"))
    }

    /// Takes a controller service that is not there, where that can be.
    pub(super) fn takes_service(&mut self, class: &str, path: &str) -> bool {
        self.takes(SERVICES.contains(&class), path)
    }

    fn takes(&mut self, is_idle: bool, path: &str) -> bool {
        if is_idle {
            self.add(path, "has no effect here");
        } else if self.is_lenient {
            self.add(path, "is not known and passed over");
        }
        is_idle || self.is_lenient
    }
}

/// Kinds, and properties that they have in MiNiFi C++: of Kerberos, which SASL Mechanism refuses
/// where it would be needed, of librdkafka's own working, of Windows, of connections that a
/// remote's ports keep open.
const PROPERTIES: &[(&[&str], &[&str])] = &[
    (
        &["ConsumeKafka", "PublishKafka"],
        &[
            "Kerberos Service Name",
            "Kerberos Principal",
            "Kerberos Keytab Path",
        ],
    ),
    (
        &["PublishKafka"],
        &["Debug contexts", "Max Request Size", "Message Key Field"],
    ),
    (
        &["SSLContextService"],
        &[
            "Certificate Store Location",
            "Server Cert Store",
            "Client Cert Store",
            "Client Cert CN",
            "Client Cert Key Usage",
        ],
    ),
    (&[INPUT_PORT, OUTPUT_PORT], &["Idle Timeout"]),
];

/// Services that only slow the agent down.
const SERVICES: &[&str] = &["LinuxPowerManagerService"];
