-- Appends events, saves the items that they complete, and on the last append ends the response: all in one step.
-- Redis does not roll back, so everything is checked before anything is written.
-- KEYS: record, events; in the last append also live, children, outbox
-- ARGV: fence, first sequence number, number of events,
--       in the last append: ending, status, record TTL in ms, event log TTL in ms, response id,
--       then per event: log field, log value; then per item: public output_index, item
-- Answers: ok | outbox (ok, and something waits in the outbox) | fenced | terminal | gap | missing
local record = redis.call('HMGET', KEYS[1], 'fence', 'status', 'sequence')
if not record[1] then return 'missing' end
if record[1] ~= ARGV[1] then return 'fenced' end
local first, events, sequence = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(record[3])
if first + events == sequence then return 'ok' end
if record[2] ~= 'in_progress' and record[2] ~= 'queued' then return 'terminal' end
if first ~= sequence then return 'gap' end
local at = KEYS[3] and 9 or 4
for i = 1, events do
  redis.call('XADD', KEYS[2], '1-' .. (sequence + i), ARGV[at], ARGV[at + 1])
  at = at + 2
end
for i = at, #ARGV, 2 do redis.call('HSET', KEYS[1], 'output:' .. ARGV[i], ARGV[i + 1]) end
redis.call('HSET', KEYS[1], 'sequence', sequence + events)
if not KEYS[3] then return 'ok' end
redis.call('HSET', KEYS[1], 'status', ARGV[5], 'ending', ARGV[4])
redis.call('ZREM', KEYS[3], ARGV[8])
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[7])
local children = redis.call('SMEMBERS', KEYS[4])
if #children == 0 then return 'ok' end
for _, child in ipairs(children) do redis.call('XADD', KEYS[5], '*', 'enqueue', child) end
redis.call('DEL', KEYS[4])
return 'outbox'
