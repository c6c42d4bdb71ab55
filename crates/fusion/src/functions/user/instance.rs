//! One run of a module: its memory, and what may be used of it.

use wasmi::errors::ErrorKind;
use wasmi::{
    Error, Func, Memory, Store, StoreLimits, StoreLimitsBuilder, TrapCode, TypedFunc, Val,
};

use super::module::{ALLOC, MEMORY, UserModule};
use super::signature::{Argument, Kind, Signature};
use crate::limits::{FUNCTION_ARGUMENTS_MAX, FUNCTION_TABLE_ELEMENTS_MAX, ROW_BYTES_MAX};
use crate::value::Value;

/// A module that is ready for one function's call.
pub struct Instance {
    store: Store<StoreLimits>,
    function: Func,
    memory: Option<Memory>,
    alloc: Option<TypedFunc<i32, i32>>,
    fuel: u64,
}

impl Instance {
    /// Starts the module for its function of that name.
    ///
    /// # Errors
    /// It fails as it starts; the text says how.
    pub fn new(module: &UserModule, function: &str) -> Result<Instance, String> {
        let bounds = module.bounds;
        let limits = StoreLimitsBuilder::new()
            .memory_size(bounds.memory)
            .table_elements(FUNCTION_TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .tables(TABLES_MAX)
            .trap_on_grow_failure(true)
            .build();
        let mut store = Store::new(module.compiled.engine(), limits);
        store.limiter(|limits| limits);
        let told = |error: Error| told(&error, module);
        store.set_fuel(bounds.fuel).map_err(told)?;
        let instance = wasmi::Instance::new(&mut store, &module.compiled, &[]).map_err(told)?;
        if let Ok(initialize) = instance.get_typed_func::<(), ()>(&store, INITIALIZE) {
            initialize.call(&mut store, ()).map_err(told)?;
        }
        let function = instance
            .get_func(&store, function)
            .ok_or_else(|| format!("it exports no {function}"))?;
        Ok(Instance {
            memory: instance.get_memory(&store, MEMORY),
            alloc: instance.get_typed_func(&store, ALLOC).ok(),
            function,
            store,
            fuel: bounds.fuel,
        })
    }

    /// Gives it the fuel of one call again.
    pub fn refuel(&mut self) -> Result<(), String> {
        let fuel = self.store.set_fuel(self.fuel);
        fuel.map_err(|error| error.to_string())
    }

    /// Calls the function.
    ///
    /// # Errors
    /// It fails; the text says how.
    pub fn call(
        &mut self,
        module: &UserModule,
        signature: &Signature,
        arguments: Vec<Argument<'_>>,
    ) -> Result<Value<'static>, String> {
        let mut plain = [const { Val::I32(0) }; 2 * FUNCTION_ARGUMENTS_MAX];
        let mut count = 0;
        let mut put = |value: Val| {
            if let Some(place) = plain.get_mut(count) {
                *place = value;
                count += 1;
            }
        };
        for argument in arguments {
            match argument {
                Argument::Plain(value) => put(value),
                Argument::Text(None) => {
                    put(Val::I32(0));
                    put(Val::I32(-1));
                }
                Argument::Text(Some(text)) => {
                    let (place, length) = self.place(module, &text)?;
                    put(Val::I32(place));
                    put(Val::I32(length));
                }
                Argument::Missing => return Ok(Value::Null),
            }
        }
        let mut results = [Val::I64(0)];
        let called = self
            .function
            .call(&mut self.store, &plain[..count], &mut results);
        called.map_err(|error| told(&error, module))?;
        let [result] = results;
        match (signature.result.kind, result) {
            (Kind::Text, Val::I64(packed)) if packed < 0 && signature.result.is_nullable => {
                Ok(Value::Null)
            }
            (Kind::Text, Val::I64(packed)) => self.text(packed as u64),
            (_, result) => Ok(signature.result.value(&result)),
        }
    }

    /// Puts a text where the module says.
    fn place(&mut self, module: &UserModule, text: &str) -> Result<(i32, i32), String> {
        let (Some(memory), Some(alloc)) = (self.memory, self.alloc) else {
            return Err("it exports no memory or no alloc".to_owned());
        };
        let too_long = || format!("a text of {} bytes does not fit its memory", text.len());
        let length = i32::try_from(text.len()).map_err(|_| too_long())?;
        let place = alloc.call(&mut self.store, length);
        let place = place.map_err(|error| told(&error, module))?;
        let written = memory.write(&mut self.store, place as u32 as usize, text.as_bytes());
        match written {
            Ok(()) => Ok((place, length)),
            Err(_) => Err(format!(
                "its alloc gave a place outside of its memory for {length} bytes"
            )),
        }
    }

    /// The text that a result points at.
    fn text(&self, packed: u64) -> Result<Value<'static>, String> {
        let (place, length) = ((packed >> 32) as usize, packed as u32 as usize);
        if length > ROW_BYTES_MAX {
            return Err(format!(
                "it gave a text of {length} bytes, more than a row may have"
            ));
        }
        let memory = self
            .memory
            .map_or(&[][..], |memory| memory.data(&self.store));
        let bytes = memory.get(place..).and_then(|from| from.get(..length));
        let Some(bytes) = bytes else {
            return Err("it gave a text that lies outside of its memory".to_owned());
        };
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Value::Text(text.to_owned().into())),
            Err(_) => Err("it gave a text that is no UTF-8".to_owned()),
        }
    }
}

/// Why a call failed, with what to change.
fn told(error: &Error, module: &UserModule) -> String {
    let bounds = module.bounds;
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => format!(
            "it used up its fuel of {}: make it shorter, or raise fusion.functions.fuel",
            bounds.fuel
        ),
        Some(TrapCode::GrowthOperationLimited) => too_much(bounds.memory),
        Some(TrapCode::StackOverflow) => "its calls nest too deep".to_owned(),
        Some(TrapCode::UnreachableCodeReached) => "it gave up (unreachable)".to_owned(),
        Some(trap) => trap.to_string(),
        None => match error.kind() {
            ErrorKind::Memory(_) | ErrorKind::Instantiation(_) => {
                format!("{error}: {}", too_much(bounds.memory))
            }
            _ => error.to_string(),
        },
    }
}

fn too_much(memory: usize) -> String {
    format!(
        "it may have {memory} bytes of memory (fusion.functions.memory_max), tables of {FUNCTION_TABLE_ELEMENTS_MAX} entries"
    )
}

const INITIALIZE: &str = "_initialize";

/// Tables of a module: compilers make one, for functions that are called by reference.
const TABLES_MAX: usize = 4;
