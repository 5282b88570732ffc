-- Renews the lease of a running turn.
-- KEYS: record, live    ARGV: response id, fence, lease in ms    Answers: 1, or 0 where the turn is no longer this fence's
local record = redis.call('HMGET', KEYS[1], 'fence', 'status')
if record[1] ~= ARGV[2] then return 0 end
if record[2] ~= 'in_progress' then return 1 end -- its own writer has just ended it
local now = redis.call('TIME')
redis.call('ZADD', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[3]), ARGV[1])
return 1
