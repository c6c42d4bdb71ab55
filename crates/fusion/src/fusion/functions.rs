//! Functions of one's own at run time: modules added, listed and removed.
//!
//! Each module is a file beside the journal, `DIR-functions/NAME.json`: version, signatures, when it
//! was added, and the module in base64. A module is never changed under statements that call it: what
//! they give would change with it, and what they keep would not fit. Another version is another name,
//! to which statements are replaced one by one.
//!
//! A module that was there and cannot be used any more, since its file is damaged or this version
//! refuses it, is listed with the reason; it is called by nobody, and may be added anew or removed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base::UnixMillis;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::Fusion;
use super::listing::Statement;
use super::prepare::compile;
use crate::config::FunctionsConfig;
use crate::error::FusionError;
use crate::file;
use crate::functions::user::{Bounds, Modules, UserModule};
use crate::limits::FUNCTION_MODULES_MAX;

/// The modules, and where they are kept.
pub struct FunctionTable {
    dir: PathBuf,
    bounds: Bounds,
    modules: Modules,
    added_ms: BTreeMap<String, UnixMillis>,
    /// Those that cannot be used, by name.
    unusable: BTreeMap<String, Unusable>,
}

/// A module that cannot be used any more.
#[derive(Clone)]
struct Unusable {
    why: String,
    bytes: usize,
    added: UnixMillis,
}

/// A module to be added.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewFunctions {
    /// What statements call it: `name.function(…)`.
    pub name: String,
    /// The module's bytes, in base64.
    pub module: String,
    /// Its functions, as `name(string, double?) -> long`; without any, those that take and give
    /// numbers.
    #[serde(default)]
    pub signatures: Vec<String>,
}

/// A module as it is shown.
#[derive(Clone, Debug, Serialize)]
pub struct ShownFunctions {
    /// Its name.
    pub name: String,
    /// Its functions, as statements write them.
    pub functions: Vec<String>,
    /// The module's size, bytes.
    pub module_bytes: usize,
    /// When it was added.
    pub added_ms: UnixMillis,
    /// The names of the statements that call it.
    pub statements: Vec<String>,
    /// Why it cannot be used, if it cannot: then none of them runs.
    pub error: Option<String>,
}

/// A module's file.
#[derive(Default, Serialize, Deserialize)]
struct Stored {
    version: u32,
    added_ms: i64,
    signatures: Vec<String>,
    module: String,
}

