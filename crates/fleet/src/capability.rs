//! Which agent takes which operation, with which arguments, from one table.
//!
//! A Java agent throws a whole response away for one operation or operand that its version does
//! not know, so what is not in the table for an agent's kind and version is never sent to it,
//! whatever its manifest says; and what its manifest leaves out is not sent either.

use c2::{AgentManifest, Operand, OperationKind};

use crate::limits;

/// The kinds of agents that differ in what they can parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// NiFi and MiNiFi Java: strict enums.
    Java,
    /// MiNiFi C++: any case, arguments are strings.
    Cpp,
    /// Anybody else: what the manifest says.
    Other,
    /// Not described yet.
    Unknown,
}

/// What decides about an agent's operations.
#[derive(Clone, Copy, Debug)]
pub struct Profile<'m> {
    manifest: Option<&'m AgentManifest>,
}

/// An operation that agents know.
#[derive(Debug)]
pub struct Row {
    pub kind: OperationKind,
    /// None for those that stand alone, such as RESTART.
    pub operand: Option<Operand>,
    /// The first Java version that has the operation's and the operand's words and a handler.
    java_since: Option<(u32, u32)>,
    cpp: bool,
    /// Taken by every agent that speaks C2, also one that lists nothing.
    always: bool,
    /// Whether it may be handed out again when no answer came. What destroys or restarts is handed
    /// out once at most.
    pub repeats: bool,
    /// Whether agents answer it at all.
    pub acknowledged: bool,
    /// How many agents of a class are at it at the same time where nobody says; 0: all.
    pub at_once: u32,
    /// What an operator may give with it.
    pub args: Args,
}

/// The arguments of an operation, as an operator gives them.
#[derive(Clone, Copy, Debug)]
pub enum Args {
    /// These, by name.
    Named(&'static [Arg]),
    /// Any names: an agent's properties.
    Properties,
}

/// An argument.
#[derive(Clone, Copy, Debug)]
pub struct Arg {
    pub name: &'static str,
    pub shape: Shape,
    pub is_required: bool,
}

/// What an argument's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A text that is not empty.
    Text,
    /// true or false.
    Flag,
    /// The name of a file, perhaps in folders, that stays in the folder that it is relative to.
    File,
    /// An address of http or https, or a path on this fleet.
    Url,
    /// A list of texts, none of them empty.
    Names,
}

impl Row {
    /// The operation's words, such as `UPDATE asset`.
    pub fn words(&self) -> String {
        match &self.operand {
            Some(operand) => format!("{} {operand}", self.kind),
            None => self.kind.to_string(),
        }
    }
}

/// The table's row of an operation; the empty operand stands for none.
pub fn row_of(kind: &OperationKind, operand: &Operand) -> Option<&'static Row> {
    let operand = (*operand != Operand::default()).then_some(operand);
    TABLE
        .iter()
        .find(|row| row.kind == *kind && row.operand.as_ref() == operand)
}

impl<'m> Profile<'m> {
    /// The profile of an agent with this manifest; `None` while it is not known.
    pub fn of(manifest: Option<&'m AgentManifest>) -> Profile<'m> {
        Profile { manifest }
    }

    /// The agent's kind.
    pub fn family(&self) -> Family {
        let Some(manifest) = self.manifest else {
            return Family::Unknown;
        };
        match manifest
            .agent_type
            .as_deref()
            .map(str::to_ascii_lowercase)
            .as_deref()
        {
            Some("cpp") => Family::Cpp,
            Some("minifi-java" | "nifi" | "java" | "minifi") => Family::Java,
            _ => Family::Other,
        }
    }

    /// Checks that the agent can parse and do this; the error says why not.
    pub fn check(&self, kind: &OperationKind, operand: &Operand) -> Result<&'static Row, String> {
        let Some(row) = row_of(kind, operand) else {
            return Err(format!("{kind} {operand} is no operation that agents know"));
        };
        let what = row.words();
        match self.family() {
            Family::Unknown if !row.always => {
                return Err(format!(
                    "the agent has not yet said whether it takes {what}"
                ));
            }
            Family::Cpp if !row.cpp => {
                return Err(format!("C++ agents do not take {what}"));
            }
            Family::Java => match row.java_since {
                None => return Err(format!("Java agents do not take {what}")),
                Some((major, minor)) if self.version() < (major, minor) => {
                    let said = self.said_version();
                    return Err(format!(
                        "Java agents take {what} from {major}.{minor} on, and this one is {said}"
                    ));
                }
                Some(_) => {}
            },
            _ => {}
        }
        match self.lists(row) {
            Some(false) => Err(format!("the agent's manifest does not list {what}")),
            None if !row.always => Err(format!(
                "the agent's manifest lists no operations, so no {what}"
            )),
            Some(true) | None => Ok(row),
        }
    }

