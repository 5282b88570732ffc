-- Walks from a response towards its root and gives the items of each turn, newest turn first.
-- KEYS: record of the first response
-- ARGV: what stands before an id in the names of records (same hash tag), its id, most steps, record TTL in ms, bytes
--       after which no more turns are added
-- Answers: { id to go on from or '', { id, status or '' where it is missing, { input item ... }, { output item ... } } ... }
-- A parent's record key is made here: it lies in the slot of KEYS[1], since continuations inherit the shard.
local bytes = 0
local function items(key, name, count)
  local found = {}
  for from = 0, count - 1, 500 do
    local fields = {}
    for i = from, math.min(from + 499, count - 1) do fields[#fields + 1] = name .. i end
    for _, value in ipairs(redis.call('HMGET', key, unpack(fields))) do
      found[#found + 1] = value
      bytes = bytes + #value
    end
  end
  return found
end
local id, turns = ARGV[2], {}
for _ = 1, tonumber(ARGV[3]) do
  local key = ARGV[1] .. id
  local record = redis.call('HMGET', key, 'status', 'store', 'parent', 'inputs')
  if not record[1] or record[2] ~= '1' then
    turns[#turns + 1] = { id, '' }
    return { '', turns }
  end
  local outputs = 0
  while redis.call('HEXISTS', key, 'output:' .. outputs) == 1 do outputs = outputs + 1 end
  turns[#turns + 1] = { id, record[1], items(key, 'input:', tonumber(record[4])), items(key, 'output:', outputs) }
  if redis.call('PTTL', key) > 0 then redis.call('PEXPIRE', key, ARGV[4]) end
  id = record[3] or ''
  if id == '' then return { '', turns } end
  if bytes >= tonumber(ARGV[5]) then break end
end
return { id, turns }