impl FunctionTable {
    /// Reads the modules that belong to the journal in `dir`. The statements that call one that
    /// cannot be used any more do not start.
    ///
    /// # Errors
    /// The folder cannot be read, or holds what a later version wrote.
    pub fn open(dir: &Path, config: &FunctionsConfig) -> Result<FunctionTable, FusionError> {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        let mut table = FunctionTable {
            dir: dir.with_file_name(format!("{name}-functions")),
            bounds: Bounds {
                fuel: config.fuel,
                memory: config.memory_max.0.try_into().unwrap_or(usize::MAX),
            },
            modules: Modules::default(),
            added_ms: BTreeMap::new(),
            unusable: BTreeMap::new(),
        };
        let files = match std::fs::read_dir(&table.dir) {
            Ok(files) => files,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(table),
            Err(error) => return Err(unread(&table.dir, &error)),
        };
        for entry in files {
            let path = entry.map_err(|error| unread(&table.dir, &error))?.path();
            if path.extension().is_none_or(|ending| ending != "json") {
                continue;
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let stored = match file::read::<Stored>(&path) {
                Ok(stored) if stored.version != VERSION => {
                    let what = format!("functions in {name}.json of version {}", stored.version);
                    return Err(FusionError::Unreadable(what));
                }
                Ok(stored) => stored,
                Err(error) if is_damage(&error) => {
                    let why = format!("its file {} is damaged: {error}", path.display());
                    table.miss(&name, why, &Stored::default());
                    continue;
                }
                Err(error) => return Err(unread(&path, &error)),
            };
            match stored.module(&name, table.bounds) {
                Ok(module) => table.put(module, UnixMillis(stored.added_ms)),
                Err(why) => table.miss(&name, why, &stored),
            }
        }
        Ok(table)
    }

    /// Notes a module that cannot be used.
    fn miss(&mut self, name: &str, why: String, stored: &Stored) {
        tracing::error!(module = name, why, "a module of functions cannot be used");
        let unusable = Unusable {
            why,
            bytes: STANDARD
                .decode(stored.module.trim())
                .map_or(0, |it| it.len()),
            added: UnixMillis(stored.added_ms),
        };
        self.unusable.insert(name.to_owned(), unusable);
    }

    /// The modules.
    pub fn modules(&self) -> Modules {
        self.modules.clone()
    }

    fn put(&mut self, module: UserModule, added: UnixMillis) {
        self.unusable.remove(&module.name);
        self.added_ms.insert(module.name.clone(), added);
        self.modules = self.modules.with(module);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }
}

impl Stored {
    fn module(&self, name: &str, bounds: Bounds) -> Result<UserModule, String> {
        let bytes = STANDARD
            .decode(self.module.trim())
            .map_err(|error| format!("the module is no base64: {error}"))?;
        UserModule::read(name, &bytes, &self.signatures, bounds)
    }
}

impl Fusion {
    /// The modules of functions, by name, also those that cannot be used.
    pub fn functions(&self) -> Vec<ShownFunctions> {
        let (modules, unusable) = {
            let table = self.functions.read();
            (table.modules(), table.unusable.clone())
        };
        let usable = modules.all().map(|module| self.shown(module));
        let unusable = unusable
            .iter()
            .map(|(name, module)| self.shown_unusable(name, module));
        let mut shown: Vec<ShownFunctions> = usable.chain(unusable).collect();
        shown.sort_by(|one, other| one.name.cmp(&other.name));
        shown
    }

    /// One module of functions.
    ///
    /// # Errors
    /// `UnknownModule`.
    pub fn functions_of(&self, name: &str) -> Result<ShownFunctions, FusionError> {
        let (modules, unusable) = {
            let table = self.functions.read();
            (table.modules(), table.unusable.get(name).cloned())
        };
        match (modules.named(name), unusable) {
            (Some(module), _) => Ok(self.shown(module)),
            (None, Some(module)) => Ok(self.shown_unusable(name, &module)),
            (None, None) => Err(FusionError::UnknownModule(name.to_owned())),
        }
    }

    /// Adds a module, whose functions statements can call from then on; durable on return. It takes
    /// the place of one of its name that cannot be used.
    ///
    /// # Errors
    /// `Refused` says why the module cannot be used; `ModuleTaken`; `Limit` where there are too many.
    pub async fn add_functions(&self, new: NewFunctions) -> Result<ShownFunctions, FusionError> {
        // One change at a time, as of statements.
        let sources = self.sources.lock().await;
        if sources.is_closed {
            return Err(FusionError::Closed);
        }
        let (bounds, path, count) = {
            let table = self.functions.read();
            if table.modules.named(&new.name).is_some() {
                return Err(FusionError::ModuleTaken(new.name));
            }
            let others = table.unusable.keys().filter(|name| **name != new.name);
            let count = table.modules.all().count() + others.count();
            (table.bounds, table.path(&new.name), count)
        };
        if count >= FUNCTION_MODULES_MAX {
            return Err(FusionError::Limit(format!(
                "there are {count} modules of functions already: remove one"
            )));
        }
        let added = self.clock.now();
        let name = new.name.clone();
        let kept = tokio::task::spawn_blocking(move || {
            let stored = Stored {
                version: VERSION,
                added_ms: added.0,
                signatures: new.signatures,
                module: new.module,
            };
            let module = stored
                .module(&new.name, bounds)
                .map_err(FusionError::Refused)?;
            keep(&path, &stored)?;
            Ok(module)
        });
        let module = kept.await.map_err(|_| FusionError::Closed)??;
        self.functions.write().put(module, added);
        tracing::info!(module = name, "a module of functions was added");
        self.functions_of(&name)
    }

