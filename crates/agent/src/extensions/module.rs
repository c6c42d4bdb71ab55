//! The sandbox of an extension that is a WebAssembly module.
//!
//! The module is a command of WASI preview 1: it exports `_start` and its memory, and speaks the
//! frames of a program over its standard input and output. It runs on a thread of the agent, by an
//! interpreter. It sees nothing but these pipes, the clocks and random bytes: no files, no network,
//! no environment. Its memory is bounded, and so is what it may do between two reads of its input:
//! its fuel, about one for each instruction. What asks for more is ended.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use wasmi::{Caller, Config, Engine, Error, Extern, Linker, Memory, Module, Store, StoreLimits};
use wasmi::{StoreLimitsBuilder, TypedFunc, errors::ErrorKind};

use super::Program;
use crate::limits::{
    EXTENSION_MODULE_BYTES_MAX, EXTENSION_MODULE_STACK_BYTES, EXTENSION_VECTORS_MAX,
};

/// A running module; dropping it ends it at its next call.
pub(super) struct Sandbox {
    is_over: Arc<AtomicBool>,
    why: Arc<Mutex<Option<String>>>,
}

/// What a module sees.
struct Host {
    limits: StoreLimits,
    input: PipeReader,
    output: PipeWriter,
    errors: PipeWriter,
    is_over: Arc<AtomicBool>,
    fuel: u64,
    began: Instant,
}

impl Sandbox {
    /// Starts the module at `path` between these pipes; the error says why that cannot be.
    pub(super) fn start(
        program: &Program,
        path: &Path,
        (input, output, errors): (PipeReader, PipeWriter, PipeWriter),
    ) -> Result<Sandbox, String> {
        let size = std::fs::metadata(path).map_err(|error| error.to_string())?;
        if size.len() > EXTENSION_MODULE_BYTES_MAX {
            let most = EXTENSION_MODULE_BYTES_MAX;
            return Err(format!("the module has more than {most} bytes"));
        }
        let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
        let mut config = Config::default();
        config.consume_fuel(true);
        let engine = Engine::new(&config);
        let module = Module::new(&engine, &bytes[..]);
        let module = module.map_err(|error| format!("it is no module: {error}"))?;
        let memory = usize::try_from(program.memory_bytes).unwrap_or(usize::MAX);
        let limits = StoreLimitsBuilder::new()
            .memory_size(memory)
            .table_elements(TABLE_ELEMENTS_MAX)
            .instances(1)
            .memories(1)
            .tables(TABLES_MAX)
            .build();
        let is_over = Arc::new(AtomicBool::new(false));
        let why = Arc::new(Mutex::new(None));
        let host = Host {
            limits,
            input,
            output,
            errors,
            is_over: Arc::clone(&is_over),
            fuel: program.fuel,
            began: Instant::now(),
        };
        let mut store = Store::new(&engine, host);
        store.limiter(|host| &mut host.limits);
        let start = ready(&engine, &module, &mut store)?;
        let told = Arc::clone(&why);
        let run = move || {
            let outcome = run(&start, &mut store);
            // Before its pipes close, which is what is waited for.
            *told.lock() = outcome.err();
        };
        let builder = std::thread::Builder::new().name("extension-module".to_owned());
        let started = builder.stack_size(EXTENSION_MODULE_STACK_BYTES).spawn(run);
        started.map_err(|error| format!("cannot start it: {error}"))?;
        Ok(Sandbox { is_over, why })
    }

