-- Concurrency slots. One script, so that every answer is atomic; the time is the server's own.
--
-- KEYS[1]  marker: hash (generation, run_id, touched); KEYS[2..] sorted sets, member = token, score = expiry in ms
-- ARGV[1]  op; ARGV[2] generation; ARGV[3] oldest marker in ms; ARGV[4] tolerated clock step in ms; ARGV[5] lease in ms
-- acquire  ARGV[6] token, ARGV[7..] limit per set (-1: none)   OK | FULL i | EXISTS i | LOST why
-- renew    ARGV[6] token                                        OK | DENIED i | LOST why
-- release  ARGV[6] token                                        OK removed
-- touch    ARGV[6] time before the claims were read, ARGV[7..] pairs (index of set, token)   OK missing | LOST why
-- rebuild  ARGV[6] unused, ARGV[7..] pairs (index of set, token)                             OK n | NEWER generation
-- look                                                          OK now | LOST why now
-- count                                                         OK live members per set

local op, generation = ARGV[1], tonumber(ARGV[2])
local max_age, skew, lease = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')

local function whole(number)
    return string.format('%.0f', number)
end

-- Why the slots here are not those of this generation, or nil. A restarted or promoted server has another run id.
local function lost()
    local marker = redis.call('HMGET', KEYS[1], 'generation', 'run_id', 'touched')
    if not marker[1] or not marker[2] or not marker[3] then return 'missing' end
    if tonumber(marker[1]) ~= generation then return 'generation' end
    if marker[2] ~= run_id then return 'restarted' end
    local age = now - tonumber(marker[3])
    if age > max_age then return 'old' end
    if age < -skew then return 'clock' end
    return nil
end

-- The key's expiry follows its longest member and is never brought forward (R-SLOT-12).
local function keep(key)
    local longest = redis.call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    if not longest[2] then return end
    local left = redis.call('PTTL', key)
    if left < 0 or now + left < tonumber(longest[2]) then
        redis.call('PEXPIREAT', key, longest[2])
    end
end

local function live(key, token)
    local score = redis.call('ZSCORE', key, token)
    return score and tonumber(score) > now and tonumber(score) or nil
end

local function extend(key, token, score)
    if now + lease > score then
        redis.call('ZADD', key, 'XX', whole(now + lease), token)
    end
end

if op == 'count' then
    local counts = {'OK'}
    for i = 2, #KEYS do
        counts[i] = redis.call('ZCOUNT', KEYS[i], '(' .. whole(now), '+inf')
    end
    return counts
end

if op == 'release' then
    local removed = 0
    for i = 2, #KEYS do
        removed = removed + redis.call('ZREM', KEYS[i], ARGV[6])
    end
    return {'OK', removed}
end

if op == 'rebuild' then
    local there = tonumber(redis.call('HGET', KEYS[1], 'generation') or -1)
    if there >= generation then return {'NEWER', there} end
    local added = 0
    for i = 7, #ARGV, 2 do
        local key, token = KEYS[tonumber(ARGV[i])], ARGV[i + 1]
        local score = tonumber(redis.call('ZSCORE', key, token) or 0)
        if now + lease > score then
            added = added + redis.call('ZADD', key, whole(now + lease), token)
        end
    end
    for i = 2, #KEYS do keep(KEYS[i]) end
    redis.call('HSET', KEYS[1], 'generation', whole(generation), 'run_id', run_id, 'touched', whole(now))
    return {'OK', added}
end

local why = lost()
if op == 'look' then
    if why then return {'LOST', why, now} end
    return {'OK', now}
end
if why then return {'LOST', why} end

if op == 'acquire' then
    local token = ARGV[6]
    for i = 2, #KEYS do
        redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', whole(now))
        if redis.call('ZSCORE', KEYS[i], token) then return {'EXISTS', i - 2} end
    end
    for i = 2, #KEYS do
        local limit = tonumber(ARGV[i + 5])
        if limit >= 0 and redis.call('ZCARD', KEYS[i]) >= limit then return {'FULL', i - 2} end
    end
    for i = 2, #KEYS do
        redis.call('ZADD', KEYS[i], whole(now + lease), token)
        keep(KEYS[i])
    end
    return {'OK', 0}
end

if op == 'renew' then
    local token = ARGV[6]
    for i = 2, #KEYS do
        if not live(KEYS[i], token) then return {'DENIED', i - 2} end
    end
    -- Not only forward: a fresh member lives longer than a renewed one (Constants.fresh_slot_seconds). By now its claim
    -- has committed, and whoever touched before that vouches for less than a lease from now.
    for i = 2, #KEYS do
        redis.call('ZADD', KEYS[i], 'XX', whole(now + lease), token)
        keep(KEYS[i])
    end
    return {'OK', 0}
end

if op == 'touch' then
    -- The marker is as fresh as the reading of the claims was, not as this script.
    local read_at = math.min(tonumber(ARGV[6]), now)
    if now - read_at > max_age then return {'LOST', 'old'} end
    local missing = 0
    for i = 7, #ARGV, 2 do
        local key, token = KEYS[tonumber(ARGV[i])], ARGV[i + 1]
        local score = live(key, token)
        if score then extend(key, token, score) else missing = missing + 1 end
    end
    for i = 2, #KEYS do keep(KEYS[i]) end
    local touched = tonumber(redis.call('HGET', KEYS[1], 'touched'))
    if touched > now or read_at > touched then
        redis.call('HSET', KEYS[1], 'touched', whole(read_at))
    end
    return {'OK', missing}
end

return redis.error_reply('unknown op ' .. op)