    /// Removes a module that no statement calls, or one that cannot be used; durable on return.
    ///
    /// # Errors
    /// `UnknownModule`; `ModuleUsed` names the statements that call it.
    pub async fn remove_functions(&self, name: &str) -> Result<(), FusionError> {
        let _sources = self.sources.lock().await;
        let shown = self.functions_of(name)?;
        // Those that call one that cannot be used do not run, and would not without it.
        if shown.error.is_none() && !shown.statements.is_empty() {
            return Err(FusionError::ModuleUsed {
                module: shown.name,
                users: told(&shown.statements),
            });
        }
        let path = self.functions.read().path(name);
        let removed = tokio::task::spawn_blocking(move || file::remove(&path));
        removed
            .await
            .map_err(|_| FusionError::Closed)?
            .map_err(|error| {
                FusionError::Refused(format!("cannot remove the module's file: {error}"))
            })?;
        let mut table = self.functions.write();
        table.modules = table.modules.without(name);
        table.added_ms.remove(name);
        table.unusable.remove(name);
        tracing::info!(module = name, "a module of functions was removed");
        Ok(())
    }

    fn shown(&self, module: &UserModule) -> ShownFunctions {
        let name = module.name.clone();
        let functions = module.functions.iter();
        let added = self.functions.read().added_ms.get(&name).copied();
        ShownFunctions {
            functions: functions
                .map(|function| format!("{name}.{function}"))
                .collect(),
            module_bytes: module.bytes,
            added_ms: added.unwrap_or(UnixMillis(0)),
            statements: self.callers(&name),
            name,
            error: None,
        }
    }

    fn shown_unusable(&self, name: &str, module: &Unusable) -> ShownFunctions {
        ShownFunctions {
            name: name.to_owned(),
            functions: Vec::new(),
            module_bytes: module.bytes,
            added_ms: module.added,
            statements: self.callers(name),
            error: Some(module.why.clone()),
        }
    }

    /// The names of the statements that call functions of a module, also of those that could not be
    /// started.
    fn callers(&self, module: &str) -> Vec<String> {
        let catalog = self.catalog();
        let statements = self.statements.read();
        let calls = |statement: &&std::sync::Arc<Statement>| {
            let compiled;
            let plan = match &statement.run {
                Ok(running) => &*running.lane.plan,
                Err(_) => match compile(&statement.definition, &catalog) {
                    Ok(plan) => {
                        compiled = plan;
                        &compiled
                    }
                    // Whatever else is wrong with it: its text may name the module.
                    Err(_) => return names(&statement.definition.text, module),
                },
            };
            plan.calls.as_ref().is_some_and(|calls| calls.uses(module))
        };
        let callers = statements.values().filter(calls);
        callers
            .map(|statement| statement.definition.name.clone())
            .collect()
    }
}

/// Whether a text has a module's name before a dot.
fn names(text: &str, module: &str) -> bool {
    let text = text.to_ascii_lowercase();
    text.contains(&format!("{module}."))
}

/// The first few names, for people.
fn told(names: &[String]) -> String {
    let shown: Vec<String> = names
        .iter()
        .take(NAMES_SHOWN)
        .map(|name| format!("'{name}'"))
        .collect();
    let what = if names.len() == 1 {
        "the statement"
    } else {
        "the statements"
    };
    match names.len().saturating_sub(NAMES_SHOWN) {
        0 => format!("{what} {}", shown.join(", ")),
        more => format!("{what} {} and {more} more", shown.join(", ")),
    }
}

fn keep(path: &Path, stored: &Stored) -> Result<(), FusionError> {
    let made = match path.parent() {
        Some(folder) if !folder.is_dir() => file::create_folder(folder),
        _ => Ok(()),
    };
    made.and_then(|()| file::write(path, stored))
        .map_err(|error| FusionError::Refused(format!("cannot keep the module: {error}")))
}

/// Whether a file was read and holds something else than it should.
fn is_damage(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof
    )
}

fn unread(path: &Path, error: &std::io::Error) -> FusionError {
    FusionError::Refused(format!("cannot read {}: {error}", path.display()))
}

const VERSION: u32 = 1;

/// Names in one error text.
const NAMES_SHOWN: usize = 5;
