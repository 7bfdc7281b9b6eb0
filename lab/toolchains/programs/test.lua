-- Patterns, closures, coroutines, errors and a sort, so that much of the interpreter runs.
local t = {}
for w in ("the quick brown fox jumps over the lazy dog"):gmatch("%a+") do t[#t + 1] = w:upper():rep(2, "-") end
table.sort(t, function(a, b) return a > b end)
print(table.concat(t, " "))
local co = coroutine.wrap(function(n) for i = 1, n do coroutine.yield(i * i) end return "end" end)
print(co(3), co(), co(), co())
print(pcall(error, {code = 7}), select(2, pcall(function() return nil + 1 end)))
local m = setmetatable({}, {__index = function(_, k) return k * 2.5 end, __gc = function() end})
local s = 0
for i = 1, 20000 do s = s + m[i] % 7 end
print(string.format("%.3f %5d %q", s, #t, "a\nb"), os.time{year = 2000, month = 1, day = 1, hour = 0} > 0)
print(load("local a <const> = 40; return a + 2")(), utf8.char(228, 8364), math.tointeger(2^53))
collectgarbage()