    /// Whether the manifest lists `word` among the operands of an operation.
    pub fn lists_operand(&self, kind: &OperationKind, word: &str) -> bool {
        self.operands(kind)
            .any(|operand| operand.eq_ignore_ascii_case(word))
    }

    /// The names that UPDATE properties takes, where the manifest tells them.
    pub fn properties(&self) -> Vec<String> {
        let Some(manifest) = self.manifest else {
            return Vec::new();
        };
        let updates = manifest.supported_operations.iter();
        updates
            .filter(|operation| operation.kind == Some(OperationKind::Update))
            .flat_map(|operation| &operation.properties)
            .filter(|(operand, _)| Operand::from(operand.as_str()) == Operand::Properties)
            .flat_map(|(_, told)| property_names(told))
            .collect()
    }

    /// Whether the agent is of a Java version from this one on; it cannot be told of Cloudera's, whose
    /// versions have the year and month of their release in it, such as 2.24.08.0-19.
    pub fn is_java_since(&self, version: (u32, u32)) -> bool {
        let mut parts = self.said_version().split(['.', '-']).skip(2);
        let is_dated = parts.next().is_some_and(|month| month.len() == 2) && parts.next().is_some();
        self.family() == Family::Java && self.version() >= version && !is_dated
    }

    fn operands(&self, kind: &OperationKind) -> impl Iterator<Item = &'m str> {
        let supported = self
            .manifest
            .map_or(&[][..], |manifest| &manifest.supported_operations);
        supported
            .iter()
            .filter(move |operation| operation.kind.as_ref() == Some(kind))
            .flat_map(|operation| operation.properties.keys().map(String::as_str))
            .collect::<Vec<_>>()
            .into_iter()
    }

    /// What the manifest says of a row; `None` when it says nothing of operations at all.
    fn lists(&self, row: &Row) -> Option<bool> {
        let manifest = self.manifest?;
        let starts = matches!(row.kind, OperationKind::Start | OperationKind::Stop);
        // C++ agents list the components that can be started, not the words flow and processor.
        let operand = match starts && self.family() == Family::Cpp {
            true => None,
            false => row.operand.as_ref(),
        };
        manifest.supports(&row.kind, operand)
    }

    fn said_version(&self) -> &'m str {
        self.manifest
            .and_then(AgentManifest::agent_version)
            .unwrap_or("of no version")
    }

    /// Major and minor version; the oldest that speaks C2 where the agent does not say.
    fn version(&self) -> (u32, u32) {
        let text = self
            .manifest
            .and_then(AgentManifest::agent_version)
            .unwrap_or_default();
        let mut numbers = text.split(['.', '-']).map_while(|part| part.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(major), Some(minor)) => (major, minor),
            _ => JAVA_OLDEST,
        }
    }
}

/// The names under `availableProperties`, as both agents tell them.
fn property_names(told: &c2::RawJson) -> Vec<String> {
    let told: serde_json::Value = serde_json::from_str(told.as_str()).unwrap_or_default();
    let list = &told["availableProperties"];
    let one = std::slice::from_ref(list);
    let items = list.as_array().map_or(one, Vec::as_slice);
    items
        .iter()
        .filter_map(|item| item["propertyName"].as_str())
        .map(str::to_owned)
        .collect()
}

const JAVA_OLDEST: (u32, u32) = (1, 18);

/// A row that C++ agents take, without arguments; what differs is said after it.
const fn row(kind: OperationKind, operand: Option<Operand>) -> Row {
    Row {
        kind,
        operand,
        java_since: None,
        cpp: true,
        always: false,
        repeats: true,
        acknowledged: true,
        at_once: 0,
        args: Args::Named(&[]),
    }
}

