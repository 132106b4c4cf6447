"""The atomic operations of the Redis store, as Lua scripts.

Redis runs a script atomically. Times are those of the Redis server's clock, so the
clocks of the processes do not matter.

A lease is a hash with its token (t), its expiry in milliseconds since 1970 (u) and, for
an item of a queue, the sorted set of leased items (q) and whether the item was begun
(b). The hash is kept after the lease has expired, because it can be renewed until a
later lease is granted.
"""

_NOW = """
local function now()
    local time = redis.call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
end
"""

# `token` is empty if the operation does not need a lease.
_IS_LOST = """
local function is_lost(lease, token)
    return token ~= '' and redis.call('HGET', lease, 't') ~= token
end
"""

_GRANT = """
local function grant(lease, counter, until_ms, remembered)
    local token = redis.call('INCR', counter)
    redis.call('HSET', lease, 't', token, 'u', until_ms)
    redis.call('HDEL', lease, 'b')
    redis.call('PEXPIRE', lease, remembered)
    return token
end
"""

# KEYS: a key that is only written here
# ARGV: a channel without messages for anyone
PROBE = """
redis.call('SET', KEYS[1], '', 'PX', 1000)
redis.call('PUBLISH', ARGV[1], '')
"""

# KEYS: record, version counter, lease
# ARGV: value, time to live in ms or '', expected version or '', token or ''
# Returns the new version, 0 if the version is not the expected one, -1 if the lease is
# lost.
WRITE = (
    _IS_LOST
    + """
if is_lost(KEYS[3], ARGV[4]) then return -1 end
local version = redis.call('HGET', KEYS[1], 'n') or '0'
if ARGV[3] ~= '' and ARGV[3] ~= version then return 0 end
local new = redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'n', new)
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return new
"""
)

# KEYS: stream, its counts, lease
# ARGV: most entries, most bytes, time to live in ms, position of the first entry or '',
# token or '', and the data of each entry
# Returns the position of the last entry, -1 if the lease is lost.
APPEND = (
    _IS_LOST
    + """
if is_lost(KEYS[3], ARGV[5]) then return -1 end
local counts = redis.call('HMGET', KEYS[2], 'last', 'size')
local last, size = tonumber(counts[1] or 0), tonumber(counts[2] or 0)
if not counts[1] then
    -- A Redis that evicts keys may have evicted the counts, but not the stream.
    local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
    if newest then last = tonumber(string.match(newest[1], '^%d+')) end
end
if ARGV[4] ~= '' then
    if last >= tonumber(ARGV[4]) then return last end
    last = tonumber(ARGV[4]) - 1
end
for index = 6, #ARGV do
    last = last + 1
    size = size + #ARGV[index]
    redis.call('XADD', KEYS[1], last .. '-0', 'd', ARGV[index])
end
local kept = redis.call('XLEN', KEYS[1])
while kept > 1 and (kept > tonumber(ARGV[1]) or size > tonumber(ARGV[2])) do
    local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
    size = size - #oldest[2][2]
    redis.call('XDEL', KEYS[1], oldest[1])
    kept = kept - 1
end
redis.call('HSET', KEYS[2], 'last', last, 'size', size)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return last
"""
)

# KEYS: stream
# ARGV: position of the first entry to return
# Returns the position of the oldest entry in the log, or 0 if it is empty, followed by
# the position and the data of each entry.
READ_LOG = """
local function position(id) return tonumber(string.match(id, '^%d+')) end
local oldest = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
if not oldest then return {0} end
local found = {position(oldest[1])}
for _, entry in ipairs(redis.call('XRANGE', KEYS[1], ARGV[1] .. '-0', '+')) do
    table.insert(found, position(entry[1]))
    table.insert(found, entry[2][2])
end
return found
"""

# KEYS: bucket
# ARGV: tokens per second, burst, tokens to take (negative to put back)
# Returns the tokens before the call, as a string.
TAKE = """
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1e6
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local weight = tonumber(ARGV[3])
local stored = redis.call('HMGET', KEYS[1], 't', 's')
local tokens = burst
if stored[1] then
    -- The clock may have been set back.
    local passed = math.max(0, now - tonumber(stored[2]))
    tokens = math.min(burst, tonumber(stored[1]) + passed * rate)
end
local before = tokens
if tokens >= weight - 1e-6 then tokens = math.min(burst, tokens - weight) end
redis.call('HSET', KEYS[1], 't', tostring(tokens), 's', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil((burst - tokens) / rate * 1000) + 1000)
return tostring(before)
"""

# KEYS: lease, token counter
# ARGV: duration in ms, time to live of the lease's hash in ms, whether an expired lease
# may be taken over (1) or not (0)
# Returns the token, or 0 if the key is leased.
ACQUIRE = (
    _NOW
    + _GRANT
    + """
local stored = redis.call('HGET', KEYS[1], 'u')
if stored and (ARGV[3] == '0' or tonumber(stored) > now()) then return 0 end
return grant(KEYS[1], KEYS[2], now() + ARGV[1], ARGV[2])
"""
)

