-- Queues a job, unless it is queued or started. One that ended, or of which a part is left, makes room for it.
-- KEYS: job, failed jobs, queues, queue
-- ARGV: job id, seconds that it waits at most, then its fields: field, value ...
-- Answers: 1, or 0 where the job is queued or started
local status = redis.call('HGET', KEYS[1], 'status')
if status == 'queued' or status == 'started' then return 0 end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HSET', KEYS[1], unpack(ARGV, 3))
redis.call('EXPIRE', KEYS[1], ARGV[2])
redis.call('SADD', KEYS[3], KEYS[4])
redis.call('RPUSH', KEYS[4], ARGV[1])
return 1
