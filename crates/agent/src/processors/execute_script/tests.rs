//! What scripts do, one by one.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::processors::Next;
use crate::testing::{Logged, Rig};

/// ExecuteScript with a body and further properties; the error is what a user reads.
pub(super) fn try_rig(body: &str, properties: &[(&str, &str)]) -> Result<Rig, String> {
    let own = [("Script Engine", "lua"), ("Script Body", body)];
    Rig::try_new("ExecuteScript", &[&own, properties].concat(), json!({}))
}

/// The same, which is taken.
pub(super) fn rig(body: &str) -> Rig {
    try_rig(body, &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// ExecuteScript with a file.
fn rig_of(path: &Path, modules: &str) -> Rig {
    let properties = [
        ("Script Engine", "lua"),
        ("Script File", path.to_str().unwrap()),
        ("Module Directory", modules),
    ];
    Rig::new("ExecuteScript", &properties)
}

/// A script that does `lines` with a `flow_file` when there is one, and sends it on.
pub(super) fn with_each(lines: &str) -> String {
    format!(
        "function onTrigger(context, session)
           local flow_file = session:get()
           if flow_file == nil then return end
           {lines}
           session:transfer(flow_file, REL_SUCCESS)
         end"
    )
}

#[test]
fn flow_files_are_taken_sent_on_and_removed() {
    let mut rig = rig("function onTrigger(context, session)
           local flow_file = session:get()
           if flow_file == nil then return end
           local to = flow_file:getAttribute('to')
           if to == 'nowhere' then session:remove(flow_file) return end
           session:transfer(flow_file, REL_FAILURE)
           if to == 'success' then session:transfer(flow_file, REL_SUCCESS) end
         end");
    rig.trigger().unwrap();
    assert_eq!(rig.counts(), []);
    for to in ["success", "failure", "nowhere", "success"] {
        rig.put(&[("to", to)], to);
    }
    rig.run();
    assert_eq!(rig.counts(), [("success", 2), ("failure", 1)]);
    assert_eq!(rig.one("failure").text(), "failure");
}

#[test]
fn attributes_are_read_and_changed() {
    let mut rig = rig(&with_each(
        "local said = {}
         local function say(word) said[#said + 1] = tostring(word) end
         say(flow_file:getAttribute('old'))
         say(flow_file:getAttribute('missing') == '')
         say(flow_file:getAttribute('uuid') ~= '')
         say(flow_file:addAttribute('old', 'x'))
         say(flow_file:addAttribute('new', 1))
         say(flow_file:updateAttribute('new', flow_file:getAttribute('new') + 1))
         say(flow_file:updateAttribute('missing', 'x'))
         say(flow_file:removeAttribute('gone'))
         say(flow_file:removeAttribute('gone'))
         flow_file:setAttribute('said', table.concat(said, ' '))",
    ));
    rig.put(&[("old", "1"), ("gone", "1")], "");
    rig.run();
    let out = rig.one("success");
    let names: Vec<&str> = out.attributes.keys().map(String::as_str).collect();
    assert_eq!(names, ["new", "old", "said"]);
    assert_eq!(out.attribute("new"), "2");
    assert_eq!(out.attribute("old"), "1");
    let said = "1 true true false true true false true false";
    assert_eq!(out.attribute("said"), said);
}

#[test]
fn content_is_read_and_written_by_callbacks() {
    let mut rig = rig("reader, writer = {}, {}
         function reader.process(self, stream)
           self.first = stream:read(2)
           self.rest = stream:read(0)
           self.last = stream:read()
           return #self.rest
         end
         function writer.process(self, stream)
           local count = stream:write(string.reverse(self.text))
           return count + stream:write('\\0\\255')
         end
         function onTrigger(context, session)
           local flow_file = session:get()
           session:read(flow_file, reader)
           writer.text = reader.first .. '-' .. reader.rest .. reader.last
           session:write(flow_file, writer)
           session:transfer(flow_file, REL_SUCCESS)
         end");
    rig.put(&[("kept", "yes")], "abcde");
    rig.run();
    let out = rig.one("success");
    assert_eq!(out.content, &b"edc-ba\0\xff"[..]);
    assert_eq!(out.attribute("kept"), "yes");
}

#[test]
fn content_of_any_size_goes_through_in_pieces() {
    let body = with_each(
        "local copy = session:create(flow_file)
         session:write(copy, function(to)
           session:read(flow_file, function(from)
             local piece = from:read(300000)
             while piece ~= '' do
               to:write(piece)
               piece = from:read(300000)
             end
           end)
         end)
         session:remove(flow_file)
         flow_file = copy",
    );
    let mut it = try_rig(&body, &[("Memory Limit", "4 MB")]).unwrap();
    let content: Vec<u8> = (0..9_000_000_u32).map(|n| (n % 251) as u8).collect();
    it.put(&[("a", "b")], &content);
    it.run();
    let out = it.one("success");
    assert!(out.content == content, "it is another");
    assert_eq!(out.attribute("a"), "b");
}

#[test]
fn flow_files_are_made_of_nothing_and_of_others() {
    let mut rig = rig("function onTrigger(context, session)
           local parent = session:get()
           local child = session:create(parent)
           child:setAttribute('child', 'yes')
           session:write(child, { process = function(self, stream) return stream:write('new') end })
           session:transfer(child, REL_SUCCESS)
           session:transfer(session:create(), REL_FAILURE)
           session:transfer(session:create(nil), REL_FAILURE)
           if parent then session:remove(parent) end
         end");
    rig.trigger().unwrap();
    let child = rig.one("success");
    assert_eq!(child.attribute("filename"), child.uuid);
    rig.out("failure");
    rig.put(&[("filename", "a"), ("b", "c")], "old");
    rig.run();
    let child = rig.one("success");
    assert_eq!(child.text(), "new");
    assert_eq!(child.attribute("filename"), "a");
    assert_eq!(child.attribute("b"), "c");
    assert_eq!(child.attribute("child"), "yes");
    for out in rig.out("failure") {
        assert_eq!(out.attribute("filename"), out.uuid);
        assert_eq!(out.text(), "");
    }
}

#[test]
fn an_error_takes_all_back_and_says_on_which_line() {
    let failing = [
        ("error('no good')", "Script Body:4: no good"),
        (
            "local x = nil + 1",
            "Script Body:4: attempt to perform arithmetic",
        ),
        ("session:transfer(flow_file, REL_OTHER)", "Script Body:4: "),
        (
            "session:write(flow_file, {})",
            "Script Body:4: the callback has no function 'process'",
        ),
        (
            "session:read(flow_file, function() return -1 end)",
            "Script Body:4: the callback failed with -1",
        ),
        (
            "session:read(flow_file, function()\n\n error('deep') end)",
            "Script Body:6: deep",
        ),
        (
            "session:read(flow_file, function()\n\n session:remove() end)",
            "Script Body:6: ",
        ),
        ("local kept = session:create()", "1 FlowFiles were neither"),
    ];
    for (line, expected) in failing {
        let mut rig = rig(&with_each(
            &format!(
                "session:transfer(session:create(), REL_FAILURE)
             {line}"
            )
            .replacen('\n', " ", 1),
        ));
        rig.put(&[], "kept");
        let error = rig.trigger().unwrap_err();
        assert!(error.starts_with(expected), "{line}: {error}");
        assert!(!error.contains('\n'), "{line}: {error}");
        assert_eq!(rig.counts(), [], "{line}");
        assert_eq!(rig.waiting(), 1, "{line}");
    }
}

#[test]
fn a_script_without_its_function_is_told() {
    let mut it = rig("onTrigger = nil");
    let error = it.trigger().unwrap_err();
    assert_eq!(error, "the script defines no onTrigger");
}

#[test]
fn the_script_is_run_before_each_trigger_and_its_state_stays() {
    let mut rig = rig("local begun = (begun_before or 0) + 1
         begun_before = begun
         count = 0
         function onSchedule(context) scheduled = (scheduled or 0) + 1 end
         function onTrigger(context, session)
           count = count + 1
           kept = (kept or 0) + 1
           local flow_file = session:create()
           local text = begun .. ' ' .. scheduled .. ' ' .. count .. ' ' .. kept
           flow_file:setAttribute('text', text .. ' ' .. context:getProperty('Script Engine'))
           session:transfer(flow_file, REL_SUCCESS)
         end");
    for expected in ["1 1 1 1 lua", "2 1 1 2 lua", "3 1 1 3 lua"] {
        rig.trigger().unwrap();
        assert_eq!(rig.one("success").attribute("text"), expected);
    }
}

#[test]
fn a_flow_file_of_an_earlier_trigger_is_no_more() {
    let mut rig = rig("function onTrigger(context, session)
           local flow_file = session:create()
           session:transfer(flow_file, REL_SUCCESS)
           if kept then kept:getAttribute('a') end
           kept = flow_file
         end");
    rig.trigger().unwrap();
    let error = rig.trigger().unwrap_err();
    assert_eq!(
        error,
        "Script Body:4: this FlowFile is of an earlier trigger"
    );
    assert_eq!(rig.count("success"), 1);
}

#[test]
fn modules_are_found_where_the_flow_says() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("more");
    fs::create_dir(&folder).unwrap();
    fs::write(dir.path().join("foo.lua"), "return { word = 'foo' }").unwrap();
    fs::write(
        folder.join("bar.lua"),
        "return { word = function() log:warn('bar is asked') return 'bar' end }",
    )
    .unwrap();
    fs::write(folder.join("broken.lua"), "return return").unwrap();
    let script = dir.path().join("script.lua");
    let text = with_each(
        "local bar, foo = require('bar'), require('foo')
         flow_file:setAttribute('words', foo.word .. bar.word())
         if flow_file:getAttribute('all') ~= '' then require('broken') end",
    );
    fs::write(&script, text).unwrap();
    let modules = format!(
        "{}, , {}",
        folder.display(),
        dir.path().join("foo.lua").display()
    );
    let mut it = rig_of(&script, &modules);
    for _ in 0..2 {
        it.put(&[], "");
        it.run();
        assert_eq!(it.one("success").attribute("words"), "foobar");
    }
    assert_eq!(it.bulletins(), ["bar is asked"]);
    it.put(&[("all", "yes")], "");
    let error = it.trigger().unwrap_err();
    assert!(
        error.contains("the module broken cannot be loaded"),
        "{error}"
    );
    assert!(error.contains("broken.lua:1:"), "{error}");
}

#[test]
fn a_file_is_read_anew_when_it_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("script.lua");
    let mut it = rig_of(&path, "");
    let error = it.trigger().unwrap_err();
    assert!(error.contains("cannot read the script"), "{error}");
    fs::write(&path, "#!/usr/bin/lua\nsurely wrong").unwrap();
    let error = it.trigger().unwrap_err();
    assert!(error.contains("script.lua:2: "), "{error}");
    let say = |word: &str| {
        format!(
            "\u{feff}#!/usr/bin/lua
             function onTrigger(context, session)
               local flow_file = session:create()
               flow_file:setAttribute('word', '{word}' .. tostring(kept))
               kept = '{word}'
               session:transfer(flow_file, REL_SUCCESS)
             end"
        )
    };
    for (word, expected) in [("one", "onenil"), ("one", "oneone"), ("three", "threenil")] {
        if expected != "oneone" {
            fs::write(&path, say(word)).unwrap();
        }
        it.trigger().unwrap();
        assert_eq!(it.one("success").attribute("word"), expected);
    }
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = it.trigger().unwrap_err();
    assert!(error.ends_with("is no file"), "{error}");
}

#[test]
fn what_cannot_be_a_script_is_refused_when_the_flow_is_loaded() {
    let fine = "function onTrigger() end";
    let refused = [
        (
            vec![("Script Engine", "lua")],
            "neither Script File nor Script Body",
        ),
        (
            vec![
                ("Script Engine", "lua"),
                ("Script Body", fine),
                ("Script File", "/x"),
            ],
            "Script File and Script Body are both set",
        ),
        (
            vec![("Script Engine", "python"), ("Script Body", "x = 1")],
            "an extension",
        ),
        (
            vec![("Script Body", "x = 1")],
            "'python', which is also what it is",
        ),
        (
            vec![("Script Engine", "ruby"), ("Script Body", fine)],
            "'ruby' is none of",
        ),
        (
            vec![("Script Engine", "lua"), ("Script Body", "\n\nx = = 1")],
            "Script Body:3: ",
        ),
        (
            vec![("Script Engine", "lua"), ("Script Body", "\u{1b}Lua")],
            "attempt to load a binary chunk",
        ),
        (
            vec![
                ("Script Engine", "lua"),
                ("Script Body", fine),
                ("Memory Limit", "0 B"),
            ],
            "Memory Limit: ",
        ),
        (
            vec![
                ("Script Engine", "lua"),
                ("Script Body", fine),
                ("Time Limit", "0 sec"),
            ],
            "Time Limit: ",
        ),
        (
            vec![
                ("Script Engine", "lua"),
                ("Script Body", fine),
                ("Time Limit", "25 hours"),
            ],
            "Time Limit: ",
        ),
    ];
    for (properties, expected) in refused {
        let error = Rig::try_new("ExecuteScript", &properties, json!({})).err();
        let error = error.unwrap_or_else(|| panic!("{properties:?} was taken"));
        assert!(error.contains(expected), "{properties:?}: {error}");
    }
    assert!(try_rig(fine, &[("Memory Limit", "1 MB")]).is_ok());
}

#[test]
fn a_state_is_kept_with_the_flow_files() {
    let mut it = rig("function onTrigger(context, session)
           local states = context:getStateManager()
           local state = states:get() or { count = 0 }
           state.count = state.count + 1
           states:set(state)
           assert(states:get().count == tostring(state.count))
           local flow_file = session:create()
           flow_file:setAttribute('count', state.count)
           session:transfer(flow_file, REL_SUCCESS)
           if state.count == 2 and not failed then failed = true error('once') end
         end");
    it.trigger().unwrap();
    it.trigger().unwrap_err();
    it.trigger().unwrap();
    it.kill();
    it.trigger().unwrap();
    let counts: Vec<String> = it
        .out("success")
        .iter()
        .map(|out| out.attribute("count").to_owned())
        .collect();
    assert_eq!(counts, ["1", "2", "3"]);
    assert_eq!(it.state(), r#"{"count":"3"}"#.as_bytes());
}

#[test]
fn what_the_session_refuses_is_no_success_though_it_is_caught() {
    let mut it = rig(&with_each(
        "local states = context:getStateManager()
         assert(not pcall(states.set, states, { a = string.rep('x', 5000000) }))",
    ));
    it.put(&[], "");
    let error = it.trigger().unwrap_err();
    assert!(error.starts_with("a state of 5"), "{error}");
    assert_eq!(it.waiting(), 1);
}

#[test]
fn words_for_the_log_are_logged_or_put_up() {
    let mut it = rig("log:info('a top')
         function onTrigger(context, session)
           log:trace('a trace')
           log:debug('a detail')
           log:info('an ' .. 'info')
           log:warn(12)
           log:error('an error')
           log:info(nil)
           print('printed', 1, nil, true)
         end");
    let logged = Logged::default();
    logged.during(|| it.trigger()).unwrap();
    assert_eq!(it.bulletins(), ["12", "an error"]);
    let text = logged.text();
    for words in ["a top", "an info", "nil", "printed\t1\tnil\ttrue"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("a detail"), "{text}");
}

#[test]
fn a_script_that_takes_nothing_of_what_waits_rests() {
    let mut it = rig("function onTrigger(context, session) end");
    assert_eq!(it.trigger().unwrap(), Next::Scheduled);
    it.put(&[], "");
    assert_eq!(it.trigger().unwrap(), Next::Yield);
    assert_eq!(it.waiting(), 1);
}