    /// Why it ended, where it did not end by itself.
    pub(super) fn why(&self) -> Option<String> {
        self.why.lock().clone()
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The module's beginning, with all that it asks for.
fn ready(
    engine: &Engine,
    module: &Module,
    store: &mut Store<Host>,
) -> Result<TypedFunc<(), ()>, String> {
    let fuel = store.data().fuel;
    store.set_fuel(fuel).map_err(|error| error.to_string())?;
    let linker = linker(engine).map_err(|error| error.to_string())?;
    let instance = linker
        .instantiate_and_start(&mut *store, module)
        .map_err(|error| told(&error))?;
    instance
        .get_typed_func::<(), ()>(&*store, "_start")
        .map_err(|_| "it has no _start: it must be a command of WASI preview 1".to_owned())
}

fn run(start: &TypedFunc<(), ()>, store: &mut Store<Host>) -> Result<(), String> {
    match start.call(&mut *store, ()) {
        Ok(()) => Ok(()),
        Err(error) => match error.i32_exit_status() {
            Some(0) => Ok(()),
            Some(status) => Err(format!("it exited with {status}")),
            None => Err(told(&error)),
        },
    }
}

fn told(error: &Error) -> String {
    match error.kind() {
        ErrorKind::TrapCode(wasmi::TrapCode::OutOfFuel) => {
            "it used up its fuel between two reads of its input".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The functions of WASI preview 1 that there are; others that a module needs are named when it is
/// started.
fn linker(engine: &Engine) -> Result<Linker<Host>, Error> {
    let mut linker = Linker::new(engine);
    linker
        .func_wrap(WASI, "fd_read", read)?
        .func_wrap(WASI, "fd_write", write)?
        .func_wrap(WASI, "fd_close", |_: i32| SUCCESS)?
        .func_wrap(WASI, "fd_seek", |_: i32, _: i64, _: i32, _: i32| NO_SEEKING)?
        .func_wrap(WASI, "fd_fdstat_get", status)?
        .func_wrap(WASI, "fd_fdstat_set_flags", |_: i32, _: i32| SUCCESS)?
        .func_wrap(WASI, "fd_filestat_get", |_: i32, _: i32| NO_FILE)?
        .func_wrap(WASI, "fd_prestat_get", |_: i32, _: i32| NO_FILE)?
        .func_wrap(WASI, "fd_prestat_dir_name", |_: i32, _: i32, _: i32| {
            NO_FILE
        })?
        .func_wrap(WASI, "path_open", no_path_open)?
        .func_wrap(WASI, "path_filestat_get", no_path_status)?
        .func_wrap(WASI, "environ_sizes_get", no_words)?
        .func_wrap(WASI, "environ_get", |_: i32, _: i32| SUCCESS)?
        .func_wrap(WASI, "args_sizes_get", no_words)?
        .func_wrap(WASI, "args_get", |_: i32, _: i32| SUCCESS)?
        .func_wrap(WASI, "clock_time_get", time)?
        .func_wrap(WASI, "random_get", random)?
        .func_wrap(WASI, "sched_yield", || SUCCESS)?
        .func_wrap(WASI, "poll_oneoff", |_: i32, _: i32, _: i32, _: i32| {
            NOT_THERE
        })?
        .func_wrap(WASI, "proc_exit", |status: i32| -> Result<(), Error> {
            Err(Error::i32_exit(status))
        })?;
    Ok(linker)
}

/// Reads from its standard input, as much as is there; what it may do next is counted from here.
fn read(
    mut caller: Caller<'_, Host>,
    file: i32,
    vectors: i32,
    count: i32,
    result: i32,
) -> Result<i32, Error> {
    let memory = memory(&caller)?;
    if file != 0 {
        return Ok(NO_FILE);
    }
    let Some((at, len)) = pieces(&caller, memory, vectors, count)?
        .into_iter()
        .find(|(_, len)| *len > 0)
    else {
        put(&mut caller, memory, result, 0)?;
        return Ok(SUCCESS);
    };
    let mut buffer = vec![0; len.min(READ_BYTES_MAX)];
    let read = match caller.data_mut().input.read(&mut buffer) {
        Ok(read) => read,
        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => 0,
        Err(_) => return Ok(IO_FAILED),
    };
    check(&caller)?;
    let fuel = caller.data().fuel;
    caller.set_fuel(fuel)?;
    memory
        .write(&mut caller, at, &buffer[..read])
        .map_err(|error| Error::new(error.to_string()))?;
    put(&mut caller, memory, result, read as u32)?;
    Ok(SUCCESS)
}

/// Writes to its standard output or its log.
fn write(
    mut caller: Caller<'_, Host>,
    file: i32,
    vectors: i32,
    count: i32,
    result: i32,
) -> Result<i32, Error> {
    check(&caller)?;
    let memory = memory(&caller)?;
    let pieces = pieces(&caller, memory, vectors, count)?;
    let mut written = 0;
    {
        let (bytes, host) = memory.data_and_store_mut(&mut caller);
        let pipe = match file {
            1 => &mut host.output,
            2 => &mut host.errors,
            _ => return Ok(NO_FILE),
        };
        for (at, len) in pieces {
            let piece = bytes.get(at..at + len);
            let piece = piece.ok_or_else(|| Error::new("it wrote from outside of its memory"))?;
            if pipe.write_all(piece).is_err() {
                return Ok(IO_FAILED);
            }
            written += len as u32;
        }
    }
    put(&mut caller, memory, result, written)?;
    Ok(SUCCESS)
}

/// Says that a pipe is a stream.
fn status(mut caller: Caller<'_, Host>, file: i32, result: i32) -> Result<i32, Error> {
    if !(0..3).contains(&file) {
        return Ok(NO_FILE);
    }
    let memory = memory(&caller)?;
    let mut bytes = [0; 24];
    bytes[0] = CHARACTER_DEVICE;
    bytes[8..16].copy_from_slice(&MAY_READ_AND_WRITE.to_le_bytes());
    write_at(&mut caller, memory, result, &bytes)?;
    Ok(SUCCESS)
}

fn no_words(mut caller: Caller<'_, Host>, count: i32, bytes: i32) -> Result<i32, Error> {
    let memory = memory(&caller)?;
    put(&mut caller, memory, count, 0)?;
    put(&mut caller, memory, bytes, 0)?;
    Ok(SUCCESS)
}

fn time(mut caller: Caller<'_, Host>, clock: i32, _: i64, result: i32) -> Result<i32, Error> {
    let nanos = match clock {
        0 => SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_nanos(),
        1 => caller.data().began.elapsed().as_nanos(),
        _ => return Ok(NOT_THERE),
    };
    let memory = memory(&caller)?;
    let bytes = (nanos as u64).to_le_bytes();
    write_at(&mut caller, memory, result, &bytes)?;
    Ok(SUCCESS)
}

fn random(mut caller: Caller<'_, Host>, at: i32, len: i32) -> Result<i32, Error> {
    let memory = memory(&caller)?;
    let (at, len) = (at as u32 as usize, len as u32 as usize);
    let range = memory
        .data_mut(&mut caller)
        .get_mut(at..)
        .and_then(|all| all.get_mut(..len));
    let range = range.ok_or_else(|| Error::new("it asked for bytes outside of its memory"))?;
    match SystemRandom::new().fill(range) {
        Ok(()) => Ok(SUCCESS),
        Err(_) => Ok(IO_FAILED),
    }
}

#[allow(clippy::too_many_arguments, reason = "WASI has so many")]
fn no_path_open(_: i32, _: i32, _: i32, _: i32, _: i32, _: i64, _: i64, _: i32, _: i32) -> i32 {
    NO_FILE
}

fn no_path_status(_: i32, _: i32, _: i32, _: i32, _: i32) -> i32 {
    NO_FILE
}

/// The error ends a module that nobody wants any more.
fn check(caller: &Caller<'_, Host>) -> Result<(), Error> {
    match caller.data().is_over.load(Ordering::Relaxed) {
        true => Err(Error::new("it was ended")),
        false => Ok(()),
    }
}

fn memory(caller: &Caller<'_, Host>) -> Result<Memory, Error> {
    let memory = caller.get_export("memory").and_then(Extern::into_memory);
    memory.ok_or_else(|| Error::new("it exports no memory"))
}

/// The places and lengths of a list of buffers.
fn pieces(
    caller: &Caller<'_, Host>,
    memory: Memory,
    at: i32,
    count: i32,
) -> Result<Vec<(usize, usize)>, Error> {
    let count = count as u32 as usize;
    if count > EXTENSION_VECTORS_MAX {
        return Err(Error::new("it gave too many buffers at once"));
    }
    let bytes = memory.data(caller).get(at as u32 as usize..);
    let bytes = bytes.and_then(|bytes| bytes.get(..count * 8));
    let bytes = bytes.ok_or_else(|| Error::new("its buffers lie outside of its memory"))?;
    let (pairs, _) = bytes.as_chunks::<8>();
    let word = |bytes: &[u8]| bytes.try_into().map_or(0, u32::from_le_bytes) as usize;
    Ok(pairs
        .iter()
        .map(|pair| (word(&pair[..4]), word(&pair[4..])))
        .collect())
}

fn put(caller: &mut Caller<'_, Host>, memory: Memory, at: i32, value: u32) -> Result<(), Error> {
    write_at(caller, memory, at, &value.to_le_bytes())
}

fn write_at(
    caller: &mut Caller<'_, Host>,
    memory: Memory,
    at: i32,
    bytes: &[u8],
) -> Result<(), Error> {
    memory
        .write(caller, at as u32 as usize, bytes)
        .map_err(|error| Error::new(error.to_string()))
}

const WASI: &str = "wasi_snapshot_preview1";

// Answers, by WASI's numbers.
const SUCCESS: i32 = 0;
const NO_FILE: i32 = 8;
const IO_FAILED: i32 = 29;
const NOT_THERE: i32 = 52;
const NO_SEEKING: i32 = 70;

const CHARACTER_DEVICE: u8 = 2;
const MAY_READ_AND_WRITE: u64 = 1 << 1 | 1 << 6;

/// Bytes that one read gives at most.
const READ_BYTES_MAX: usize = 64 << 10;

/// Entries of a module's tables: functions that it calls by reference.
const TABLE_ELEMENTS_MAX: usize = 100_000;
const TABLES_MAX: usize = 4;
