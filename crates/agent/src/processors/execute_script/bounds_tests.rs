//! What ends a script, and what it cannot do; several tasks at once.

use std::fs;
use std::time::{Duration, Instant};

use super::tests::{rig, try_rig, with_each};
use crate::limits::{CONTENT_READ_BYTES_MAX, PROCESSOR_STACK_BYTES, SCRIPT_STREAMS_DEPTH_MAX};
use crate::testing::{ground, runtime, start, wait_or_tell, wait_until};

#[test]
fn reading_all_of_a_large_content_is_refused() {
    let mut it = rig(&with_each(
        "session:read(flow_file, function(stream)
           stream:read(1)
           flow_file:setAttribute('all', tostring(pcall(stream.read, stream)))
           flow_file:setAttribute('rest', #stream:read(1000))
         end)
         session:write(flow_file, function() end)",
    ));
    it.put(&[], vec![b'x'; CONTENT_READ_BYTES_MAX as usize + 2]);
    it.run();
    let out = it.one("success");
    assert_eq!(out.attribute("all"), "false");
    assert_eq!(out.attribute("rest"), "1000");
    assert_eq!(out.text(), "");
}

#[test]
fn an_endless_loop_is_ended_whatever_it_catches() {
    let loops = [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local function spin() while true do end end
         while true do coroutine.resume(coroutine.create(spin)) end",
        "local function loop() while true do end end
         local held <close> = setmetatable({}, { __close = loop })
         loop()",
        "local function loop() while true do end end
         local function spin()
           local held <close> = setmetatable({}, { __close = loop })
           loop()
         end
         local thread = coroutine.create(spin)
         pcall(coroutine.resume, thread)
         pcall(coroutine.close, thread)
         coroutine.wrap(spin)()",
        "local function deep(n)
           while true do
             if n > 0 then
               pcall(coroutine.wrap(function() deep(n - 1) end))
               coroutine.resume(coroutine.create(function() deep(n - 1) end))
             end
           end
         end
         deep(6)",
        "local text = ''
         while true do pcall(string.gsub, 'a', 'a', function() while true do end end) end",
    ];
    for body in loops {
        let body = with_each(body);
        let mut it = try_rig(&body, &[("Time Limit", "100 ms")]).unwrap();
        it.put(&[], "");
        let began = Instant::now();
        let error = it.trigger().unwrap_err();
        assert!(
            error.contains("it took more than 0.1 s (Time Limit)"),
            "{error}"
        );
        assert!(error.starts_with("Script Body:"), "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{body}");
        assert_eq!(it.waiting(), 1);
    }
}

#[test]
fn a_state_that_was_ended_is_not_used_again() {
    let body = "function onTrigger(context, session)
           kept = (kept or 0) + 1
           if kept > 1 then error('kept') end
           while true do end
         end";
    let mut it = try_rig(body, &[("Time Limit", "50 ms")]).unwrap();
    for _ in 0..2 {
        let error = it.trigger().unwrap_err();
        assert!(error.contains("(Time Limit)"), "{error}");
    }
}

#[test]
fn memory_is_bounded() {
    let hungry = [
        "local text = string.rep('x', 100000000)",
        "local all = {} while true do all[#all + 1] = {} end",
        "local text = 'x' while true do text = text .. text end",
        "session:read(flow_file, function(stream) local all = stream:read() .. stream:read() end)",
    ];
    for line in hungry {
        let body = with_each(&format!(
            "if kept then error('kept') end kept = true {line}"
        ));
        let mut it = try_rig(&body, &[("Memory Limit", "8 MB")]).unwrap();
        it.put(&[], vec![b'x'; 10_000_000]);
        for _ in 0..2 {
            let error = it.trigger().unwrap_err();
            assert!(error.contains("(Memory Limit)"), "{line}: {error}");
            assert_eq!(it.waiting(), 1);
        }
    }
    let mut it = rig(&with_each(
        "local value = string.rep('x', 1000000)
         for n = 1, 1000 do flow_file:setAttribute('a', value) end
         for n = 1, 1000 do flow_file:setAttribute('a' .. n, value) end",
    ));
    it.put(&[], "");
    let error = it.trigger().unwrap_err();
    assert!(
        error.contains("bytes of attributes in one trigger"),
        "{error}"
    );
    assert!(
        error.starts_with("Script Body:6: "),
        "the first loop is fine: {error}"
    );
}

