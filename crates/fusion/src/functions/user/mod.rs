//! Functions of one's own: WebAssembly modules whose functions statements call as `module.function`.
//!
//! A call is a function of its arguments alone, or else statements would give other rows after a
//! restart than before: modules import nothing, and each call begins in a fresh instance, unless no
//! instruction of the module can leave anything behind. A statement has instances of its own, so
//! that no two threads wait for each other in one. Fuel and memory of a call are bounded; a call that
//! fails says why to the statement ([`Calls::take`]), gives null where it stands, and what becomes of
//! the event is the statement's policy. Statements without such calls pay nothing.

mod instance;
mod module;
mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

pub use module::{Bounds, UserModule};
use signature::Argument;
pub use signature::Signature;

use crate::expression::Expression;
use crate::suggest::did_you_mean;
use crate::value::Value;
use instance::Instance;

/// The modules that statements can name, by name. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Modules(Arc<BTreeMap<String, Arc<UserModule>>>);

/// What one statement calls, while its text is compiled.
#[derive(Clone, Debug, Default)]
pub struct Binder {
    modules: Modules,
    calls: Arc<Calls>,
}

/// What one statement calls, and what went wrong with it.
#[derive(Debug, Default)]
pub struct Calls {
    /// The modules, with what tells their contents apart.
    used: Mutex<BTreeMap<String, String>>,
    failed: Mutex<Option<String>>,
    gives_null: AtomicBool,
}

/// One function in one place of a statement.
#[derive(Clone)]
pub struct UserCall {
    module: Arc<UserModule>,
    function: usize,
    calls: Arc<Calls>,
    /// An instance that calls leave as it was.
    kept: Arc<Mutex<Option<Instance>>>,
}

impl Modules {
    /// The module of that name.
    pub fn named(&self, name: &str) -> Option<&Arc<UserModule>> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn all(&self) -> impl Iterator<Item = &Arc<UserModule>> {
        self.0.values()
    }

    /// The same and one more.
    pub fn with(&self, module: UserModule) -> Modules {
        let mut modules = (*self.0).clone();
        modules.insert(module.name.clone(), Arc::new(module));
        Modules(Arc::new(modules))
    }

    /// The same without one.
    pub fn without(&self, name: &str) -> Modules {
        let mut modules = (*self.0).clone();
        modules.remove(name);
        Modules(Arc::new(modules))
    }

    /// "; did you mean …?" for a name that is no function: the nearest of `known` and of all here, or
    /// what it is called here with its module before it.
    pub fn did_you_mean<'k>(&self, name: &str, known: impl Iterator<Item = &'k str>) -> String {
        let mut words: Vec<String> = known.map(str::to_owned).collect();
        for module in self.all() {
            for function in &module.functions {
                let whole = format!("{}.{}", module.name, function.name);
                if function.name.eq_ignore_ascii_case(name) {
                    return format!("; did you mean {whole}?");
                }
                words.push(whole);
            }
        }
        did_you_mean(name, words.iter().map(String::as_str))
    }
}

impl Binder {
    /// For one statement over these modules.
    pub fn new(modules: &Modules) -> Binder {
        Binder {
            modules: modules.clone(),
            calls: Arc::default(),
        }
    }

    /// The modules that can be named.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// Whether there is a module of that name, in any case.
    pub fn has(&self, module: &str) -> bool {
        self.modules.named(&module.to_ascii_lowercase()).is_some()
    }

    /// A call of a module's function; none where there is no such module.
    ///
    /// # Errors
    /// There is no such function, or it takes other arguments; the text says what to write.
    pub fn call(
        &self,
        module: &str,
        function: &str,
        arguments: Vec<Expression>,
    ) -> Option<Result<Expression, String>> {
        let module = self.modules.named(&module.to_ascii_lowercase())?;
        let Some(place) = module.function(function) else {
            let known = module.functions.iter().map(|known| known.name.as_str());
            let hint = did_you_mean(function, known);
            let name = &module.name;
            return Some(Err(format!("there is no function {name}.{function}{hint}")));
        };
        if let Err(why) = module.functions[place].check(&module.name, &arguments) {
            return Some(Err(why));
        }
        let used = (module.name.clone(), module.digest.clone());
        self.calls.used.lock().extend([used]);
        let call = UserCall {
            module: module.clone(),
            function: place,
            calls: self.calls.clone(),
            kept: Arc::default(),
        };
        Some(Ok(Expression::User(Box::new(call), arguments)))
    }

    /// What the statement calls, where it calls anything.
    pub fn into_calls(self) -> Option<Arc<Calls>> {
        let is_used = !self.calls.used.lock().is_empty();
        is_used.then_some(self.calls)
    }
}

impl Calls {
    /// Whether the statement calls functions of that module.
    pub fn uses(&self, module: &str) -> bool {
        self.used.lock().contains_key(module)
    }

    /// The modules whose functions it calls, with what tells their contents apart.
    pub fn modules(&self) -> BTreeMap<String, String> {
        self.used.lock().clone()
    }

    /// Says that calls which fail are null and nothing else.
    pub fn give_null(&self, gives_null: bool) {
        self.gives_null.store(gives_null, Ordering::Relaxed);
        self.failed.lock().take();
    }

    /// Why a call failed since this was last asked: the first that did.
    pub fn take(&self) -> Option<String> {
        self.failed.lock().take()
    }

    fn fail(&self, why: impl FnOnce() -> String) {
        if !self.gives_null.load(Ordering::Relaxed) {
            self.failed.lock().get_or_insert_with(why);
        }
    }
}

impl PartialEq for Calls {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other) || *self.used.lock() == *other.used.lock()
    }
}

impl UserCall {
    /// What the function takes and gives.
    pub fn signature(&self) -> &Signature {
        &self.module.functions[self.function]
    }

    /// Calls it; a call that fails gives null, and the statement is told why.
    pub fn run<'a>(&self, arguments: impl Iterator<Item = Value<'a>>) -> Value<'static> {
        let signature = self.signature();
        let types = signature.parameters.iter();
        let mut given = Vec::with_capacity(signature.parameters.len());
        for (of, value) in types.zip(arguments) {
            match of.argument(value) {
                Argument::Missing => return Value::Null,
                argument => given.push(argument),
            }
        }
        match self.called(signature, given) {
            Ok(value) => value,
            Err(why) => {
                self.calls
                    .fail(|| format!("the function {self:?} failed: {why}"));
                Value::Null
            }
        }
    }

    fn called(
        &self,
        signature: &Signature,
        arguments: Vec<Argument<'_>>,
    ) -> Result<Value<'static>, String> {
        let module = &*self.module;
        if !module.is_stateless || signature.has_texts() {
            return Instance::new(module, &signature.name)?.call(module, signature, arguments);
        }
        // Nobody else is in it: a statement's expressions are computed by one thread at a time.
        let mut kept = self.kept.lock();
        let instance = match &mut *kept {
            Some(instance) => instance,
            empty => empty.insert(Instance::new(module, &signature.name)?),
        };
        instance.refuel()?;
        let called = instance.call(module, signature, arguments);
        if called.is_err() {
            *kept = None;
        }
        called
    }
}

impl PartialEq for UserCall {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.module, &other.module) && self.function == other.function
    }
}

impl std::fmt::Debug for UserCall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.module.name, self.signature().name)
    }
}

#[cfg(test)]
mod tests;
