//! `thalweg schemas`: subjects, their versions, and what the next version of one has to be.
//!
//! It speaks the schema registry's own API, on the port of the role `schemas`.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use super::client::segment;
use super::json_lines::broken_into_lines;
use super::{Client, Failure, out, read_file};

#[derive(Subcommand)]
pub enum Command {
    /// List the subjects with their last versions.
    List {
        /// Only subjects whose names begin so; ":*:" lists those of every context.
        #[arg(long, value_name = "PREFIX")]
        prefix: Option<String>,
        /// Soft-deleted versions too.
        #[arg(long)]
        deleted: bool,
    },
    /// List a subject's versions.
    Versions {
        /// The subject.
        subject: String,
        /// Soft-deleted versions too.
        #[arg(long)]
        deleted: bool,
    },
    /// Show a schema: the last version of a subject, another one, or the one of an id.
    #[command(after_help = SHOW_HELP)]
    Show(Show),
    /// Register a schema as a subject's next version, unless the subject has it already.
    #[command(after_help = REGISTER_HELP)]
    Register(New),
    /// Check whether a schema could be registered; fails, and says why, when it could not.
    Check {
        #[command(flatten)]
        new: New,
        /// Only against this version, or "latest"; by the subject's compatibility if not given.
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
    },
    /// Delete a subject or one of its versions; softly unless --permanent is given.
    Delete {
        /// The subject.
        subject: String,
        /// Only this version, or "latest".
        #[arg(long, value_name = "VERSION")]
        version: Option<String>,
        /// For good; what is soft-deleted already.
        #[arg(long)]
        permanent: bool,
    },
    /// Show, set or unset what a subject's next schema has to be to those before it.
    Config {
        /// The subject; all that have nothing of their own if not given.
        subject: Option<String>,
        /// The compatibility that is to hold.
        #[arg(long, value_name = "LEVEL", conflicts_with = "unset")]
        set: Option<Level>,
        /// Takes back what was set.
        #[arg(long)]
        unset: bool,
    },
    /// Show, set or unset what may be written.
    Mode {
        /// The subject; all that have nothing of their own if not given.
        subject: Option<String>,
        /// The mode that is to hold.
        #[arg(long, value_name = "MODE", conflicts_with = "unset")]
        set: Option<Mode>,
        /// Sets IMPORT also where there are schemas.
        #[arg(long, requires = "set")]
        force: bool,
        /// Takes back what was set.
        #[arg(long)]
        unset: bool,
    },
}

/// Which schema to show.
#[derive(Args)]
pub struct Show {
    /// The subject.
    #[arg(required_unless_present = "id")]
    subject: Option<String>,
    /// This version; the last one if not given.
    #[arg(long, value_name = "VERSION", requires = "subject")]
    version: Option<String>,
    /// The schema of this id, whatever its subjects are.
    #[arg(long, value_name = "ID", conflicts_with = "subject")]
    id: Option<i32>,
    /// Prints the schema's text alone, as it was registered.
    #[arg(long)]
    raw: bool,
}

/// A schema in a file.
#[derive(Args)]
pub struct New {
    /// The subject, such as orders-value.
    subject: String,
    /// File that holds the schema; - is standard input.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What it is written in; by the file's ending if not given: .avsc, .json or .proto.
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<Kind>,
    /// A schema that this one names: the name in its text, and the subject and version that it
    /// lies under; repeat for more.
    #[arg(long = "reference", value_name = "NAME=SUBJECT:VERSION", value_parser = reference)]
    references: Vec<Value>,
    /// In the schema's normal form.
    #[arg(long)]
    normalize: bool,
}

/// What a schema is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Avro,
    Json,
    Protobuf,
}

/// What a subject's next schema has to be to the ones before; the registry's own words.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Level {
    None,
    Backward,
    BackwardTransitive,
    Forward,
    ForwardTransitive,
    Full,
    FullTransitive,
}

/// What may be written; the registry's own words.
#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub enum Mode {
    Readwrite,
    Readonly,
    ReadonlyOverride,
    Import,
}

