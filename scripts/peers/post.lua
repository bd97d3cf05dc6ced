-- For wrk: one message of 1 KiB of noise per POST, to each stream in turn.
--   wrk … -s post.lua http://HOST -- STREAMS PATH FORM [HEADER…]     `{n}` in PATH is the number of a stream
-- FORM raw: the noise is the body. FORM s2: a record of S2's JSON, the noise in base64.
local requests, at = {}, 0

local function base64(bytes)
  local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local bits = a * 65536 + (b or 0) * 256 + (c or 0)
    for place = 3, 0, -1 do
      local digit = math.floor(bits / 64 ^ place) % 64
      local is_padding = (place == 1 and not b) or (place == 0 and not c)
      out[#out + 1] = is_padding and "=" or digits:sub(digit + 1, digit + 1)
    end
  end
  return table.concat(out)
end

function init(args)
  local headers = {}
  for i = 4, #args do
    local name, value = args[i]:match("^(.-):%s*(.*)$")
    headers[name] = value
  end
  local random = assert(io.open("/dev/urandom", "rb"))
  for n = 0, tonumber(args[1]) - 1 do
    local body = random:read(1024)
    if args[3] == "s2" then body = '{"records":[{"body":"' .. base64(body) .. '"}]}' end
    local path = args[2]:gsub("{n}", tostring(n))
    requests[n + 1] = wrk.format("POST", path, headers, body)
  end
  random:close()
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  print(string.format("requests %d", summary.requests))
  print(string.format("duration_us %d", summary.duration))
  print(string.format("failed %d", failed))
  for _, percentile in ipairs({ 50, 99, 99.9, 100 }) do
    print(string.format("p%s_us %d", percentile, latency:percentile(percentile)))
  end
end
