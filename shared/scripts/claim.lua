-- Claims a response: raises its fence, so that nobody who held it before can write, and starts a lease.
-- KEYS: record, live
-- ARGV: response id, lease in ms, token of this claim (the same claim sent twice is one claim),
--       'new' (never claimed before), 'lost' (claimed, and its lease has run out) or 'cancel' (whoever holds it),
--       channel on which workers hear of a cancel
-- Answers: '' (refused) or the fence
local record = redis.call('HMGET', KEYS[1], 'status', 'fence', 'claim', 'cancelled')
local status, fence = record[1], tonumber(record[2])
if status ~= 'queued' and status ~= 'in_progress' then return '' end
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
if record[3] ~= ARGV[3] then
  local lease = redis.call('ZSCORE', KEYS[2], ARGV[1])
  local held = lease and tonumber(lease) > now
  if ARGV[4] == 'new' then
    if fence > 0 then return '' end
  elseif ARGV[4] == 'lost' then
    if fence == 0 or held then return '' end
    redis.call('HINCRBY', KEYS[1], 'failures', 1)
  elseif record[4] and held then
    return '' -- another cancel is under way
  end
  fence = redis.call('HINCRBY', KEYS[1], 'fence', 1)
  redis.call('HSET', KEYS[1], 'claim', ARGV[3])
  if ARGV[4] == 'cancel' then
    redis.call('HSET', KEYS[1], 'cancelled', 1)
    redis.call('PUBLISH', ARGV[5], ARGV[1])
  else
    redis.call('HSET', KEYS[1], 'status', 'in_progress')
  end
end
redis.call('ZADD', KEYS[2], now + tonumber(ARGV[2]), ARGV[1])
return tostring(fence)
