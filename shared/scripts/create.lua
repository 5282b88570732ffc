-- Creates a response: its record, its first events and its place among the live ones, in one step.
-- KEYS: record, events, live [, parent record, parent's children]
-- ARGV: lease in ms, response id, waits ('1' where an unfinished parent is to be waited for),
--       number of record fields, field, value ..., then log field, log value ... from sequence number 0
-- Answers: ready | waiting | exists (sent twice, and not waiting) | no_parent (it vanished)
--          | parent_running (and this one may not wait)
if redis.call('EXISTS', KEYS[1]) == 1 then
  return KEYS[5] and redis.call('SISMEMBER', KEYS[5], ARGV[2]) == 1 and 'waiting' or 'exists'
end
local waiting = false
if KEYS[4] then
  local status = redis.call('HGET', KEYS[4], 'status')
  if not status then return 'no_parent' end
  waiting = status == 'queued' or status == 'in_progress'
  if waiting and ARGV[3] ~= '1' then return 'parent_running' end
end
local fields = tonumber(ARGV[4])
for i = 5, 4 + 2 * fields, 2 do redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
local sequence = 0
for i = 5 + 2 * fields, #ARGV, 2 do
  sequence = sequence + 1
  redis.call('XADD', KEYS[2], '1-' .. sequence, ARGV[i], ARGV[i + 1])
end
redis.call('HSET', KEYS[1], 'sequence', sequence)
local now = redis.call('TIME')
redis.call('ZADD', KEYS[3], now[1] * 1000 + math.floor(now[2] / 1000) + tonumber(ARGV[1]), ARGV[2])
if not waiting then return 'ready' end
redis.call('SADD', KEYS[5], ARGV[2])
return 'waiting'