/// The registry of the same process.
struct Registry {
    client: Client,
    url: String,
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    let url = client.role_url("schemas").await?;
    let registry = Registry { client, url };
    match command {
        Command::List { prefix, deleted } => registry.list(prefix, deleted).await,
        Command::Versions { subject, deleted } => registry.versions(&subject, deleted).await,
        Command::Show(show) => registry.show(&show).await,
        Command::Register(new) => {
            let path = format!("/subjects/{}/versions", segment(&new.subject));
            let path = format!("{path}?normalize={}", new.normalize);
            let told = registry.call(Method::POST, &path, Some(new.body()?));
            registry.client.print_object(&told.await?);
            Ok(())
        }
        Command::Check { new, version } => registry.check(&new, version.as_deref()).await,
        Command::Delete {
            subject,
            version,
            permanent,
        } => {
            let version = version.map_or_else(String::new, |version| {
                format!("/versions/{}", segment(&version))
            });
            let path = format!(
                "/subjects/{}{version}?permanent={permanent}",
                segment(&subject)
            );
            let told = registry.call(Method::DELETE, &path, None).await?;
            if registry.client.wants_json() {
                registry.client.print_object(&told);
            }
            Ok(())
        }
        Command::Config {
            subject,
            set,
            unset,
        } => {
            let body = set.map(|level| json!({"compatibility": written(level)}));
            registry.setting("/config", subject, body, unset, "").await
        }
        Command::Mode {
            subject,
            set,
            force,
            unset,
        } => {
            let body = set.map(|mode| json!({"mode": written(mode)}));
            let query = if force { "?force=true" } else { "" };
            registry.setting("/mode", subject, body, unset, query).await
        }
    }
}

impl Registry {
    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<Value>,
    ) -> Result<Value, Failure> {
        let url = format!("{}{path}", self.url);
        let mut request = self.client.request_url(method, &url);
        if let Some(body) = body {
            request = request.json(&body);
        }
        self.client.send(request).await
    }

    async fn get(&self, path: &str) -> Result<Value, Failure> {
        self.call(Method::GET, path, None).await
    }

    async fn list(&self, prefix: Option<String>, deleted: bool) -> Result<(), Failure> {
        let mut path = format!("/schemas?latestOnly=true&deleted={deleted}");
        if let Some(prefix) = prefix {
            path.push_str(&format!("&subjectPrefix={}", segment(&prefix)));
        }
        let found = self.get(&path).await?;
        self.print_versions(found, &SUBJECT_COLUMNS);
        Ok(())
    }

    async fn versions(&self, subject: &str, deleted: bool) -> Result<(), Failure> {
        // The registry's own list has numbers alone, and says when there is no such subject.
        let versions = format!("/subjects/{}/versions?deleted={deleted}", segment(subject));
        let numbers = self.get(&versions).await?;
        if self.client.wants_json() {
            out::line(format_args!("{numbers:#}"));
            return Ok(());
        }
        let mut found = Vec::new();
        for number in numbers.as_array().into_iter().flatten() {
            let path = format!("/subjects/{}/versions/{number}", segment(subject));
            found.push(self.get(&format!("{path}?deleted={deleted}")).await?);
        }
        self.print_versions(Value::from(found), &VERSION_COLUMNS);
        Ok(())
    }

    async fn show(&self, show: &Show) -> Result<(), Failure> {
        let path = match (&show.subject, show.id) {
            (_, Some(id)) => format!("/schemas/ids/{id}"),
            (subject, None) => format!(
                "/subjects/{}/versions/{}",
                segment(subject.as_deref().unwrap_or_default()),
                segment(show.version.as_deref().unwrap_or("latest"))
            ),
        };
        let mut found = self.get(&path).await?;
        if self.client.wants_json() {
            self.client.print_object(&found);
            return Ok(());
        }
        let text = found.as_object_mut().and_then(|of| of.remove("schema"));
        let text = text.as_ref().and_then(Value::as_str).unwrap_or_default();
        if show.raw {
            out::line(text);
            return Ok(());
        }
        with_type(&mut found);
        self.client.print_object(&found);
        // Avro and JSON Schema are JSON, which people read better with line breaks.
        match serde_json::from_str::<IgnoredAny>(text) {
            Ok(_) => out::line(format_args!("\n{}", broken_into_lines(text))),
            Err(_) => out::line(format_args!("\n{text}")),
        }
        Ok(())
    }

    async fn check(&self, new: &New, version: Option<&str>) -> Result<(), Failure> {
        let subject = segment(&new.subject);
        let version = version.map_or_else(String::new, |version| format!("/{}", segment(version)));
        let path = format!(
            "/compatibility/subjects/{subject}/versions{version}?verbose=true&normalize={}",
            new.normalize
        );
        let told = self.call(Method::POST, &path, Some(new.body()?)).await?;
        if self.client.wants_json() {
            out::text_before_verdict(self.client.object_text(&told))?;
        }
        if told["is_compatible"] == true {
            if !self.client.wants_json() {
                out::line("the schema is compatible");
            }
            return Ok(());
        }
        let reasons = told["messages"].as_array().into_iter().flatten();
        let reasons: Vec<&str> = reasons.filter_map(Value::as_str).collect();
        Err(Failure(format!(
            "the schema is not compatible: {}",
            reasons.join("; ")
        )))
    }

    /// Shows what holds, or changes it.
    async fn setting(
        &self,
        path: &str,
        subject: Option<String>,
        set: Option<Value>,
        unset: bool,
        query: &str,
    ) -> Result<(), Failure> {
        let name = subject.as_deref().map(segment);
        let path = name
            .as_ref()
            .map_or(path.to_owned(), |name| format!("{path}/{name}"));
        let told = match (set, unset) {
            (Some(body), _) => {
                let path = format!("{path}{query}");
                self.call(Method::PUT, &path, Some(body)).await?
            }
            (None, true) => self.call(Method::DELETE, &path, None).await?,
            // What holds, also where nothing is set.
            (None, false) if name.is_some() => {
                self.get(&format!("{path}?defaultToGlobal=true")).await?
            }
            (None, false) => self.get(&path).await?,
        };
        self.client.print_object(&told);
        Ok(())
    }

    fn print_versions(&self, mut found: Value, columns: &[(&str, &str)]) {
        if self.client.wants_json() {
            out::line(format_args!("{found:#}"));
            return;
        }
        for version in found.as_array_mut().into_iter().flatten() {
            with_type(version);
        }
        self.client
            .print_list(&json!({"versions": found}), "versions", columns);
    }
}

