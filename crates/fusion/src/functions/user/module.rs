//! A module of functions: read, checked and compiled once, before any statement calls it.
//!
//! A module imports nothing: its functions see their arguments alone. What it exports beside
//! functions: `memory` and `alloc(i32) -> i32`, where texts go in or out, and `_initialize`, which is
//! called once before any function, as of a WASI reactor. Names that begin with `_` are nobody's.

use std::collections::BTreeSet;

use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, ExternType, FuncType, Module, ValType,
};
use wasmparser::{Operator, Parser, Payload};

use super::instance::Instance;
use super::signature::{Signature, is_name};
use crate::digest;
use crate::limits::{FUNCTION_MODULE_BYTES_MAX, FUNCTIONS_PER_MODULE_MAX};

/// What a call may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Fuel of one call, about one for each instruction.
    pub fuel: u64,
    /// Bytes of memory of one call.
    pub memory: usize,
}

/// A module whose functions statements may call.
pub struct UserModule {
    /// Its name in statements.
    pub name: String,
    /// Its functions.
    pub functions: Vec<Signature>,
    /// The bytes that it was read from, count.
    pub bytes: usize,
    /// Tells its bytes and what its functions take and give from others'.
    pub digest: String,
    /// Whether functions of numbers may run in one instance for ever, since none of its
    /// instructions can leave anything behind.
    pub is_stateless: bool,
    pub(super) bounds: Bounds,
    pub(super) compiled: Module,
}

impl UserModule {
    /// Reads a module; with `signatures` those are its functions, else all that take and give
    /// numbers.
    ///
    /// # Errors
    /// It cannot be used; the text says why, and what to do.
    pub fn read(
        name: &str,
        bytes: &[u8],
        signatures: &[String],
        bounds: Bounds,
    ) -> Result<UserModule, String> {
        if !is_name(name) || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(format!(
                "'{name}' is no name for a module: use up to 64 lower-case letters, digits and _, \
                 a letter first"
            ));
        }
        if crate::epl::is_namespace(name) {
            return Err(format!(
                "{name} is a word of EPL's own: choose another name"
            ));
        }
        if bytes.len() > FUNCTION_MODULE_BYTES_MAX {
            return Err(format!(
                "the module has {} bytes, more than {FUNCTION_MODULE_BYTES_MAX}: build it for size, \
                 without debug information",
                bytes.len()
            ));
        }
        let compiled = Module::new(&Engine::new(&config()), bytes)
            .map_err(|error| format!("it is no WebAssembly module that can be used: {error}"))?;
        if let Some(import) = compiled.imports().next() {
            return Err(format!(
                "the module imports {}.{}: functions get no imports, so that they give the same for \
                 the same arguments; build it for wasm32-unknown-unknown",
                import.module(),
                import.name()
            ));
        }
        let functions = functions_of(&compiled, signatures)?;
        let mut content = bytes.to_vec();
        for function in &functions {
            content.extend_from_slice(format!("\n{function}").as_bytes());
        }
        let module = UserModule {
            digest: digest::of(&content),
            name: name.to_owned(),
            is_stateless: leaves_nothing(bytes),
            functions,
            bytes: bytes.len(),
            bounds,
            compiled,
        };
        // What cannot be started is refused now, not at the first event.
        for function in &module.functions {
            Instance::new(&module, &function.name)
                .map_err(|why| format!("the module cannot be started: {why}"))?;
        }
        Ok(module)
    }

    /// The place of the function of that name, in any case.
    pub fn function(&self, name: &str) -> Option<usize> {
        let mut functions = self.functions.iter();
        functions.position(|function| function.name.eq_ignore_ascii_case(name))
    }
}

impl std::fmt::Debug for UserModule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        // What a call costs does not hang on who called before.
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict())
        .wasm_multi_memory(false)
        .wasm_custom_page_sizes(false)
        .ignore_custom_sections(true);
    config
}

