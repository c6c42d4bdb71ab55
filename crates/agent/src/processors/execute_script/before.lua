-- Lua's own libraries as scripts see them; runs once in each state, before any script.
--
-- What would end, hold up or change the whole agent is taken away, with an error that says what to do
-- instead. Nothing runs where Lua does not look at the bounds: there are no finalizers, an error is
-- handled after it was raised and not within, and what a coroutine that was ended has open stays
-- so. There are no compiled chunks, which Lua does not check.

local is_over = ...
local error, pcall, type, rawget, select, tostring = error, pcall, type, rawget, select, tostring

local function without(name, instead)
    return function()
        error(name .. " is not there: " .. instead, 2)
    end
end

os.exit = without("os.exit", "return from onTrigger, or raise an error")
os.execute = without("os.execute", "the processor ExecuteProcess runs commands")
os.setlocale = without("os.setlocale", "the locale is the whole agent's")
io.popen = without("io.popen", "the processor ExecuteProcess runs commands")

-- The agent's own input is for nobody; reading it would wait for ever.
io.input("/dev/null")
io.stdin = nil
getmetatable(io.stdout).__metatable = false

local set_metatable = setmetatable
function setmetatable(of, with)
    if type(with) == "table" and rawget(with, "__gc") ~= nil then
        error("finalizers (__gc) are not run here", 2)
    end
    return set_metatable(of, with)
end

local function handled(handler, is_well, ...)
    if is_well then
        return true, ...
    end
    return false, select(2, pcall(handler, (...)))
end

function xpcall(body, handler, ...)
    return handled(handler, pcall(body, ...))
end

local create, resume, close = coroutine.create, coroutine.resume, coroutine.close
local function close_unless_over(thread)
    if is_over() then
        return false, "the script is ended"
    end
    return close(thread)
end
coroutine.close = close_unless_over

-- Who resumed a coroutine that was ended is ended too: asking has the bounds looked at here at once.
local function back(...)
    is_over()
    return ...
end

function coroutine.resume(thread, ...)
    return back(resume(thread, ...))
end

local function resumed(thread, is_well, ...)
    if is_well then
        return back(...)
    end
    close_unless_over(thread)
    error((...), 0)
end

function coroutine.wrap(body)
    local thread = create(body)
    return function(...)
        return resumed(thread, resume(thread, ...))
    end
end

local load_any = load
function load(chunk, name, _, ...)
    return load_any(chunk, name, "t", ...)
end

local load_file = loadfile
function loadfile(name, _, ...)
    if name == nil then
        error("a file's name is missing", 2)
    end
    return load_file(name, "t", ...)
end

function dofile(name)
    if name == nil then
        error("a file's name is missing", 2)
    end
    local chunk, why = load_file(name, "t")
    if not chunk then
        error(why, 2)
    end
    return chunk()
end

local search = package.searchpath
package.cpath = ""
package.searchers = {
    package.searchers[1],
    function(name)
        local path, missing = search(name, package.path)
        if not path then
            return missing
        end
        local chunk, why = load_file(path, "t")
        if not chunk then
            error("the module " .. name .. " cannot be loaded: " .. why, 0)
        end
        return chunk, path
    end,
}

local log, concat, pack = log, table.concat, table.pack
function print(...)
    local words = pack(...)
    for index = 1, words.n do
        words[index] = tostring(words[index])
    end
    log:info(concat(words, "\t"))
end