impl New {
    /// The schema as the registry takes it.
    fn body(&self) -> Result<Value, Failure> {
        let kind = self.kind.or_else(|| kind_of(&self.file)).ok_or_else(|| {
            Failure("say what the schema is written in: --type avro, json or protobuf".to_owned())
        })?;
        let text = String::from_utf8(read_file(&self.file)?);
        let text = text.map_err(|error| Failure::because("the schema is no text", &error))?;
        Ok(json!({"schema": text, "schemaType": written(kind), "references": self.references}))
    }
}

/// The registry does not say that a schema is of the usual type.
fn with_type(version: &mut Value) {
    if let Some(fields) = version.as_object_mut() {
        fields.entry("schemaType").or_insert("AVRO".into());
    }
}

fn kind_of(file: &Path) -> Option<Kind> {
    match file.extension()?.to_str()? {
        "avsc" => Some(Kind::Avro),
        "json" => Some(Kind::Json),
        "proto" => Some(Kind::Protobuf),
        _ => None,
    }
}

/// A word of the command line as the registry writes it.
fn written(word: impl ValueEnum) -> String {
    let name = word.to_possible_value();
    name.map_or_else(String::new, |name| {
        name.get_name().replace('-', "_").to_ascii_uppercase()
    })
}

/// Reads `common.Address=address-value:2`.
fn reference(text: &str) -> Result<Value, String> {
    let parts = text.split_once('=').and_then(|(name, at)| {
        let (subject, version) = at.rsplit_once(':')?;
        let version: i32 = version.parse().ok().filter(|version| *version > 0)?;
        Some(json!({"name": name, "subject": subject, "version": version}))
    });
    parts.ok_or_else(|| format!("'{text}' is no reference: write NAME=SUBJECT:VERSION"))
}

const SUBJECT_COLUMNS: [(&str, &str); 4] = [
    ("SUBJECT", "subject"),
    ("VERSION", "version"),
    ("ID", "id"),
    ("TYPE", "schemaType"),
];

const VERSION_COLUMNS: [(&str, &str); 3] =
    [("VERSION", "version"), ("ID", "id"), ("TYPE", "schemaType")];

const SHOW_HELP: &str = "\
Examples:
  thalweg schemas show orders-value
  thalweg schemas show orders-value --version 2 --raw > order.avsc
  thalweg schemas show --id 7";

const REGISTER_HELP: &str = "\
Examples:
  thalweg schemas register orders-value order.avsc
  thalweg schemas register orders-value order.proto --reference address.proto=address:1
  thalweg schemas check orders-value order.avsc && thalweg schemas register orders-value order.avsc";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_files_ending_says_what_it_is_written_in() {
        let kind = |name: &str| kind_of(Path::new(name));
        assert_eq!(kind("order.avsc"), Some(Kind::Avro));
        assert_eq!(kind("a/order.proto"), Some(Kind::Protobuf));
        assert_eq!(kind("order.schema.json"), Some(Kind::Json));
        assert_eq!(kind("-"), None);
    }

    #[test]
    fn words_are_written_as_the_registry_writes_them() {
        assert_eq!(written(Level::BackwardTransitive), "BACKWARD_TRANSITIVE");
        assert_eq!(written(Mode::ReadonlyOverride), "READONLY_OVERRIDE");
        assert_eq!(written(Kind::Protobuf), "PROTOBUF");
    }

    #[test]
    fn a_reference_has_a_name_a_subject_and_a_version() {
        let read = reference("common.Address=:.eu:address:2").unwrap();
        let expected = json!({"name": "common.Address", "subject": ":.eu:address", "version": 2});
        assert_eq!(read, expected);
        for wrong in ["a", "a=b", "a=b:x", "a=b:0"] {
            assert!(reference(wrong).is_err(), "{wrong}");
        }
    }
}