impl Row {
    const fn java(mut self, major: u32, minor: u32) -> Row {
        self.java_since = Some((major, minor));
        self
    }

    const fn by_all(mut self) -> Row {
        self.java_since = Some(JAVA_OLDEST);
        self.always = true;
        self
    }

    const fn once(mut self) -> Row {
        self.repeats = false;
        self
    }

    const fn at_once(mut self, agents: u32) -> Row {
        self.at_once = agents;
        self
    }

    const fn silent(mut self) -> Row {
        self.acknowledged = false;
        self
    }

    const fn with(mut self, args: Args) -> Row {
        self.args = args;
        self
    }
}

const fn must(name: &'static str, shape: Shape) -> Arg {
    Arg {
        name,
        shape,
        is_required: true,
    }
}

const fn may(name: &'static str, shape: Shape) -> Arg {
    Arg {
        name,
        shape,
        is_required: false,
    }
}

const TABLE: &[Row] = {
    use c2::Operand as Of;
    use c2::OperationKind::{
        Clear, Describe, Pause, Restart, Resume, Start, Stop, Sync, Transfer, Update,
    };
    const METRICS: &[Arg] = &[may("metricsClass", Shape::Text)];
    const FLOW: &[Arg] = &[may("flowId", Shape::Text)];
    const ASSET: &[Arg] = &[
        must("file", Shape::File),
        may("url", Shape::Url),
        may("resourceId", Shape::Text),
        may("forceDownload", Shape::Flag),
    ];
    const PROCESSOR: &[Arg] = &[must("processorId", Shape::Text)];
    const CONNECTIONS: &[Arg] = &[must("connections", Shape::Names)];
    const COMPONENTS: &[Arg] = &[must("components", Shape::Names)];
    const ANSWERS: u32 = limits::ANSWERS_AT_ONCE_DEFAULT;
    const FETCHES: u32 = limits::FETCHES_AT_ONCE_DEFAULT;
    const UPLOADS: u32 = limits::UPLOADS_AT_ONCE_DEFAULT;
    &[
        row(Describe, Some(Of::Manifest)).by_all().at_once(ANSWERS),
        row(Describe, Some(Of::Metrics))
            .at_once(ANSWERS)
            .with(Args::Named(METRICS)),
        row(Describe, Some(Of::Configuration)).at_once(ANSWERS),
        row(Describe, Some(Of::Jstack)).at_once(ANSWERS),
        row(Describe, Some(Of::CoreComponentState)).at_once(ANSWERS),
        row(Update, Some(Of::Configuration))
            .by_all()
            .with(Args::Named(FLOW)),
        row(Update, Some(Of::Properties))
            .java(1, 20)
            .with(Args::Properties),
        row(Update, Some(Of::Asset))
            .java(1, 22)
            .at_once(FETCHES)
            .with(Args::Named(ASSET)),
        row(Sync, Some(Of::Resource)).java(2, 0).at_once(FETCHES),
        row(Transfer, Some(Of::Debug)).java(1, 18).at_once(UPLOADS),
        row(Start, Some(Of::Flow)).java(2, 3),
        row(Stop, Some(Of::Flow)).java(2, 3),
        row(Start, Some(Of::Processor))
            .java(2, 7)
            .with(Args::Named(PROCESSOR)),
        row(Stop, Some(Of::Processor))
            .java(2, 7)
            .with(Args::Named(PROCESSOR)),
        row(Restart, None).once(),
        row(Clear, Some(Of::Connection))
            .once()
            .with(Args::Named(CONNECTIONS)),
        row(Clear, Some(Of::Repositories)).once(),
        row(Clear, Some(Of::CoreComponentState))
            .once()
            .with(Args::Named(COMPONENTS)),
        row(Pause, None).silent(),
        row(Resume, None).silent(),
    ]
};

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(json: &str) -> AgentManifest {
        let raw = c2::RawJson::parse(json.to_owned()).unwrap();
        AgentManifest::parse(&raw).unwrap()
    }

    fn takes(json: &str, kind: OperationKind, operand: Operand) -> bool {
        Profile::of(Some(&manifest(json)))
            .check(&kind, &operand)
            .is_ok()
    }

    #[test]
    fn an_agent_that_nobody_knows_gets_only_what_all_take() {
        let profile = Profile::of(None);
        assert!(
            profile
                .check(&OperationKind::Describe, &Operand::Manifest)
                .is_ok()
        );
        assert!(
            profile
                .check(&OperationKind::Update, &Operand::Configuration)
                .is_ok()
        );
        assert!(
            profile
                .check(&OperationKind::Start, &Operand::Flow)
                .is_err()
        );
    }

    #[test]
    fn a_java_agent_gets_nothing_that_its_version_cannot_parse() {
        // The manifest of 1.18 lists no operations; one that claims more is not believed.
        let old = r#"{"agentType":"nifi","version":"1.18.0"}"#;
        assert!(takes(old, OperationKind::Update, Operand::Configuration));
        assert!(!takes(old, OperationKind::Update, Operand::Asset));
        let boastful = r#"{"agentType":"minifi-java","buildInfo":{"version":"1.18.0"},
            "supportedOperations":[{"type":"SYNC","properties":{"RESOURCE":{}}}]}"#;
        assert!(!takes(boastful, OperationKind::Sync, Operand::Resource));
        let new = r#"{"agentType":"minifi-java","buildInfo":{"version":"2.3.0"},
            "supportedOperations":[{"type":"SYNC","properties":{"RESOURCE":{}}},
                {"type":"START","properties":{"FLOW":{}, "PROCESSOR":{}}}]}"#;
        assert!(takes(new, OperationKind::Sync, Operand::Resource));
        assert!(takes(new, OperationKind::Start, Operand::Flow));
        assert!(
            !takes(new, OperationKind::Start, Operand::Processor),
            "2.7 was the first"
        );
        assert!(
            !takes(new, OperationKind::Update, Operand::Configuration),
            "not listed"
        );
        assert!(!takes(new, OperationKind::Clear, Operand::Connection));
    }

    #[test]
    fn a_cpp_agent_lists_its_operations_in_lower_case() {
        let cpp = r#"{"agentType":"cpp","supportedOperations":[
            {"type":"update","properties":{"configuration":{},"properties":{}}},
            {"type":"clear","properties":{"connection":{}}}]}"#;
        assert!(takes(cpp, OperationKind::Update, Operand::Configuration));
        assert!(takes(cpp, OperationKind::Clear, Operand::Connection));
        assert!(!takes(cpp, OperationKind::Describe, Operand::Jstack));
    }

    #[test]
    fn a_refusal_names_the_version() {
        let new = manifest(r#"{"agentType":"minifi-java","buildInfo":{"version":"2.3.0"}}"#);
        let profile = Profile::of(Some(&new));
        let refused = profile.check(&OperationKind::Start, &Operand::Processor);
        assert_eq!(
            refused.unwrap_err(),
            "Java agents take START processor from 2.7 on, and this one is 2.3.0"
        );
        let refused = profile.check(&OperationKind::Restart, &Operand::default());
        assert_eq!(refused.unwrap_err(), "Java agents do not take RESTART");
    }

    #[test]
    fn a_cpp_agent_lists_components_that_can_be_started() {
        let cpp = r#"{"agentType":"cpp","supportedOperations":[
            {"type":"start","properties":{"c2":{},"11-22":{}}}, {"type":"restart"}]}"#;
        assert!(takes(cpp, OperationKind::Start, Operand::Flow));
        assert!(takes(cpp, OperationKind::Start, Operand::Processor));
        assert!(!takes(cpp, OperationKind::Stop, Operand::Flow));
        assert!(takes(cpp, OperationKind::Restart, Operand::default()));
        assert!(!takes(cpp, OperationKind::Pause, Operand::default()));
    }

    #[test]
    fn properties_are_read_where_the_manifest_tells_them() {
        let cpp = manifest(
            r#"{"agentType":"cpp","supportedOperations":[{"type":"update","properties":{
            "properties":{"availableProperties":[{"propertyName":"a.b"},{"propertyName":"c"}]}}}]}"#,
        );
        assert_eq!(Profile::of(Some(&cpp)).properties(), ["a.b", "c"]);
    }
}
