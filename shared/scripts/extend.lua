-- Has an unclaimed response looked at again later.
-- KEYS: live    ARGV: response id, how much later in ms    Answers: 0 (nothing new is added)
local now = redis.call('TIME')
now = now[1] * 1000 + math.floor(now[2] / 1000)
return redis.call('ZADD', KEYS[1], 'XX', now + tonumber(ARGV[2]), ARGV[1])
