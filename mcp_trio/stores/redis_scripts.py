"""The steps of the Redis store that must not be divided, as Lua scripts.

Redis runs a script as one step. Times come from the Redis server's clock, so that the
clocks of the processes do not matter.

A lease is a string with its token, which expires with the lease. Beside it, the key
`latest` keeps the token that was granted last. A lease that has expired is still good as
long as no later one was granted: while Redis is away nobody can renew, and nobody can
take over either.
"""

# Whether a lease was not replaced by a later one. `token` is empty if there is no lease.
_CHECK_LEASE = """
local function is_superseded(latest_key, token)
    return token ~= '' and redis.call('GET', latest_key) ~= token
end
"""

# KEYS: record, version counter, latest token of the lease
# ARGV: value, time to live in ms or '', expected version or '', token or ''
# Returns the new version, 0 if the expected version is another, -1 if the lease is lost.
WRITE = (
    _CHECK_LEASE
    + """
if is_superseded(KEYS[3], ARGV[4]) then return -1 end
local version = redis.call('HGET', KEYS[1], 'n') or '0'
if ARGV[3] ~= '' and ARGV[3] ~= version then return 0 end
local new = redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'n', new)
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return new
"""
)

# KEYS: stream, its counts
# ARGV: data, most entries, most bytes, time to live in ms
# Returns the position of the entry.
APPEND = """
local last = redis.call('HINCRBY', KEYS[2], 'last', 1)
local size = redis.call('HINCRBY', KEYS[2], 'size', #ARGV[1])
redis.call('XADD', KEYS[1], last .. '-0', 'd', ARGV[1])
local kept = redis.call('XLEN', KEYS[1])
while kept > 1 and (kept > tonumber(ARGV[2]) or size > tonumber(ARGV[3])) do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    size = redis.call('HINCRBY', KEYS[2], 'size', -#oldest[2][2])
    redis.call('XDEL', KEYS[1], oldest[1])
    kept = kept - 1
end
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
return last
"""

# KEYS: bucket
# ARGV: tokens per second, burst
# Returns the tokens that are left before the call, as a string.
TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local stored = redis.call('HMGET', KEYS[1], 't', 's')
local tokens = burst
if stored[1] then
    tokens = math.min(burst, tonumber(stored[1]) + (now - tonumber(stored[2])) * rate)
end
local before = tokens
if tokens >= 1 - 1e-6 then tokens = tokens - 1 end
redis.call('HSET', KEYS[1], 't', tostring(tokens), 's', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate * 1000) + 1000)
return tostring(before)
"""

# KEYS: lease, latest token, token counter
# ARGV: duration in ms, milliseconds for which the latest token is remembered
# Returns the token, 0 if the key is leased.
ACQUIRE = """
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
local token = redis.call('INCR', KEYS[3])
redis.call('SET', KEYS[1], token, 'PX', ARGV[1])
redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
return token
"""

# KEYS: lease, latest token, leased items of the queue or ''
# ARGV: token, duration in ms, milliseconds to remember the latest token, item or ''
# Returns 1, 0 if the lease is lost.
RENEW = (
    _CHECK_LEASE
    + """
if is_superseded(KEYS[2], ARGV[1]) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
"""
)

# KEYS: lease
# ARGV: token
RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

# The functions of a queue. Its keys are: data and attempts of the items by id, the ids
# that wait, and the ids that are leased.
_QUEUE = """
local function lease(id, lease_prefix, latest_prefix, counter, duration, remembered)
    local attempt = redis.call('HINCRBY', KEYS[2], id, 1)
    local token = redis.call('INCR', counter)
    redis.call('SET', lease_prefix .. id, token, 'PX', duration)
    redis.call('SET', latest_prefix .. id, token, 'PX', remembered)
    redis.call('SADD', KEYS[4], id)
    return {id, redis.call('HGET', KEYS[1], id), attempt, token}
end
"""

# KEYS: data, attempts, waiting, leased, token counter
# ARGV: id, data, duration in ms or '', milliseconds to remember, prefixes of leases and
# of latest tokens
# Returns the job if it was leased at once.
PUSH = (
    _QUEUE
    + """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[3] == '' then
    redis.call('RPUSH', KEYS[3], ARGV[1])
    return false
end
return lease(ARGV[1], ARGV[5], ARGV[6], KEYS[5], ARGV[3], ARGV[4])
"""
)

# KEYS: data, attempts, waiting, leased, token counter
# ARGV: duration in ms, milliseconds to remember, prefixes of leases and of latest tokens,
# whether leases that have expired may be taken over
# Returns a job, or false and the milliseconds until the next lease ends (-1: none).
PULL = (
    _QUEUE
    + """
local next_end = -1
for _, id in ipairs(redis.call('SMEMBERS', KEYS[4])) do
    local left = redis.call('PTTL', ARGV[3] .. id)
    if left < 0 then
        if ARGV[5] == '1' then
            redis.call('SREM', KEYS[4], id)
            redis.call('RPUSH', KEYS[3], id)
        end
    elseif next_end < 0 or left < next_end then
        next_end = left
    end
end
local id = redis.call('LPOP', KEYS[3])
if not id then return {false, next_end} end
return lease(id, ARGV[3], ARGV[4], KEYS[5], ARGV[1], ARGV[2])
"""
)

# KEYS: data, attempts, waiting, leased, lease, latest token
# ARGV: id, token, whether the item is done (1) or waits again (0)
FINISH = (
    _CHECK_LEASE
    + """
if is_superseded(KEYS[6], ARGV[2]) then return 0 end
redis.call('DEL', KEYS[5])
if redis.call('SREM', KEYS[4], ARGV[1]) == 0 then return 0 end
if ARGV[3] == '1' then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1])
else
    redis.call('RPUSH', KEYS[3], ARGV[1])
end
return 1
"""
)