# KEYS: lease
# ARGV: token, duration in ms, time to live of the lease's hash in ms, the leased item
# Returns 1, or 0 if the lease is lost.
RENEW = (
    _NOW
    + _IS_LOST
    + """
if is_lost(KEYS[1], ARGV[1]) then return 0 end
local until_ms = now() + ARGV[2]
redis.call('HSET', KEYS[1], 'u', until_ms)
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local leased = redis.call('HGET', KEYS[1], 'q')
if leased then redis.call('ZADD', leased, 'XX', until_ms, ARGV[4]) end
return 1
"""
)

# KEYS: lease
# ARGV: token
RELEASE = """
if redis.call('HGET', KEYS[1], 't') == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""

# The keys of a queue are: data and attempts of items by id, the list of waiting items,
# and the sorted set of leased items, by the expiry of the lease.
_BEGIN_ITEM = """
local function begin_item(id, lease, attempts)
    if redis.call('HSETNX', lease, 'b', 1) == 1 then
        redis.call('HINCRBY', attempts, id, 1)
    end
end
"""

_LEASE_ITEM = (
    _NOW
    + _GRANT
    + """
-- Empty if Redis has evicted it.
local function data_of(id)
    return redis.call('HGET', KEYS[1], id) or ''
end

local function lease_item(id, lease, counter, duration, remembered)
    local until_ms = now() + duration
    local token = grant(lease, counter, until_ms, remembered)
    redis.call('HSET', lease, 'q', KEYS[4])
    redis.call('ZADD', KEYS[4], until_ms, id)
    local attempts = tonumber(redis.call('HGET', KEYS[2], id) or 0)
    return {id, data_of(id), attempts + 1, token}
end
"""
)

# KEYS: data, attempts, waiting, leased, token counter, lease
# ARGV: id, data, duration in ms or '', time to live of the lease's hash in ms
# Returns the job if there is a duration: it is leased and begun.
PUSH = (
    _LEASE_ITEM
    + _BEGIN_ITEM
    + """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
if ARGV[3] ~= '' then
    local job = lease_item(ARGV[1], KEYS[6], KEYS[5], ARGV[3], ARGV[4])
    begin_item(ARGV[1], KEYS[6], KEYS[2])
    return job
end
redis.call('RPUSH', KEYS[3], ARGV[1])
return false
"""
)

# KEYS: data, attempts, waiting, leased, token counter, the puller's latest job
# ARGV: duration in ms, time to live of the lease's hash in ms, the prefix of leases,
# whether an expired lease may be taken over (1) or not (0), the token of the latest job
# that the puller has received
# Returns a job. If the puller did not receive its latest job, because the connection
# was lost, that is the same job. If no job is available, returns the milliseconds until
# the next lease expires, or -1 if none is leased.
PULL = (
    _IS_LOST
    + _LEASE_ITEM
    + """
local pulled = redis.call('HMGET', KEYS[6], 'id', 't')
local is_known = not pulled[1] or pulled[2] == ARGV[5]
if not is_known and not is_lost(ARGV[3] .. pulled[1], pulled[2]) then
    local attempts = tonumber(redis.call('HGET', KEYS[2], pulled[1]) or 0)
    return {pulled[1], data_of(pulled[1]), attempts + 1, tonumber(pulled[2])}
end
local id = nil
local first = redis.call('ZRANGE', KEYS[4], 0, 0, 'WITHSCORES')
local left = first[1] and math.max(0, tonumber(first[2]) - now())
if left == 0 and ARGV[4] == '1' then
    id = first[1]
else
    id = redis.call('LPOP', KEYS[3])
end
if not id then return left or -1 end
local job = lease_item(id, ARGV[3] .. id, KEYS[5], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[6], 'id', id, 't', job[4])
redis.call('PEXPIRE', KEYS[6], ARGV[2])
return job
"""
)

# KEYS: attempts, lease
# ARGV: id, token
# Returns 1, 0 if the lease is lost.
BEGIN = (
    _IS_LOST
    + _BEGIN_ITEM
    + """
if is_lost(KEYS[2], ARGV[2]) then return 0 end
begin_item(ARGV[1], KEYS[2], KEYS[1])
return 1
"""
)

# KEYS: data, attempts, waiting, leased, lease
# ARGV: id, token, whether the item is done (1) or returned to the queue (0)
# Returns 1, or 0 if the lease is lost.
FINISH = (
    _IS_LOST
    + """
if is_lost(KEYS[5], ARGV[2]) then return 0 end
local is_begun = redis.call('HGET', KEYS[5], 'b')
redis.call('DEL', KEYS[5])
redis.call('ZREM', KEYS[4], ARGV[1])
if ARGV[3] == '1' then
    redis.call('HDEL', KEYS[1], ARGV[1])
    redis.call('HDEL', KEYS[2], ARGV[1])
else
    if is_begun then redis.call('HINCRBY', KEYS[2], ARGV[1], -1) end
    redis.call('RPUSH', KEYS[3], ARGV[1])
end
return 1
"""
)
