//! Commands that need no running agent.

use std::io::Read;
use std::path::Path;

use base::SystemClock;

use super::print;
use crate::AgentError;
use crate::definition::{Flow, seal};
use crate::engine::Prepared;
use crate::parameters::{SecretKey, Surroundings};
use crate::supervisor::read;

/// Prints a sealed secret, or a flow with sealed secrets.
pub(super) fn encrypt(
    data: &Path,
    flow: Option<&Path>,
    key: Option<String>,
) -> Result<(), AgentError> {
    let key = match key {
        Some(text) => SecretKey::parse(&text).map_err(AgentError::Setting)?,
        None => SecretKey::make_in_folder(data)?,
    };
    if let Some(path) = flow {
        let text = read(path)?;
        let sealed = seal(&text, &key)
            .map_err(|error| AgentError::Setting(format!("{}: {error}", path.display())))?;
        return print(&sealed.unwrap_or(text));
    }
    let mut secret = String::new();
    let mut input = std::io::stdin().take(SECRET_BYTES_MAX);
    input
        .read_to_string(&mut secret)
        .map_err(|source| AgentError::System {
            action: "read the secret",
            source,
        })?;
    let secret = secret.trim_end_matches(['\r', '\n']);
    if secret.is_empty() {
        return Err(AgentError::Setting(
            "there is nothing to seal: write the secret into the standard input".to_owned(),
        ));
    }
    let sealed = key.seal(secret).map_err(AgentError::Setting)?;
    print(&format!("{sealed}\n"))
}

/// Says whether a flow can run, with every problem if it cannot; where it is strict, what is only
/// noted is a problem too.
pub(super) fn validate(path: &Path, data: &Path, is_strict: bool) -> Result<(), AgentError> {
    let text = read(path)?;
    let origin = path.display().to_string();
    let key = SecretKey::in_folder(data)?;
    let surroundings = Surroundings::of_process(&data.join("asset"), key)?;
    let loaded = Flow::load(&text, &surroundings);
    let strict = loaded.and_then(|flow| match is_strict && !flow.notes.0.is_empty() {
        true => Err(flow.notes),
        false => Ok(flow),
    });
    let flow = strict.map_err(|problems| AgentError::Flow { origin, problems })?;
    let (processors, connections) = (flow.processors.len(), flow.connections.len());
    for note in &flow.notes.0 {
        print(&format!("note: {}: {}\n", note.path, note.message))?;
    }
    Prepared::new(base::Clock::now(&SystemClock), flow)?;
    print(&format!(
        "{}: {processors} processors, {connections} connections; good to run\n",
        path.display()
    ))
}

/// Bytes of a secret: passwords and keys, not files.
const SECRET_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_refused_where_it_is_strict() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flow.yml");
        let flow = "
MiNiFi Config Version: 3
Flow Controller: {name: loose}
Processors:
- {name: make, class: GenerateFlowFile}
";
        std::fs::write(&path, flow).unwrap();
        validate(&path, dir.path(), false).unwrap();
        let error = validate(&path, dir.path(), true).unwrap_err().to_string();
        assert!(error.contains("'success' is neither connected"), "{error}");
    }
}