fn functions_of(compiled: &Module, signatures: &[String]) -> Result<Vec<Signature>, String> {
    let exported = |name: &str| match compiled.get_export(name) {
        Some(ExternType::Func(of)) => Some(of),
        _ => None,
    };
    let mut functions = Vec::new();
    if signatures.is_empty() {
        for export in compiled.exports() {
            let name = export.name();
            if let ExternType::Func(of) = export.ty()
                && is_name(name)
                && !name.starts_with('_')
                && name != ALLOC
            {
                functions.extend(Signature::of_numbers(name, of));
            }
        }
    }
    for text in signatures {
        let signature = Signature::parse(text)?;
        let Some(of) = exported(&signature.name) else {
            return Err(format!("the module exports no function {}", signature.name));
        };
        let wanted = signature.in_module();
        if of.params() != wanted.params() || of.results() != wanted.results() {
            return Err(format!(
                "{signature} is {} in a module, and this one has {}",
                shown(&wanted),
                shown(&of)
            ));
        }
        functions.push(signature);
    }
    if functions.is_empty() {
        return Err(
            "the module exports no function of numbers that gives one number: say by a signature \
             what the others take and give"
                .to_owned(),
        );
    }
    if functions.len() > FUNCTIONS_PER_MODULE_MAX {
        return Err(format!(
            "the module has more than {FUNCTIONS_PER_MODULE_MAX} functions: name those to be called \
             by signatures"
        ));
    }
    let mut names = BTreeSet::new();
    for function in &functions {
        if crate::epl::is_method(&function.name) {
            return Err(format!(
                "{} is a method of values in EPL: export the function by another name",
                function.name
            ));
        }
        if !names.insert(function.name.to_ascii_lowercase()) {
            return Err(format!(
                "two functions are called {}: upper and lower case are the same in statements",
                function.name
            ));
        }
    }
    if let Some(function) = functions.iter().find(|function| function.has_texts()) {
        let allocates = exported(ALLOC).is_some_and(|of| {
            of.params() == [ValType::I32].as_slice() && of.results() == [ValType::I32].as_slice()
        });
        let remembers = matches!(compiled.get_export(MEMORY), Some(ExternType::Memory(_)));
        if !allocates || !remembers {
            return Err(format!(
                "{function} takes or gives texts: the module has to export its {MEMORY}, and \
                 {ALLOC}(i32) -> i32, which gives a place of so many bytes"
            ));
        }
    }
    Ok(functions)
}

fn shown(of: &FuncType) -> String {
    let list = |types: &[ValType]| {
        let names: Vec<String> = types.iter().map(|of| format!("{of:?}")).collect();
        names.join(", ").to_ascii_lowercase()
    };
    format!("({}) -> ({})", list(of.params()), list(of.results()))
}

/// Whether no instruction of the module writes to memories, tables or globals.
fn leaves_nothing(bytes: &[u8]) -> bool {
    Parser::new(0).parse_all(bytes).all(|payload| {
        let Ok(Payload::CodeSectionEntry(body)) = payload else {
            return payload.is_ok();
        };
        let Ok(mut operators) = body.get_operators_reader() else {
            return false;
        };
        while !operators.eof() {
            match operators.read() {
                Ok(operator) if !writes(&operator) => {}
                _ => return false,
            }
        }
        true
    })
}

fn writes(operator: &Operator<'_>) -> bool {
    matches!(
        operator,
        Operator::I32Store { .. }
            | Operator::I64Store { .. }
            | Operator::F32Store { .. }
            | Operator::F64Store { .. }
            | Operator::I32Store8 { .. }
            | Operator::I32Store16 { .. }
            | Operator::I64Store8 { .. }
            | Operator::I64Store16 { .. }
            | Operator::I64Store32 { .. }
            | Operator::GlobalSet { .. }
            | Operator::MemoryGrow { .. }
            | Operator::MemoryFill { .. }
            | Operator::MemoryCopy { .. }
            | Operator::MemoryInit { .. }
            | Operator::DataDrop { .. }
            | Operator::TableSet { .. }
            | Operator::TableGrow { .. }
            | Operator::TableFill { .. }
            | Operator::TableCopy { .. }
            | Operator::TableInit { .. }
            | Operator::ElemDrop { .. }
    )
}

/// The export that gives a place for a text.
pub(super) const ALLOC: &str = "alloc";
/// The export that texts stand in.
pub(super) const MEMORY: &str = "memory";