#[test]
fn deep_calls_end_before_the_thread_does() {
    let deep = [
        "local function f() return (('x'):gsub('x', f)) end f()",
        "local function f() pcall(f) end f()",
        "local t = setmetatable({}, { __tostring = function(t) return ('%s'):format(t) end }) tostring(t)",
        "local function f() coroutine.wrap(f)() end f()",
        "local function f() session:read(flow_file, f) end f()",
        "local function f() session:write(flow_file, f) end f()",
        "local t = setmetatable({}, { __index = function(t, k) return t[k .. 'x'] end }) print(t.a)",
        "local function f() table.sort({ 1, 2, 3 }, f) end f()",
        "load(string.rep('(', 100000))()",
    ];
    let run = move || {
        for line in deep {
            let mut it = rig(&with_each(line));
            it.put(&[], "x");
            // Whether it fails or not is Lua's to say; that the thread is still there is what counts.
            let ended = it.trigger().err().unwrap_or_default();
            assert!(!ended.contains("Time Limit"), "{line}: {ended}");
        }
    };
    let thread = std::thread::Builder::new().stack_size(PROCESSOR_STACK_BYTES);
    thread.spawn(run).unwrap().join().unwrap();
}

#[test]
fn streams_within_each_other_are_bounded() {
    let mut it = rig(&with_each(
        "local depth = 0
         local function f() depth = depth + 1 session:read(flow_file, f) end
         pcall(f)
         flow_file:setAttribute('depth', depth)",
    ));
    it.put(&[], "x");
    it.run();
    let depth = it.one("success");
    let expected = (SCRIPT_STREAMS_DEPTH_MAX + 1).to_string();
    assert_eq!(depth.attribute("depth"), expected);
}

#[test]
fn what_would_end_or_hold_up_the_agent_is_not_there() {
    let refused = [
        ("os.exit()", "os.exit is not there"),
        ("os.exit(true, true)", "os.exit is not there"),
        ("os.execute('true')", "os.execute is not there"),
        ("os.setlocale('C')", "os.setlocale is not there"),
        ("io.popen('true')", "io.popen is not there"),
        ("loadfile()", "a file's name is missing"),
        ("dofile()", "a file's name is missing"),
        (
            "setmetatable({}, { __gc = function() end })",
            "finalizers (__gc) are not run here",
        ),
        (
            "getmetatable(io.stdout).__gc = 1",
            "attempt to index a boolean",
        ),
        (
            "assert(load(string.dump(function() end)))",
            "attempt to load a binary chunk",
        ),
        ("assert(package.loadlib('x', 'y'))", "disabled"),
        ("require 'debug'", "module 'debug' not found"),
    ];
    for (line, expected) in refused {
        let mut it = rig(&with_each(line));
        it.put(&[], "kept");
        let error = it.trigger().unwrap_err();
        assert!(error.starts_with("Script Body:4: "), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
        assert_eq!(it.waiting(), 1);
    }
    let mut it = rig(&with_each(
        "assert(io.stdin == nil and io.read('a') == '' and debug == nil)
         for _, name in ipairs { 'os', 'coroutine', 'math', 'io', 'string', 'table', 'utf8', 'package' } do
           assert(require(name) == _G[name], name)
         end
         assert(os.time() > 0 and os.date('%Y') and os.getenv('PATH'))
         assert(load('return ...', 'x', 't', {})(7) == 7)
         assert(load('return x', 'x', 't', { x = 8 })() == 8)
         x = 9
         assert(load('return x')() == 9)",
    ));
    it.put(&[], "");
    it.run();
    assert_eq!(it.counts(), [("success", 1)]);
}

#[test]
fn coroutines_and_handlers_are_as_luas_own() {
    let mut it = rig(&with_each(
        "local turn = coroutine.wrap(function(a)
           local b = coroutine.yield(a + 1)
           local _, why = pcall(function() return coroutine.yield(b * 2) + 1 end)
           error('x' .. why)
         end)
         assert(turn(1) == 2 and turn(5) == 10)
         local is_well, why = pcall(turn, 3)
         assert(not is_well and why:match('x4$'))
         local thread = coroutine.create(function(...) return select('#', ...) end)
         local is_well, count = coroutine.resume(thread, nil, nil)
         assert(is_well and count == 2)
         local closed
         local thread = coroutine.create(function()
           local held <close> = setmetatable({}, { __close = function() closed = true end })
           coroutine.yield()
         end)
         coroutine.resume(thread)
         assert(coroutine.close(thread) and closed)
         assert(select('#', xpcall(function(...) return ... end, print, 1, nil, nil)) == 4)
         local is_well, why = xpcall(error, function(why) return 'h' .. why end, 'm')
         assert(not is_well and why == 'hm')
         assert(xpcall(error, function() error('again') end) == false)",
    ));
    it.put(&[], "");
    it.run();
    assert_eq!(it.counts(), [("success", 1)]);
}

#[test]
fn each_task_has_a_state_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script.lua");
    // Each waits for the two others, which only different threads can do.
    let text = with_each(
        "local path = context:getProperty('meeting')
         local meeting = io.open(path, 'a')
         meeting:write('x')
         meeting:close()
         repeat
           local meeting = io.open(path)
           local size = meeting:seek('end')
           meeting:close()
         until size >= 3",
    );
    fs::write(&script, text).unwrap();
    let runtime = runtime();
    let ground = ground(&dir.path().join("data"), &runtime);
    let engine = start(
        &ground,
        &format!(
            "
MiNiFi Config Version: 3
Flow Controller: {{name: tasks}}
Processors:
- {{name: make, class: GenerateFlowFile, scheduling period: 1 hour,
   Properties: {{Batch Size: 3, File Size: 3 B}}}}
- {{name: script, class: ExecuteScript, max concurrent tasks: 3, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [failure],
   Properties: {{Script Engine: lua, Script File: {}, meeting: {}}}}}
- {{name: sink, class: LogAttribute, scheduling strategy: EVENT_DRIVEN,
   auto-terminated relationships list: [success]}}
Connections:
- {{source name: make, source relationship name: success, destination name: script}}
- {{source name: script, source relationship name: success, destination name: sink}}
",
            script.display(),
            dir.path().join("meeting").display()
        ),
    );
    wait_or_tell(&ground, "all three met", || {
        let nodes = engine.nodes();
        nodes
            .iter()
            .any(|node| node.name == "sink" && node.flow_files_in == 3)
    });
    engine.stop();
    ground.repository.close().unwrap();
}

#[test]
fn a_stop_ends_a_script() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = runtime();
    let ground = ground(dir.path(), &runtime);
    let engine = start(
        &ground,
        "
MiNiFi Config Version: 3
Flow Controller: {name: endless}
Processors:
- name: script
  class: ExecuteScript
  auto-terminated relationships list: [success, failure]
  Properties:
    Script Engine: lua
    Script Body: |
      function onTrigger(context, session)
        log:warn('begun')
        while true do pcall(function() while true do end end) end
      end
",
    );
    let begun = || ground.bulletins.since(ground.clock.now(), Duration::MAX);
    wait_until("the script runs", || !begun().is_empty());
    let began = Instant::now();
    engine.stop();
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "it ran into its time limit"
    );
    assert_eq!(begun().len(), 1, "a stop is no failure");
    ground.repository.close().unwrap();
}
